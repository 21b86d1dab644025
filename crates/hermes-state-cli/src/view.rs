//! Sessions and messages as the JSON documents show them; docs/command.md lists the fields.

use hermes_state::{Content, Message, Session, Value};
use serde_json::{Value as Json, json};

use crate::times;

/// A session, as `list` and `show` print it.
pub(crate) fn session(session: &Session) -> Json {
    let record = session.record();
    json!({
        "id": session.id(),
        "source": session.source(),
        "title": session.title(),
        "model": session.model(),
        "parent_session_id": session.parent_session_id(),
        "cwd": record.text("cwd"),
        "started_at": times::rfc3339(session.started_at()),
        "ended_at": session.ended_at().and_then(times::rfc3339),
        "end_reason": session.end_reason(),
        "last_active": session.last_active().and_then(times::rfc3339),
        "message_count": session.message_count(),
        "archived": record.integer("archived").unwrap_or_default() != 0,
        "preview": session.preview(),
    })
}

/// A message, as `show` prints it.
pub(crate) fn message(message: &Message) -> Json {
    let record = message.record();
    json!({
        "id": message.id(),
        "role": message.role(),
        "timestamp": times::rfc3339(message.timestamp()),
        "content": content(&message.content()),
        "tool_calls": tool_calls(message),
        "tool_call_id": record.get("tool_call_id").map(scalar),
        "tool_name": message.tool_name(),
        "token_count": record.get("token_count").map(scalar),
        "finish_reason": record.text("finish_reason"),
        "reasoning": record.text("reasoning"),
        "active": record.integer("active").unwrap_or(1) != 0,
    })
}

/// The calls of a message; the stored text where Rust's JSON cannot hold them.
pub(crate) fn tool_calls(message: &Message) -> Json {
    match message.tool_calls() {
        None => Json::Null,
        Some(Ok(calls)) => calls,
        Some(Err(_)) => message.record().text("tool_calls").into(),
    }
}

/// The body of a message; the stored text where Rust's JSON cannot hold it.
pub(crate) fn content(content: &Content) -> Json {
    match content {
        Content::Text(text) => text.as_str().into(),
        Content::Json(text) => serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into()),
        Content::Bytes(bytes) => String::from_utf8_lossy(bytes).into(),
        Content::Number(number) => scalar(number),
        _ => Json::Null,
    }
}

/// A column's value.
pub(crate) fn scalar(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Integer(number) => (*number).into(),
        Value::Real(number) => (*number).into(),
        Value::Text(text) => text.as_str().into(),
        Value::Blob(bytes) => String::from_utf8_lossy(bytes).into(),
    }
}
