//! Contents of messages: what is stored comes back, can be replayed, and survives export and import.

use hermes_state::{
    Content, ConversationOptions, ImportOptions, Message, MessageQuery, NewMessage, NewSession, SessionDb,
};

use super::{Check, JSON_WORDS, Target, between_two_stores, exported, without_ids};

pub(super) const TARGET: Target = Target {
    name: "content",
    seeds: &[
        "Where is the harbour?",
        "\0json:[{\"type\": \"text\", \"text\": \"look \\ud83d\\ude00\"}, {\"n\": NaN, \"big\": 12345678901234567890}]",
        "\0json:{\"a\": {\"b\": [1.5, -0, 1e-7, null, true, \"\\ud800\"]}}",
        "\0json:\"text\"",
        "\0json:{broken",
        "<memory-context>old</memory-context> new [System note: The following is recalled memory context,",
        "Review the conversation above and update the skill library",
        "",
    ],
    words: JSON_WORDS,
    begin,
};

fn begin() -> Box<Check> {
    between_two_stores(check)
}

fn check(db: &SessionDb, other: &SessionDb, id: &str, input: &str) -> hermes_state::Result<Result<bool, String>> {
    db.create_session(NewSession::new(id, "fuzz"))?;
    let messages = ["user", "assistant", "tool"].map(|role| NewMessage::new(role, input).timestamp(1.5));
    db.append_messages(id, messages.into())?;
    let rows = db.messages(id, &MessageQuery::default())?;
    if rows[0].record().text("content") != Some(input) {
        return Ok(Err("what was stored does not come back".to_owned()));
    }
    let structured = matches!(rows[0].content(), Content::Json(_));
    if structured != input.starts_with("\0json:") {
        return Ok(Err("text is taken for structured content, or the other way round".to_owned()));
    }
    for repair_alternation in [false, true] {
        let options =
            ConversationOptions { include_ancestors: true, repair_alternation, ..ConversationOptions::default() };
        for message in db.conversation(id, &options)? {
            let _ = message.to_json();
        }
    }
    let first = exported(db, id)?;
    if !first.is_ascii() || first.contains(|character: char| character.is_ascii_control()) {
        return Ok(Err(format!("an export is not one line of ASCII: {first:?}")));
    }
    let report = other.import_sessions([first.as_str()], &ImportOptions::default())?;
    if report.imported_ids != [id] {
        return Ok(Err(format!("an export is not taken in again: {report:?}\n{first}")));
    }
    let second = exported(other, id)?;
    // Text that begins like structured content, and goes on as a string or another scalar, decodes to text or a number,
    // which is what the import then stores.
    let scalar = matches!(rows[0].content(), Content::Json(body) if !body.trim_start().starts_with(['[', '{']));
    if !scalar && without_ids(&first) != without_ids(&second) {
        return Ok(Err(format!("an export does not come back:\n{first}\n{second}")));
    }
    let deep =
        structured && rows.iter().map(Message::content).any(|content| content.json().is_some_and(|json| json.is_ok()));
    Ok(Ok(deep))
}
