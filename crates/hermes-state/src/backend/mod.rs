//! Backends: what a store runs on. Everything above speaks to one through the traits here.

pub(crate) mod sqlite;

use std::time::{Duration, Instant};

use crate::error::{Error, Holder, Result};
use crate::transaction::Transaction;

/// The write side of a backend as the gate drives it, on one thread.
pub(crate) trait WriteEngine: 'static {
    /// Begins a write transaction for `operation`, waiting for our turn and for the lock until about `until`; at least
    /// one attempt is made. `false`: the lock was not to be had in that time. Errors are never a matter of waiting.
    fn begin(&mut self, operation: &'static str, until: Instant) -> Result<bool>;

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
