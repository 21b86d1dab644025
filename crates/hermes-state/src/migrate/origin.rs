//! Tells rows of a target that this migration brought from rows that somebody else has put there meanwhile.
//!
//! A target is empty when a migration begins, and nothing in a row says who wrote it. What is known: which keys of the
//! source this run has seen, and, across runs, that whoever else stores a message gets an id above those that the source
//! had when the migration began. Whatever is not proved by that to have come from the source is not removed.

use std::collections::HashSet;

use super::rows::{Row, identity, lookup};
use super::tables::{BINDINGS, LOCKS, MESSAGES, SESSIONS, Table, USAGE, tables};
use crate::error::Result;
use crate::transaction::Transaction;
use crate::value::Value;

/// What this run knows to be of the source.
pub(super) struct Origin {
    /// The highest id that a message of the source had had when the migration began, also if an earlier run began it.
    pub(super) begun: i64,
    /// Keys that the source had, by table; of messages only those above.
    seen: Vec<HashSet<Vec<u8>>>,
}

impl Origin {
    pub(super) fn new(begun: i64) -> Result<Self> {
        Ok(Self { begun, seen: vec![HashSet::new(); tables()?.len()] })
    }

    /// These rows are in the source.
    pub(super) fn see(&mut self, number: usize, table: &Table, rows: &[Row]) {
        let known = |row: &&Row| number == MESSAGES && row[0].as_i64().is_some_and(|id| id <= self.begun);
        let keys = rows.iter().filter(|row| !known(row)).map(|row| identity(&table.key_of(row)));
        self.seen[number].extend(keys);
    }

    /// The first of these keys that may be of a row of somebody else's. `proven` are the removed ones that [`proved`]
    /// names.
    pub(super) fn stranger<'a>(
        &self,
        number: usize,
        keys: &'a [Vec<Value>],
        proven: &HashSet<Vec<u8>>,
    ) -> Option<&'a Vec<Value>> {
        keys.iter().find(|key| {
            let ours = match number {
                // They guard work in progress, run out by themselves, and hold nothing that anybody has said.
                LOCKS => true,
                MESSAGES if key[0].as_i64().is_some_and(|id| id <= self.begun) => true,
                // Usage goes with its session and not otherwise.
                SESSIONS | USAGE => proven.contains(&identity(&key[..1])),
                BINDINGS => proven.contains(&identity(key)),
                _ => false,
            };
            !ours && !self.seen[number].contains(&identity(key))
        })
    }
}

/// Which of these sessions of the target have messages that the source had when the migration began: they came with those;
/// and which of these bindings of topics are to such a session, and go with it.
pub(super) fn proved(
    transaction: &mut dyn Transaction,
    begun: i64,
    sessions: &[Vec<Value>],
    bindings: &[Vec<Value>],
) -> Result<HashSet<Vec<u8>>> {
    let mut proved = HashSet::new();
    let sql = "SELECT MIN(id) FROM messages WHERE session_id = ?1";
    for key in sessions {
        if transaction.scalar(sql, key)?.as_i64().is_some_and(|id| id <= begun) {
            proved.insert(identity(key));
        }
    }
    let mut bound = Vec::new();
    lookup(transaction, &tables()?[BINDINGS], "session_id", bindings, &mut |key, session| {
        bound.push((key, identity(&session)));
        Ok(())
    })?;
    bound.retain(|(_, session)| proved.contains(session));
    proved.extend(bound.into_iter().map(|(key, _)| key));
    Ok(proved)
}
