//! Archiving: a conversation is put away, or taken out again, with all it was compressed from and into.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Promise, Write};
use crate::error::Result;
use crate::query::lineage;
use crate::transaction::Transaction;
use crate::value::Value;

/// Archives a session's conversation, or takes it out again.
pub(crate) struct SetArchived {
    pub(crate) id: Value,
    pub(crate) archived: bool,
}

impl Write for SetArchived {
    type Answer = bool;

    fn subject(&self) -> Option<&str> {
        self.id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<bool>> {
        Ok(Promise::Kept(set_archived(transaction, &self.id, self.archived)? > 0))
    }
}

/// How long a transaction goes on to take conversations.
const TURN: Duration = Duration::from_millis(20);

/// Archives the conversations of sessions on a list, from one of them on; answers where the next transaction begins.
pub(crate) struct ArchiveLineages {
    pub(crate) list: Arc<[String]>,
    pub(crate) from: usize,
}

impl Write for ArchiveLineages {
    type Answer = usize;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<usize>> {
        let started = Instant::now();
        let mut next = self.from;
        while let Some(id) = self.list.get(next) {
            set_archived(transaction, &id.into(), true)?;
            next += 1;
            if started.elapsed() >= TURN {
                break;
            }
        }
        Ok(Promise::Kept(next))
    }
}

/// Sets the flag on a session, on what it continues and on what continues it; returns how many sessions that are.
/// Children that are marked as branches or delegates are conversations of their own. `UNION` drops what was reached
/// before, which is what ends a circle.
fn set_archived(transaction: &mut dyn Transaction, id: &Value, archived: bool) -> Result<usize> {
    let sql = format!(
        "WITH RECURSIVE earlier (id) AS ( \
             SELECT s.id FROM sessions s WHERE s.id = ?1 \
             UNION \
             SELECT p.id FROM earlier e JOIN sessions c ON c.id = e.id JOIN sessions p ON p.id = c.parent_session_id \
                 WHERE p.end_reason = 'compression' AND NOT {marked}), \
         later (id) AS ( \
             SELECT s.id FROM sessions s WHERE s.id = ?1 \
             UNION \
             SELECT c.id FROM later l JOIN sessions p ON p.id = l.id AND p.end_reason = 'compression' \
                 JOIN sessions c ON c.parent_session_id = p.id WHERE NOT {marked}) \
         UPDATE sessions SET archived = ?2 WHERE id IN (SELECT id FROM earlier UNION SELECT id FROM later)",
        marked = lineage::is_marked("c")
    );
    transaction.execute(&sql, &[id.clone(), archived.into()])
}
