//! Writes as values: what to change, complete and checked before any lock is taken.

pub(crate) mod archive;
mod client_key;
pub(crate) mod compaction;
pub(crate) mod compression;
pub(crate) mod delete;
pub(crate) mod detail;
pub(crate) mod finalize;
pub(crate) mod gateway;
pub(crate) mod handoff;
pub(crate) mod import;
pub(crate) mod index;
pub(crate) mod lease;
pub(crate) mod message;
pub(crate) mod meta;
pub(crate) mod rewind;
pub(crate) mod session;
pub(crate) mod spooled;
pub(crate) mod title;
pub(crate) mod topic;
pub(crate) mod usage;

use crate::backend::Operation;
use crate::error::Result;
use crate::transaction::Transaction;

/// A write. It may be applied several times (a lock lost, a group that failed), always in a fresh transaction, and so
/// changes nothing but the store.
pub(crate) trait Write: Send + 'static {
    /// What the caller gets when the write is stored.
    type Answer: Send + 'static;

    /// What siblings see us doing.
    const OPERATION: Operation = Operation::Write;

    /// What the change locks first, where there are locks on parts of a store: writes that share a transaction are
    /// applied in this order, so that two such transactions never wait for each other.
    fn subject(&self) -> Option<&str> {
        None
    }

    /// The answer of a write that adds one row, by the id that the row got; `None` for other writes. With such an answer to
    /// be found later, a write may travel together with its COMMIT.
    fn answer_of_row(&self, _id: i64) -> Option<Self::Answer> {
        None
    }

    /// Makes the change within a transaction that the gate commits.
    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<Self::Answer>>;
}

/// Reads the answer out of what was sent.
type Reading<A> = Box<dyn FnOnce(&mut dyn Transaction) -> Result<A> + Send>;

/// The answer of a write that was applied.
pub(crate) enum Promise<A> {
    /// It is known.
    Kept(A),
    /// It is among the rows of statements that were sent; meanwhile other writes may be sent too.
    Later(Reading<A>),
}

impl<A> Promise<A> {
    /// Waits for the answer.
    pub(crate) fn fulfil(self, transaction: &mut dyn Transaction) -> Result<A> {
        match self {
            Promise::Kept(answer) => Ok(answer),
            Promise::Later(read) => read(transaction),
        }
    }
}
