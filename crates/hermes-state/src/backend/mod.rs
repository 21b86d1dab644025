//! Backends: what a store runs on. Everything above speaks to one through the traits here.

pub(crate) mod location;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod sqlite;
pub(crate) mod store;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use uuid::Uuid;

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
    Migrate = 10,
}

impl Operation {
    const ALL: [Operation; 10] = [
        Operation::Open,
        Operation::Write,
        Operation::Transcript,
        Operation::Replay,
        Operation::Prune,
        Operation::Index,
        Operation::Checkpoint,
        Operation::Vacuum,
        Operation::Repair,
        Operation::Migrate,
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
            Operation::Migrate => "copying another store",
        }
    }

    /// The name of a number read from a slot; a newer release may have more of them than this one knows.
    pub(crate) fn name_of(number: u32) -> Option<&'static str> {
        Self::ALL.into_iter().find(|operation| *operation as u32 == number).map(Self::name)
    }
}

/// How to open a store.
#[derive(Clone, Default)]
pub(crate) struct Opening {
    pub(crate) read_only: bool,
    pub(crate) patience: Duration,
    pub(crate) rollback_journal: bool,
    /// The gateway's `sessions.json`, read only when a file is old enough to be completed from it.
    pub(crate) sessions_json: Option<PathBuf>,
    pub(crate) cjk: bool,
    /// The password for a server whose URL has none.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "only servers ask for one"))]
    pub(crate) password: Option<String>,
}

/// A write by its id, and how often the end of a transaction with it was not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) write: Uuid,
    pub(crate) number: usize,
    pub(crate) operation: Operation,
    /// When the patience of its caller ends.
    pub(crate) deadline: Instant,
    /// Whether an earlier transaction with it met somebody's lock.
    pub(crate) apart: bool,
}

/// A write that an earlier attempt has stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) write: Uuid,
    /// The number of the attempt.
    pub(crate) number: usize,
    /// The id of the row that it added, if it was noted.
    pub(crate) row: Option<i64>,
}

/// The write side of a backend as the gate drives it, on one thread.
pub(crate) trait WriteEngine: 'static {
    /// Whether each write of a group goes into a savepoint, so that one that fails fails alone. Without, they are sent
    /// together and fail together, and are then tried one by one.
    const SAVEPOINTS: bool;

    /// Begins a write transaction for `operation`, waiting for our turn and for the lock until about `until`; at least
    /// one attempt is made. `false`: the lock was not to be had in that time. Errors are never a matter of waiting.
    fn begin(&mut self, operation: Operation, until: Instant) -> Result<bool>;

    /// The transaction that was begun.
    fn transaction(&mut self) -> Box<dyn Transaction + '_>;

    /// Notes in the transaction which writes it stores, and says which of them an earlier transaction has stored
    /// already whose end was not seen. An engine that always sees the end of its transactions notes nothing.
    fn record(&mut self, writes: &[Attempt]) -> Result<Vec<Stored>>;

    /// Whether a write that adds one row gains from travelling together with its COMMIT.
    const COMMITS_AT_ONCE: bool = false;

    /// Begins the transaction of such a write, whose first attempt it is.
    fn begin_at_once(&mut self, _write: &Attempt) -> Result<()> {
        Ok(())
    }

    /// Has it noted with the id of its row, and the transaction committed as soon as all that was sent is done. Nothing
    /// is waited for.
    fn send_commit(&mut self, _write: &Attempt) -> Result<()> {
        Ok(())
    }

    /// Waits for the end of what [`send_commit`](WriteEngine::send_commit) has sent. An error before it is told here as
    /// well: only then [`is_unseen`](WriteEngine::is_unseen) says what may have become of the transaction.
    fn see_commit(&mut self, answered: Result<()>) -> Result<()> {
        answered
    }

    /// Whether none of the transactions whose end was not seen can be committed any more, as far as the last
    /// [`record`](WriteEngine::record) could tell.
    fn has_seen_the_end(&self) -> bool {
        true
    }

    /// Whether the transaction is still open: an engine may give it up by itself when a statement fails.
    fn in_transaction(&self) -> bool;

    /// Whether what ended the transaction passes and has nothing to do with its writes: a connection that broke, a
    /// conflict with another transaction. They are then tried again.
    fn is_passing(&self) -> bool;

    /// Whether it was somebody's lock on a part of the store, which others need not wait for.
    fn is_locked(&self) -> bool {
        false
    }

    /// After a commit that failed: whether the transaction may have been committed all the same.
    fn is_unseen(&self) -> bool {
        false
    }

    /// What an error of a write means that did not pass; may end the transaction.
    fn judge(&mut self, error: Error) -> Error {
        error
    }

    /// Whether two kinds of writes may be committed together.
    fn may_share(_: Operation, _: Operation) -> bool {
        true
    }

    /// Commits durably, and checks that what was committed is in the store that others see. `false`: readers were in
    /// the way until `until`; the transaction is still open.
    fn commit(&mut self, until: Instant) -> Result<bool>;

    /// Undoes the transaction; does nothing if there is none.
    fn rollback(&mut self);

    /// Hands the turn on to the next sibling.
    fn end(&mut self);

    /// Who holds the lock that `begin` did not get, if that can be seen.
    fn holder(&mut self) -> Option<Holder>;

    /// The error for a write whose patience is over; `perhaps_stored` if the end of a transaction that stored it was
    /// not seen.
    fn busy(&self, waited: Duration, holder: Option<Holder>, perhaps_stored: bool) -> Error;
}
