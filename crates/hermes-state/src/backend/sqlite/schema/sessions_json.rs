//! Migration 18: where a session came from, which older releases kept in a file of their own.

use std::io;

use rusqlite::{Connection, params};
use serde::Serialize;
use serde_json::{Map, Value, ser::Formatter};

/// Fills what the sessions do not know yet. A text that is no JSON object tells nothing; the file was never the
/// database's to vouch for.
pub(super) fn import(conn: &Connection, text: &str) -> rusqlite::Result<()> {
    let Ok(entries) = serde_json::from_str::<Map<String, Value>>(text) else {
        return Ok(());
    };
    for (key, entry) in &entries {
        if let (false, Value::Object(entry)) = (key.starts_with('_'), entry) {
            import_entry(conn, key, entry)?;
        }
    }
    Ok(())
}

fn import_entry(conn: &Connection, key: &str, entry: &Map<String, Value>) -> rusqlite::Result<()> {
    let Some(session) = entry.get("session_id").filter(|id| is_truthy(id)).and_then(text) else {
        return Ok(());
    };
    let session_key = entry.get("session_key").filter(|key| is_truthy(key)).and_then(text);
    let origin = entry.get("origin").and_then(Value::as_object);
    let of_origin = |name| origin.and_then(|origin| origin.get(name)).and_then(text);
    let finalized = ["expiry_finalized", "memory_flushed"].iter().any(|flag| entry.get(*flag).is_some_and(is_truthy));
    let mut fill = conn.prepare_cached(
        "UPDATE sessions SET
             session_key = coalesce(session_key, ?2),
             chat_id = coalesce(chat_id, ?3),
             thread_id = coalesce(thread_id, ?4),
             chat_type = coalesce(chat_type, ?5),
             display_name = coalesce(display_name, ?6),
             origin_json = coalesce(origin_json, ?7),
             expiry_finalized = CASE WHEN ?8 AND coalesce(expiry_finalized, 0) = 0 THEN 1 ELSE expiry_finalized END
         WHERE id = ?1",
    )?;
    fill.execute(params![
        session,
        session_key.unwrap_or_else(|| key.to_owned()),
        of_origin("chat_id"),
        of_origin("thread_id"),
        entry.get("chat_type").and_then(text),
        entry.get("display_name").and_then(text),
        origin.map(dump),
        finalized,
    ])?;
    Ok(())
}

/// A scalar as a text column holds it.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(u8::from(*flag).to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Truth as Python sees it, whose programs wrote the file.
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// JSON in the spelling of Python's encoder, in which the programs beside us write this column.
fn dump(object: &Map<String, Value>) -> String {
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, PythonStyle);
    // Writing a value that was parsed into memory cannot fail; nothing written is an empty column at worst.
    object.serialize(&mut serializer).map(|()| String::from_utf8(out).unwrap_or_default()).unwrap_or_default()
}

struct PythonStyle;

impl Formatter for PythonStyle {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }

    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        for character in fragment.chars() {
            if matches!(character, ' '..='~') {
                write!(out, "{character}")?;
            } else {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}
