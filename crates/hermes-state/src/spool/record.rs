//! What a record of the spool holds: one write of a transcript, as JSON.

use serde_json::{Map, Value as Json, json};
use uuid::Uuid;

use super::ticket::Ticket;
use crate::content::Content;
use crate::message::{NewMessage, ToolCalls};
use crate::value::Value;

/// A spooled write.
#[derive(Debug, Clone, PartialEq)]
pub struct SpooledWrite {
    pub(crate) ticket: Ticket,
    pub(crate) session_id: Value,
    pub(crate) messages: Vec<NewMessage>,
    /// The id of the attempt that may have stored it all the same.
    pub(crate) attempt: Option<Uuid>,
    /// Why the store refused it, if it did.
    pub(crate) refused: Option<String>,
}

impl SpooledWrite {
    /// Its name.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// The session that it is for.
    #[must_use]
    pub fn session_id(&self) -> &Value {
        &self.session_id
    }

    /// The columns of the rows that it will be, in order.
    #[must_use]
    pub fn rows(&self) -> Vec<[(&'static str, Value); 17]> {
        self.messages.iter().map(NewMessage::columns).collect()
    }

    /// Whether it may have been stored before it was spooled, which its replay finds out.
    #[must_use]
    pub fn is_perhaps_stored(&self) -> bool {
        self.attempt.is_some()
    }

    /// Why the store refused it when it was replayed; such a write is kept aside and does not hold up others.
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    pub(super) fn to_json(&self) -> String {
        let messages: Vec<Json> = self.messages.iter().map(message_to_json).collect();
        let mut json = json!({ "session_id": value_to_json(&self.session_id), "messages": messages });
        if let Some(attempt) = self.attempt {
            json["attempt"] = attempt.to_string().into();
        }
        if let Some(refused) = &self.refused {
            json["refused"] = refused.as_str().into();
        }
        json.to_string()
    }

    pub(super) fn from_json(ticket: Ticket, text: &str) -> Option<Self> {
        let json: Json = serde_json::from_str(text).ok()?;
        let attempt = match json.get("attempt") {
            Some(id) => Some(id.as_str()?.parse().ok()?),
            None => None,
        };
        Some(Self {
            ticket,
            session_id: value_from_json(json.get("session_id")?)?,
            messages: json.get("messages")?.as_array()?.iter().map(message_from_json).collect::<Option<_>>()?,
            attempt,
            refused: json.get("refused").and_then(Json::as_str).map(str::to_owned),
        })
    }
}

/// Beside the columns: what they do not tell.
const CALLS: &str = "tool_call_count";
const KEY: &str = "client_key";

fn message_to_json(message: &NewMessage) -> Json {
    let columns = message.columns().into_iter().filter(|(_, value)| !value.is_null());
    let mut json: Map<_, _> = columns.map(|(name, value)| (name.to_owned(), value_to_json(&value))).collect();
    json.insert(CALLS.to_owned(), message.tool_calls.count().into());
    json.insert(KEY.to_owned(), value_to_json(&message.client_key));
    json.into()
}

fn message_from_json(json: &Json) -> Option<NewMessage> {
    let mut message = NewMessage::default();
    let mut calls = None;
    let mut count = 0;
    for (name, json) in json.as_object()? {
        let value = value_from_json(json)?;
        let column = match name.as_str() {
            "role" => &mut message.role,
            "tool_call_id" => &mut message.tool_call_id,
            "tool_name" => &mut message.tool_name,
            "effect_disposition" => &mut message.effect_disposition,
            "token_count" => &mut message.token_count,
            "finish_reason" => &mut message.finish_reason,
            "reasoning" => &mut message.reasoning,
            "reasoning_content" => &mut message.reasoning_content,
            "reasoning_details" => &mut message.reasoning_details,
            "codex_reasoning_items" => &mut message.codex_reasoning_items,
            "codex_message_items" => &mut message.codex_message_items,
            "platform_message_id" => &mut message.platform_message_id,
            "api_content" => &mut message.api_content,
            KEY => &mut message.client_key,
            "content" => {
                message.content = Content::decode(value);
                continue;
            }
            "tool_calls" => {
                calls = value.as_str().map(str::to_owned);
                continue;
            }
            CALLS => {
                count = value.as_i64()?;
                continue;
            }
            "timestamp" => {
                message.timestamp = Some(value.as_f64()?);
                continue;
            }
            "observed" => {
                message.observed = !value.is_falsy();
                continue;
            }
            // A newer release's: what it says would be lost.
            _ => return None,
        };
        *column = value;
    }
    message.tool_calls = ToolCalls::from_text(calls, count);
    Some(message)
}

/// Reals and bytes have no JSON that gives them back as they were.
fn value_to_json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Integer(number) => (*number).into(),
        Value::Text(text) => text.as_str().into(),
        Value::Real(number) => json!({ "real": format!("{:016x}", number.to_bits()) }),
        Value::Blob(bytes) => {
            json!({ "bytes": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() })
        }
    }
}

fn value_from_json(json: &Json) -> Option<Value> {
    Some(match json {
        Json::Null => Value::Null,
        Json::String(text) => Value::Text(text.clone()),
        Json::Number(number) => Value::Integer(number.as_i64()?),
        Json::Object(told) => match (told.get("real"), told.get("bytes")) {
            (Some(real), None) => Value::Real(f64::from_bits(u64::from_str_radix(real.as_str()?, 16).ok()?)),
            (None, Some(bytes)) => {
                let digits = bytes.as_str()?.as_bytes();
                let pairs = digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
                Value::Blob(pairs.collect::<Option<_>>()?)
            }
            _ => return None,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_comes_back_from_its_record_as_it_was() {
        let full = NewMessage::new("assistant", Content::Json("[1, NaN]".into()))
            .tool_name("t\0")
            .tool_calls(ToolCalls::from_text(Some("[{}, {}]".into()), 2))
            .tool_call_id(7)
            .token_count(0.1 + 0.2)
            .finish_reason("line\nbreak")
            .reasoning("")
            .reasoning_content(f64::NEG_INFINITY)
            .reasoning_details(vec![0_u8, 255, 16])
            .codex_reasoning_items("\u{1f600}")
            .codex_message_items(i64::MIN)
            .platform_message_id("p")
            .observed(true)
            .effect_disposition("e")
            .timestamp(1_700_000_000.123_456_7)
            .api_content("sent")
            .client_key("k");
        let contents = [Content::None, Content::Bytes(vec![1]), Content::Number(Value::Real(-0.5)), "".into()];
        let messages: Vec<_> =
            contents.into_iter().map(|content| NewMessage::new("user", content)).chain([full]).collect();
        let write = SpooledWrite {
            ticket: Ticket::next(None),
            session_id: "s".into(),
            messages,
            attempt: Some(Uuid::from_u128(7)),
            refused: Some("why".into()),
        };
        let text = write.to_json();
        assert!(!text.contains('\n'));
        assert_eq!(SpooledWrite::from_json(write.ticket, &text), Some(write));
    }
}
