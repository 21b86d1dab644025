//! Storing spooled writes, each exactly once.

use std::sync::Arc;

use super::message::AppendMessages;
use super::{Promise, Write};
use crate::backend::Operation;
use crate::clock;
use crate::error::Result;
use crate::spool::SpooledWrite;
use crate::transaction::Transaction;
use crate::value::Value;

/// Stores spooled writes in this order, all or none.
pub(crate) struct StoreSpooled {
    writes: Vec<Arc<SpooledWrite>>,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Stored,
    /// An earlier replay, or the attempt before it was spooled, has stored it.
    WasStored,
}

impl StoreSpooled {
    pub(crate) fn new(writes: Vec<Arc<SpooledWrite>>) -> Self {
        Self { writes }
    }
}

impl Write for StoreSpooled {
    type Answer = Vec<Fate>;
    const OPERATION: Operation = Operation::Replay;

    fn subject(&self) -> Option<&str> {
        match &self.writes[..] {
            [write] => write.session_id.as_str(),
            _ => None,
        }
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<Vec<Fate>>> {
        transaction.make_spool_notes()?;
        self.writes.iter().map(|write| store(transaction, write)).collect::<Result<_>>().map(Promise::Kept)
    }
}

fn store(transaction: &mut dyn Transaction, write: &SpooledWrite) -> Result<Fate> {
    let note = "INSERT INTO hermes_state_spooled (ticket, stored_at) VALUES (?1, ?2) ON CONFLICT (ticket) DO NOTHING";
    if transaction.execute(note, &[write.ticket.to_string().into(), clock::now().into()])? == 0 {
        return Ok(Fate::WasStored);
    }
    if let Some(attempt) = write.attempt
        && (transaction.was_stored(attempt)? || is_there(transaction, write)?)
    {
        return Ok(Fate::WasStored);
    }
    if !write.session_id.is_null() {
        let started = write.messages.first().and_then(|message| message.timestamp);
        transaction.execute(
            "INSERT INTO sessions (id, source, started_at) VALUES (?1, 'unknown', ?2) ON CONFLICT (id) DO NOTHING",
            &[write.session_id.clone(), started.unwrap_or_else(clock::now).into()],
        )?;
    }
    let append = AppendMessages::new(write.session_id.clone(), write.messages.clone())?;
    append.apply(transaction)?.fulfil(transaction)?;
    Ok(Fate::Stored)
}

/// Whether all its messages are in the session: their times, fixed when they were said, tell them from others.
fn is_there(transaction: &mut dyn Transaction, write: &SpooledWrite) -> Result<bool> {
    for message in &write.messages {
        let found = transaction.scalar(
            "SELECT id FROM messages WHERE session_id = ?1 AND timestamp = ?2 AND role = ?3 AND content IS NOT DISTINCT FROM ?4 \
             ORDER BY id LIMIT 1",
            &[
                write.session_id.clone(),
                Value::from(message.timestamp),
                message.role.clone(),
                message.content.encode(),
            ],
        )?;
        if found.is_null() {
            return Ok(false);
        }
    }
    Ok(!write.messages.is_empty())
}
