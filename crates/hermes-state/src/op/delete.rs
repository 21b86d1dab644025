//! Deletes sessions: each with its messages, its usage and, on request, the sessions that it delegated.
//!
//! A session of more messages than may go in one step is cut: its newest messages go first, and its counters with them, so
//! that what is left is at any moment a conversation as it was earlier. Its row goes with the last of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Promise, Write};
use crate::backend::Operation;
use crate::error::Result;
use crate::message::stored_call_count;
use crate::query::delegates::Doomed;
use crate::query::lineage;
use crate::query::prune::{self, Reason};
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::{Record, Value};

/// How long a transaction goes on to take sessions: with what it takes last and the commit it holds up others for some
/// 30 ms.
const TURN: Duration = Duration::from_millis(12);

/// How many rows go between two looks at the clock, and how much text, which is what costs in the search indexes. A single
/// message that has more goes whole.
const ROWS: i64 = 16;
const BYTES: i64 = 64 << 10;

/// The most sessions that are looked at between two looks at the clock.
const SESSIONS: usize = 8;

/// What a message has in the search indexes, in bytes.
const TEXT: &str = "OCTET_LENGTH(COALESCE(m.content, '')) + OCTET_LENGTH(COALESCE(m.tool_calls, ''))";

/// Deletes sessions of a list, from one of them on.
pub(crate) struct DeleteSessions {
    pub(crate) list: Arc<[Doomed]>,
    pub(crate) from: usize,
    pub(crate) reason: Reason,
    pub(crate) cut: Cut,
}

/// How much one transaction takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// As much as can be done without anybody noticing, part of a session if need be: the store has one writer.
    Rows,
    /// The same, but no part of a session: only who works on that session waits for it.
    Sessions,
    /// All of the list.
    None,
}

/// What one transaction has done.
pub(crate) struct Deleted {
    /// Where in the list the next one begins.
    pub(crate) next: usize,
    /// The sessions that are gone.
    pub(crate) ids: Vec<String>,
    /// How many of them went on their own account.
    pub(crate) chosen: usize,
}

impl Write for DeleteSessions {
    type Answer = Deleted;
    const OPERATION: Operation = Operation::Prune;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<Deleted>> {
        let started = Instant::now();
        let mut deleted = Deleted { next: self.from, ids: Vec::new(), chosen: 0 };
        while deleted.next < self.list.len() {
            self.delete_some(transaction, &mut deleted)?;
            if self.cut != Cut::None && started.elapsed() >= TURN {
                break;
            }
        }
        Ok(Promise::Kept(deleted))
    }
}

impl DeleteSessions {
    fn delete_some(&self, transaction: &mut dyn Transaction, deleted: &mut Deleted) -> Result<()> {
        let rest = &self.list[deleted.next..];
        let some = &rest[..rest.len().min(SESSIONS)];
        let sizes = sizes(transaction, some)?;
        let still = self.still_meant(transaction, some)?;
        let (mut rows, mut bytes, mut ids) = (0, 0, Vec::new());
        for doomed in some {
            let size = sizes.iter().find(|session| session.text("id") == Some(&doomed.id));
            if let Some(size) = size.filter(|_| still.contains(&doomed.with)) {
                rows += size.integer("messages").unwrap_or_default();
                bytes += size.integer("bytes").unwrap_or_default();
                if rows > ROWS || bytes > BYTES {
                    if !ids.is_empty() {
                        break;
                    }
                    if self.cut == Cut::Rows && self.delete_newest(transaction, &doomed.id)? {
                        return Ok(());
                    }
                }
                ids.push(doomed.id.clone());
                deleted.chosen += usize::from(doomed.is_chosen());
            }
            deleted.next += 1;
        }
        if self.reason.takes_delegates() {
            self.add_new_delegates(transaction, &mut ids, &self.list[deleted.next..])?;
        }
        delete(transaction, &ids)?;
        if self.cut == Cut::Rows {
            forget_begun(transaction, &ids)?;
        }
        deleted.ids.append(&mut ids);
        Ok(())
    }

