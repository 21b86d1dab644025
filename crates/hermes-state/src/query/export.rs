//! Reads of sessions that leave the store whole: which there are, what belongs to each, and its messages in pages.

use super::lineage;
use crate::columns::MessageColumns;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::session::Session;
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::{Record, Value};

/// At most so many sessions are exported at once.
const MOST_SESSIONS: i64 = 100_000;

/// How much a page holds, the message that fills it up included.
const PAGE_BYTES: usize = 1 << 20;

/// How many messages a page may have: few sizes, so that the statements for them stay prepared.
const PAGE_ROWS: [usize; 4] = [MOST_ROWS, 64, 8, 1];
pub(crate) const MOST_ROWS: usize = 256;

/// A session's row and the ids of its active messages in order; `None` if there is no such session.
pub(crate) fn session(transaction: &mut dyn Transaction, id: &Value) -> Result<Option<(Session, Vec<i64>)>> {
    let Some(session) = super::session::get(transaction, id)? else { return Ok(None) };
    let state = MessageColumns::read(transaction)?.is_active();
    let mut ids = Vec::new();
    transaction.query(
        &format!("SELECT m.id FROM messages m WHERE m.session_id = ?1 AND {state} ORDER BY m.id"),
        std::slice::from_ref(id),
        &mut |row| {
            ids.extend(row.first().and_then(Value::as_i64));
            Ok(())
        },
    )?;
    Ok(Some((session, ids)))
}

/// The ids of all sessions, or of those from a source, the latest active first, each with when that was.
pub(crate) fn all(transaction: &mut dyn Transaction, source: Option<&str>) -> Result<Vec<(Value, Value)>> {
    let mut statement = Statement::default();
    let last_active = lineage::last_active("s");
    statement.push(&format!("SELECT s.id, {last_active} AS last_active FROM sessions s"));
    if let Some(source) = source {
        let source = statement.bind(source);
        statement.push(&format!(" WHERE s.source = {source}"));
    }
    statement.push(" ORDER BY last_active DESC, s.started_at DESC, s.id DESC");
    statement.push_page(MOST_SESSIONS, 0);
    let mut sessions = Vec::new();
    transaction.query(&statement.sql, &statement.parameters, &mut |row| {
        let mut row = row.into_iter();
        sessions.push((row.next().unwrap_or_default(), row.next().unwrap_or_default()));
        Ok(())
    })?;
    Ok(sessions)
}

/// The first of these messages, as many as make a page, and how many of the ids that covers: a message that went away
/// meanwhile is passed over. `expected` is how many bytes one probably has.
pub(crate) fn page(transaction: &mut dyn Transaction, ids: &[i64], expected: usize) -> Result<(Vec<Message>, usize)> {
    let wanted = (PAGE_BYTES / expected.max(1)).min(ids.len());
    let rows = PAGE_ROWS.into_iter().find(|rows| *rows <= wanted).unwrap_or(1).min(ids.len());
    let ids = &ids[..rows];
    let state = MessageColumns::read(transaction)?.is_active();
    let mut statement = Statement::default();
    let among = statement.bind_all(ids.iter().copied());
    statement.push(&format!("SELECT m.* FROM messages m WHERE m.id IN ({among}) AND {state} ORDER BY m.id"));
    let (mut values, mut bytes, mut full) = (Vec::new(), 0, false);
    let read = transaction.query(&statement.sql, &statement.parameters, &mut |row| {
        if bytes >= PAGE_BYTES {
            // The only way to have the engine stop; what it has left is read again with the next page.
            full = true;
            return Err(Error::Invalid("the page is full".into()));
        }
        bytes += row.iter().map(Value::size).sum::<usize>();
        values.push(row);
        Ok(())
    });
    let columns = match read {
        Err(_) if full => transaction.query("SELECT m.* FROM messages m LIMIT 0", &[], &mut |_| Ok(()))?,
        read => read?,
    };
    let messages = Message::all(values.into_iter().map(|row| Record::new(columns.clone(), row)).collect());
    let covered = match messages.last() {
        Some(last) if full => ids.partition_point(|id| *id <= last.id()),
        _ => ids.len(),
    };
    Ok((messages, covered))
}
