//! Repairs a conversation that providers would refuse: two turns of one side in a row, results that nobody asked for.

use std::collections::HashSet;

use super::conversation::{ConversationMessage, ConversationValue};
use crate::blank::trim;
use crate::raw_json::RawJson;

/// Merges and removes messages until they alternate, as far as each of three passes made once brings it.
pub(super) fn repair(messages: Vec<ConversationMessage>) -> Vec<ConversationMessage> {
    let messages = with_assistants_merged(messages);
    let messages = with_answers_only(messages);
    with_users_merged(messages)
}

fn with_assistants_merged(messages: Vec<ConversationMessage>) -> Vec<ConversationMessage> {
    let mut kept: Vec<ConversationMessage> = Vec::with_capacity(messages.len());
    for message in messages {
        match kept.last_mut() {
            Some(earlier)
                if earlier.role() == "assistant"
                    && message.role() == "assistant"
                    && !is_continuation(earlier)
                    && !is_continuation(&message) =>
            {
                match earlier.text("finish_reason") {
                    Some("verification_required" | "verify_hook_continue") => *earlier = message,
                    _ => absorb(earlier, message),
                }
            }
            _ => kept.push(message),
        }
    }
    kept
}

/// The provider needs such turns apart as they were.
fn is_continuation(message: &ConversationMessage) -> bool {
    message.is_truthy("codex_reasoning_items")
        || message.is_truthy("codex_message_items")
        || message.text("finish_reason") == Some("incomplete")
}

fn absorb(earlier: &mut ConversationMessage, mut later: ConversationMessage) {
    if later.is_truthy("tool_calls") {
        let joined = [&*earlier, &later].into_iter().flat_map(ConversationMessage::calls);
        let joined = joined.map(RawJson::as_str).collect::<Vec<_>>().join(", ");
        earlier.set("tool_calls", ConversationValue::Json(format!("[{joined}]")));
    }
    match (earlier.text("content"), later.text("content")) {
        (Some(first), Some(second)) => {
            let joined = [trim(first), trim(second)].into_iter().filter(|text| !text.is_empty());
            let joined = joined.collect::<Vec<_>>().join("\n");
            earlier.set("content", ConversationValue::Text(joined));
        }
        _ => {
            let content = later.take("content").filter(|content| *content != ConversationValue::Null);
            if let Some(content) = content
                && !earlier.is_truthy("content")
            {
                earlier.set("content", content);
            }
        }
    }
    if !earlier.is_truthy("reasoning_content")
        && later.is_truthy("reasoning_content")
        && let Some(reasoning) = later.take("reasoning_content")
    {
        earlier.set("reasoning_content", reasoning);
    }
}

/// Results of tools stay only where they answer a call of the turn they follow, once.
fn with_answers_only(mut messages: Vec<ConversationMessage>) -> Vec<ConversationMessage> {
    let mut open: HashSet<String> = HashSet::new();
    messages.retain(|message| {
        match message.role() {
            "assistant" => {
                let ids = |call: RawJson<'_>| ["id", "call_id"].map(|name| call.member(name).and_then(RawJson::string));
                open = message.calls().into_iter().flat_map(ids).flatten().filter(|id| !id.is_empty()).collect();
            }
            "user" => open.clear(),
            "tool" => return message.text("tool_call_id").is_some_and(|id| open.remove(id)),
            _ => {}
        }
        true
    });
    messages
}

fn with_users_merged(messages: Vec<ConversationMessage>) -> Vec<ConversationMessage> {
    let mut kept: Vec<ConversationMessage> = Vec::with_capacity(messages.len());
    for message in messages {
        if let Some(earlier) = kept.last_mut()
            && earlier.role() == "user"
            && message.role() == "user"
            && let (Some(first), Some(second)) = (earlier.text("content"), message.text("content"))
        {
            let joined = [first, second].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
            earlier.set("content", ConversationValue::Text(joined));
            earlier.take("api_content");
        } else {
            kept.push(message);
        }
    }
    kept
}
