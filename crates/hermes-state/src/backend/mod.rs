//! Backends: what a store runs on. Everything above speaks to one through the traits here.

#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod sqlite;

use std::time::{Duration, Instant};

use crate::error::{Error, Holder, Result};
use crate::transaction::Transaction;

/// What a process does while it holds the write lock.
///
/// The numbers stand in memory shared with other releases: never give one a new meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Operation {
    Open = 1,
    Write = 2,
    Transcript = 3,
    Replay = 4,
    Prune = 5,
    Index = 6,
    Checkpoint = 7,
    Vacuum = 8,
    Repair = 9,
}

impl Operation {
    const ALL: [Operation; 9] = [
        Operation::Open,
        Operation::Write,
        Operation::Transcript,
        Operation::Replay,
        Operation::Prune,
        Operation::Index,
        Operation::Checkpoint,
        Operation::Vacuum,
        Operation::Repair,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Open => "opening the store",
            Operation::Write => "writing",
            Operation::Transcript => "writing a transcript",
            Operation::Replay => "storing spooled writes",
            Operation::Prune => "pruning old sessions",
            Operation::Index => "working on the search index",
            Operation::Checkpoint => "moving the log into the store",
            Operation::Vacuum => "vacuuming",
            Operation::Repair => "repairing",
        }
    }

    /// The name of a number read from a slot; a newer release may have more of them than this one knows.
    pub(crate) fn name_of(number: u32) -> Option<&'static str> {
        Self::ALL.into_iter().find(|operation| *operation as u32 == number).map(Self::name)
    }
}

/// The write side of a backend as the gate drives it, on one thread.
pub(crate) trait WriteEngine: 'static {
    /// Begins a write transaction for `operation`, waiting for our turn and for the lock until about `until`; at least
    /// one attempt is made. `false`: the lock was not to be had in that time. Errors are never a matter of waiting.
    fn begin(&mut self, operation: Operation, until: Instant) -> Result<bool>;

    /// The transaction that was begun.
    fn transaction(&mut self) -> &mut dyn Transaction;

    /// Whether the transaction is still open: an engine may give it up by itself when a statement fails.
    fn in_transaction(&self) -> bool;

    /// Commits durably, and checks that what was committed is in the store that others see. `false`: readers were in
    /// the way until `until`; the transaction is still open.
    fn commit(&mut self, until: Instant) -> Result<bool>;

    /// Undoes the transaction; does nothing if there is none.
    fn rollback(&mut self);

    /// Hands the turn on to the next sibling.
    fn end(&mut self);

    /// Who holds the lock that `begin` did not get, if that can be seen.
    fn holder(&mut self) -> Option<Holder>;

    /// The error for a write whose patience is over.
    fn busy(&self, waited: Duration, holder: Option<Holder>) -> Error;
}
