//! Exports as JSON text, in pieces: what Python's `json.dumps` makes of the exports of the Python face.

use std::iter::once;

use super::{LineageExport, SessionExport};
use crate::content::Content;
use crate::error::Result;
use crate::json::{normal_form, write_double, write_string};
use crate::message::Message;
use crate::raw_json::RawJson;
use crate::session::Session;
use crate::value::Value;

impl<'db> SessionExport<'db> {
    /// The export as one JSON object on one line, in pieces to be written one after the other: the columns of the
    /// session, and `messages`, each with its columns. Contents and calls stand in it as JSON, everything else as it is
    /// stored. Bytes, which JSON does not have, become text with U+FFFD, and a warning says so.
    pub fn into_json(self) -> impl Iterator<Item = Result<String>> + 'db {
        let head = beginning(&self.session);
        once(Ok(head)).chain(listed(self)).chain(once(Ok("]}".to_owned())))
    }
}

impl<'db> LineageExport<'db> {
    /// The export as one JSON object on one line, in pieces to be written one after the other: the columns of the last
    /// session, `messages` of all sessions, `segments`, the exports of the sessions, and `lineage_session_ids`.
    pub fn into_json(self) -> impl Iterator<Item = Result<String>> + 'db {
        let head = beginning(&self.session);
        let ids: Vec<String> = self.segments.iter().map(|segment| text(segment.session.id())).collect();
        let tail = format!("], \"lineage_session_ids\": [{}]}}", ids.join(", "));
        let messages = listed(self.segments.clone().into_iter().flatten());
        let segments = self.segments.into_iter().enumerate().flat_map(|(number, segment)| {
            let separator = (number > 0).then(|| Ok(", ".to_owned()));
            separator.into_iter().chain(segment.into_json())
        });
        once(Ok(head))
            .chain(messages)
            .chain(once(Ok("], \"segments\": [".to_owned())))
            .chain(segments)
            .chain(once(Ok(tail)))
    }
}

/// The messages as elements of a list.
fn listed(messages: impl Iterator<Item = Result<Message>>) -> impl Iterator<Item = Result<String>> {
    messages.enumerate().map(|(number, message)| {
        let message = message?;
        Ok(if number > 0 { format!(", {}", object(&message)) } else { object(&message) })
    })
}

/// The session's object up to its first message.
fn beginning(session: &Session) -> String {
    let mut json = String::from("{");
    for (column, value) in session.record().iter() {
        write_string(&mut json, column);
        json.push_str(": ");
        write_scalar(&mut json, value);
        json.push_str(", ");
    }
    json.push_str("\"messages\": [");
    json
}

fn object(message: &Message) -> String {
    let mut json = String::from("{");
    for (column, value) in message.record().iter() {
        if json.len() > 1 {
            json.push_str(", ");
        }
        write_string(&mut json, column);
        json.push_str(": ");
        match (column, value) {
            ("content", value) => write_content(&mut json, message, value),
            ("tool_calls", Value::Text(calls)) if !calls.is_empty() => {
                json.push_str(&RawJson::parse(calls).map_or_else(|| "[]".to_owned(), normal_form));
            }
            (_, value) => write_scalar(&mut json, value),
        }
    }
    json.push('}');
    json
}

fn write_content(json: &mut String, message: &Message, value: &Value) {
    match Content::decode(value.clone()) {
        Content::Json(text) => match RawJson::parse(&text) {
            Some(parsed) => json.push_str(&normal_form(parsed)),
            None => write_scalar(json, value),
        },
        Content::Bytes(_) => {
            let (id, session) = (message.id(), message.session_id());
            tracing::warn!(id, session, "the content of a message is bytes, which become text in an export");
            write_scalar(json, value);
        }
        _ => write_scalar(json, value),
    }
}

fn write_scalar(json: &mut String, value: &Value) {
    match value {
        Value::Null => json.push_str("null"),
        Value::Integer(number) => json.push_str(&number.to_string()),
        Value::Real(number) => write_double(json, *number),
        Value::Text(text) => write_string(json, text),
        Value::Blob(bytes) => write_string(json, &String::from_utf8_lossy(bytes)),
    }
}

fn text(text: &str) -> String {
    let mut json = String::new();
    write_string(&mut json, text);
    json
}
