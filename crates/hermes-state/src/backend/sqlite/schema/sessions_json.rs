//! Migration 18: where a session came from, which older releases kept in a file of their own.

use std::io;

use rusqlite::{Connection, params};
use serde::Serialize;
use serde_json::{Map, Value, ser::Formatter};

/// Fills what the sessions do not know yet. A text that is no JSON object tells nothing, and neither does an entry with a
/// list or an object where a text belongs; the file was never the database's to vouch for.
pub(super) fn import(conn: &Connection, text: &str) -> rusqlite::Result<()> {
    let Ok(entries) = serde_json::from_str::<Map<String, Value>>(text) else {
        return Ok(());
    };
    for (key, entry) in &entries {
        if let (false, Value::Object(entry)) = (key.starts_with('_'), entry)
            && let Some(entry) = Entry::read(entry)
        {
            entry.import(conn, key)?;
        }
    }
    Ok(())
}

/// What an entry says.
struct Entry {
    session: String,
    session_key: Option<String>,
    chat_id: Option<String>,
    thread_id: Option<String>,
    chat_type: Option<String>,
    display_name: Option<String>,
    origin: Option<String>,
    finalized: bool,
}

impl Entry {
    /// `None` if it is about no session, or cannot be understood.
    fn read(entry: &Map<String, Value>) -> Option<Self> {
        let truthy = |name| entry.get(name).filter(|value| is_truthy(value)).map_or(Some(None), text);
        let origin = entry.get("origin").and_then(Value::as_object);
        let of_origin = |name| origin.and_then(|origin| origin.get(name)).map_or(Some(None), text);
        let of_entry = |name| entry.get(name).map_or(Some(None), text);
        let flags = ["expiry_finalized", "memory_flushed"];
        Some(Self {
            session: truthy("session_id")??,
            session_key: truthy("session_key")?,
            chat_id: of_origin("chat_id")?,
            thread_id: of_origin("thread_id")?,
            chat_type: of_entry("chat_type")?,
            display_name: of_entry("display_name")?,
            origin: origin.map(dump),
            finalized: flags.iter().any(|flag| entry.get(*flag).is_some_and(is_truthy)),
        })
    }

    fn import(&self, conn: &Connection, key: &str) -> rusqlite::Result<()> {
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
            self.session,
            self.session_key.as_deref().unwrap_or(key),
            self.chat_id,
            self.thread_id,
            self.chat_type,
            self.display_name,
            self.origin,
            self.finalized,
        ])?;
        Ok(())
    }
}

/// A scalar as a text column holds it; `None` for what is none.
fn text(value: &Value) -> Option<Option<String>> {
    match value {
        Value::Null => Some(None),
        Value::String(text) => Some(Some(text.clone())),
        Value::Number(number) => Some(Some(number.to_string())),
        Value::Bool(flag) => Some(Some(u8::from(*flag).to_string())),
        Value::Array(_) | Value::Object(_) => None,
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
