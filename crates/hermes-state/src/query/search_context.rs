//! What was said right before and after a hit.

use crate::content::Content;
use crate::error::Result;
use crate::raw_json::RawJson;
use crate::search::hit::{ContextLine, SearchHit};
use crate::search::rows::Rows;
use crate::transaction::Transaction;
use crate::value::Value;

/// The length of a line, in characters.
const LINE: usize = 200;

/// Adds to each hit its neighbours, by the order of insertion whatever their clocks said. A hit whose neighbours cannot
/// be read stays without.
pub(super) fn add(transaction: &mut dyn Transaction, rows: &Rows<'_>, hits: &mut [SearchHit]) {
    for hit in hits {
        hit.context = around(transaction, rows, hit).unwrap_or_default();
    }
}

fn around(transaction: &mut dyn Transaction, rows: &Rows<'_>, hit: &SearchHit) -> Result<Vec<ContextLine>> {
    let before = neighbour(transaction, rows, hit, &Direction::BEFORE)?;
    let itself = line(transaction, "SELECT m.role, m.content FROM messages m WHERE m.id = ?1", &[hit.id.into()])?;
    let after = neighbour(transaction, rows, hit, &Direction::AFTER)?;
    Ok([before, itself, after].into_iter().flatten().collect())
}

struct Direction {
    beyond: &'static str,
    order: &'static str,
    sign: i64,
}

impl Direction {
    const BEFORE: Self = Self { beyond: "<", order: "DESC", sign: -1 };
    const AFTER: Self = Self { beyond: ">", order: "ASC", sign: 1 };
}

/// How far along all messages the next of a session is looked for before its own messages are gone through.
const NEAR: i64 = 100;

/// The nearest message of the hit's session.
///
/// No index has a session's messages in the order of their ids. Mostly the next one is among the next few of all
/// sessions; where it is not, asking the session's index costs time by the length of that session.
fn neighbour(
    transaction: &mut dyn Transaction,
    rows: &Rows<'_>,
    hit: &SearchHit,
    direction: &Direction,
) -> Result<Option<ContextLine>> {
    let visible = if rows.options.include_inactive { "1 = 1" } else { rows.columns.is_visible() };
    let Direction { beyond, order, sign } = direction;
    let (id, session) = (Value::from(hit.id), Value::from(&hit.session_id));
    let far = Value::from(hit.id.saturating_add(sign * NEAR));
    let select = "SELECT m.role, m.content FROM messages m WHERE";
    let nearest = format!("{visible} ORDER BY m.id {order} LIMIT 1");
    // The concatenation keeps this statement from the session's index.
    let nearby = format!("{select} m.id BETWEEN ?1 AND ?2 AND m.id <> ?3 AND m.session_id || '' = ?4 AND {nearest}");
    let (low, high) = if *sign < 0 { (far, id.clone()) } else { (id.clone(), far) };
    if let Some(line) = line(transaction, &nearby, &[low, high, id.clone(), session.clone()])? {
        return Ok(Some(line));
    }
    let anywhere = format!("{select} m.session_id = ?1 AND m.id {beyond} ?2 AND {nearest}");
    line(transaction, &anywhere, &[session, id])
}

fn line(transaction: &mut dyn Transaction, sql: &str, parameters: &[Value]) -> Result<Option<ContextLine>> {
    let Some(row) = transaction.first(sql, parameters)? else { return Ok(None) };
    let role = row.text("role").unwrap_or_default().to_owned();
    let content = text_of(Content::decode(row.get("content").cloned().unwrap_or_default()));
    Ok(Some(ContextLine { role, content: content.chars().take(LINE).collect() }))
}

/// The text of a message: of a list of parts, that of its text parts.
fn text_of(content: Content) -> String {
    match content {
        Content::Text(text) => text,
        Content::Json(text) => match RawJson::parse(&text) {
            Some(json) => match json.parts_text() {
                Some(text) if text.is_empty() => "[multimodal content]".to_owned(),
                Some(text) => text,
                None => json.string().unwrap_or_default(),
            },
            // What does not parse is given back as it is stored.
            None => format!("{}{text}", crate::content::JSON_PREFIX),
        },
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structured_content_shows_its_text() {
        for (json, text) in [
            (
                r#"[{"type": "text", "text": " a"}, {"type": "image", "text": "no"}, {"type": "text", "text": ""}, 5, {"type": "text", "text": "b\ud800 "}]"#,
                "a b\u{fffd}",
            ),
            ("[]", "[multimodal content]"),
            (r#"{"text": "object"}"#, ""),
            ("[NaN]", "[multimodal content]"),
            ("[", "\0json:["),
        ] {
            assert_eq!(text_of(Content::Json(json.to_owned())), text, "{json}");
        }
        assert_eq!(text_of(Content::Bytes(vec![65])), "");
    }
}
