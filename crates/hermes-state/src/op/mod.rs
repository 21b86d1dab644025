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

    /// Makes the change within a transaction that the gate commits.
    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Self::Answer>;
}
