//! What was said right before and after a hit.

use std::collections::HashMap;

use crate::content::Content;
use crate::error::Result;
use crate::raw_json::RawJson;
use crate::search::hit::{ContextLine, SearchHit};
use crate::search::rows::Rows;
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::Value;

/// The length of a line, in characters.
const LINE: usize = 200;

/// How many hits are asked about together: a page as most people want it.
const TOGETHER: usize = 20;

/// How far along all messages the next of a session is looked for before its own messages are gone through.
const NEAR: i64 = 100;

/// Adds to each hit its neighbours, by the order of insertion whatever their clocks said. A hit whose neighbours cannot
/// be read stays without.
pub(super) fn add(transaction: &mut dyn Transaction, rows: &Rows<'_>, hits: &mut [SearchHit]) {
    for hits in hits.chunks_mut(TOGETHER) {
        let ids: Vec<i64> = hits.iter().map(|hit| hit.id).collect();
        let mut found = around(transaction, rows, &ids).unwrap_or_else(|_| {
            // What cannot be read is near one of them.
            ids.iter().flat_map(|id| around(transaction, rows, &[*id]).unwrap_or_default()).collect()
        });
        for hit in hits {
            hit.context = found.remove(&hit.id).unwrap_or_default();
        }
    }
}

/// Each of these messages with its neighbours, as far as it has some.
fn around(transaction: &mut dyn Transaction, rows: &Rows<'_>, ids: &[i64]) -> Result<HashMap<i64, Vec<ContextLine>>> {
    let mut statement = Statement::default();
    let list = statement.bind_all(padded(ids, TOGETHER));
    let (before, after) = (nearest(rows, "<"), nearest(rows, ">"));
    statement.push(&format!("SELECT h.id, {before}, {after} FROM messages h WHERE h.id IN ({list})"));
    let mut places = Vec::new();
    transaction.query(&statement.sql, &statement.parameters, &mut |row| {
        places.push(row.iter().map(Value::as_i64).collect::<Vec<_>>());
        Ok(())
    })?;

    let mut statement = Statement::default();
    let wanted: Vec<i64> = places.iter().flatten().copied().flatten().collect();
    let list = statement.bind_all(padded(&wanted, 3 * TOGETHER));
    statement.push(&format!("SELECT m.id, m.role, m.content FROM messages m WHERE m.id IN ({list})"));
    let mut lines: HashMap<i64, ContextLine> = HashMap::new();
    transaction.query(&statement.sql, &statement.parameters, &mut |row| {
        lines.extend(line(row));
        Ok(())
    })?;

    let context = |place: Vec<Option<i64>>| {
        let [id, before, after] = place[..] else { return None };
        let around = [before, id, after].into_iter().flatten();
        Some((id?, around.filter_map(|id| lines.get(&id).cloned()).collect()))
    };
    Ok(places.into_iter().filter_map(context).collect())
}

/// As many ids as always, so that a few statements stay prepared: the last of them again and again.
fn padded(ids: &[i64], count: usize) -> Vec<i64> {
    let last = ids.last().copied().unwrap_or_default();
    ids.iter().copied().chain(std::iter::repeat(last)).take(count).collect()
}

/// The id of the message next to `h` in its session.
///
/// No index of a file has a session's messages in the order of their ids. Mostly the next one is among the next few of
/// all sessions; where it is not, asking the session's index costs time by the length of that session.
fn nearest(rows: &Rows<'_>, beyond: &str) -> String {
    let visible = if rows.options.include_inactive { "1 = 1" } else { rows.columns.is_visible() };
    let (range, order) = match beyond {
        "<" => (format!("h.id - {NEAR} AND h.id - 1"), "DESC"),
        _ => (format!("h.id + 1 AND h.id + {NEAR}"), "ASC"),
    };
    let select = "SELECT m.id FROM messages m WHERE";
    let first = format!("{visible} ORDER BY m.id {order} LIMIT 1");
    // The concatenation keeps the first of them from the session's index.
    format!(
        "COALESCE(({select} m.id BETWEEN {range} AND m.session_id || '' = h.session_id AND {first}), \
         ({select} m.session_id = h.session_id AND m.id {beyond} h.id AND {first}))"
    )
}

/// The line of a row of id, role and content.
fn line(row: Vec<Value>) -> Option<(i64, ContextLine)> {
    let mut values = row.into_iter();
    let id = values.next()?.as_i64()?;
    let role = values.next()?.as_str().unwrap_or_default().to_owned();
    let content = text_of(Content::decode(values.next()?));
    Some((id, ContextLine { role, content: content.chars().take(LINE).collect() }))
}

/// The text of a message: of a list of parts, that of its text parts.
pub(super) fn text_of(content: Content) -> String {
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