    /// Deletes the newest messages of a session. `false`, and nothing is done, if those are all that it has.
    fn delete_newest(&self, transaction: &mut dyn Transaction, id: &str) -> Result<bool> {
        let session = Value::from(id);
        let newest = transaction.records(
            &format!(
                "SELECT m.id, m.active, m.tool_calls, {TEXT} AS bytes FROM messages m WHERE m.session_id = ?1 \
                 ORDER BY m.id DESC LIMIT {}",
                ROWS + 1
            ),
            std::slice::from_ref(&session),
        )?;
        let (mut bytes, mut active, mut calls, mut from) = (0, 0, 0, None);
        let whole = newest.iter().take(ROWS.unsigned_abs() as usize).all(|message| {
            bytes += message.integer("bytes").unwrap_or_default();
            let fits = from.is_none() || bytes <= BYTES;
            if fits {
                from = message.integer("id");
                if message.integer("active") == Some(1) {
                    active += 1;
                    calls += message.text("tool_calls").map_or(0, stored_call_count);
                }
            }
            fits
        });
        let (Some(first), Some(last)) = (from, newest.first().and_then(|message| message.integer("id"))) else {
            return Ok(false);
        };
        if whole && newest.len() <= ROWS.unsigned_abs() as usize {
            return Ok(false);
        }
        if self.reason.needs_marks() {
            prune::mark_begun(transaction, id, last)?;
        }
        transaction
            .execute("DELETE FROM messages WHERE session_id = ?1 AND id >= ?2", &[session.clone(), first.into()])?;
        let fewer = |column: &str, by: &str| {
            format!("{column} = CASE WHEN COALESCE({column}, 0) > {by} THEN {column} - {by} ELSE 0 END")
        };
        transaction.execute(
            &format!(
                "UPDATE sessions SET {}, {} WHERE id = ?1",
                fewer("message_count", "?2"),
                fewer("tool_call_count", "?3")
            ),
            &[session, active.into(), calls.into()],
        )?;
        Ok(true)
    }

    /// Of the sessions on whose account some are to go, those that there still is the reason for.
    fn still_meant(&self, transaction: &mut dyn Transaction, some: &[Doomed]) -> Result<Vec<String>> {
        let mut accounts: Vec<&str> = some.iter().map(|doomed| doomed.with.as_str()).collect();
        accounts.dedup();
        let mut statement = Statement::default();
        let listed = statement.bind_all(accounts);
        let condition = self.reason.condition(&mut statement)?;
        statement.push(&format!("SELECT s.id FROM sessions s WHERE s.id IN ({listed}) AND {condition}"));
        texts(&transaction.records(&statement.sql, &statement.parameters)?)
    }

    /// Adds what was delegated after the list was made. Who is on the list later goes on its own account.
    fn add_new_delegates(
        &self,
        transaction: &mut dyn Transaction,
        ids: &mut Vec<String>,
        later: &[Doomed],
    ) -> Result<()> {
        let mut looked = 0;
        while looked < ids.len() {
            let mut statement = Statement::default();
            let parents = statement.bind_all(ids[looked..].iter());
            looked = ids.len();
            statement.push(&format!(
                "SELECT c.id FROM sessions c WHERE c.parent_session_id IN ({parents}) AND {}",
                lineage::is_delegate("c")
            ));
            for id in texts(&transaction.records(&statement.sql, &statement.parameters)?)? {
                if !ids.contains(&id) && !later.iter().any(|doomed| doomed.id == id) {
                    ids.push(id);
                }
            }
        }
        Ok(())
    }
}

fn texts(rows: &[Record]) -> Result<Vec<String>> {
    Ok(rows.iter().filter_map(|row| row.text("id").map(str::to_owned)).collect())
}

/// Those of some sessions that exist, with the number of their rows in any state and the bytes of text in them, as far as
/// these matter.
fn sizes(transaction: &mut dyn Transaction, some: &[Doomed]) -> Result<Vec<Record>> {
    let mut statement = Statement::default();
    let ids = statement.bind_all(some.iter().map(|doomed| &doomed.id));
    statement.push(&format!(
        "SELECT s.id, \
             1 + (SELECT COUNT(*) FROM (SELECT 1 FROM messages m WHERE m.session_id = s.id LIMIT {ROWS}) few) AS messages, \
             (SELECT CAST(COALESCE(SUM(few.bytes), 0) AS bigint) FROM \
                 (SELECT {TEXT} AS bytes FROM messages m WHERE m.session_id = s.id LIMIT {ROWS}) few) AS bytes \
         FROM sessions s WHERE s.id IN ({ids})"
    ));
    transaction.records(&statement.sql, &statement.parameters)
}

/// Deletes sessions with their messages, which the search indexes forget by themselves. Children that stay have no
/// parent any more.
fn delete(transaction: &mut dyn Transaction, ids: &[String]) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let mut statement = Statement::default();
    let listed = statement.bind_all(ids);
    for change in [
        format!("UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id IN ({listed})"),
        format!("DELETE FROM messages WHERE session_id IN ({listed})"),
        format!("DELETE FROM sessions WHERE id IN ({listed})"),
    ] {
        transaction.execute(&change, &statement.parameters)?;
    }
    Ok(())
}

/// The sessions are gone, and with them what was noted of those whose messages went first.
fn forget_begun(transaction: &mut dyn Transaction, ids: &[String]) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let mut statement = Statement::default();
    let keys = statement.bind_all(ids.iter().map(|id| prune::begun_key(id)));
    statement.push(&format!("DELETE FROM state_meta WHERE key IN ({keys})"));
    transaction.execute(&statement.sql, &statement.parameters).map(drop)
}
