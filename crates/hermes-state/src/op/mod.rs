//! Writes as values: what to change, complete and checked before any lock is taken.

pub(crate) mod message;
pub(crate) mod meta;
pub(crate) mod session;

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
