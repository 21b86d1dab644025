//! Writes of the state that compressing a conversation keeps: who is at it, and how it went before.

use super::{Promise, Write};
use crate::error::Result;
use crate::transaction::Transaction;
use crate::value::Value;

/// Gives a live lease a new term.
pub(crate) struct RefreshLock {
    pub(crate) session_id: Value,
    pub(crate) holder: String,
    /// Read before the write waited for others: a lease never begins later than its holder thinks.
    pub(crate) now: f64,
    pub(crate) ttl: f64,
}

impl Write for RefreshLock {
    type Answer = bool;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<bool>> {
        let changed = transaction.execute(
            "UPDATE compression_locks SET expires_at = ?4 WHERE session_id = ?1 AND holder = ?2 AND expires_at >= ?3",
            &[self.session_id.clone(), self.holder.as_str().into(), self.now.into(), (self.now + self.ttl).into()],
        )?;
        Ok(Promise::Kept(changed > 0))
    }
}

/// Ends a lease of this holder.
pub(crate) struct ReleaseLock {
    pub(crate) session_id: Value,
    pub(crate) holder: String,
}

impl Write for ReleaseLock {
    type Answer = ();

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        transaction.execute(
            "DELETE FROM compression_locks WHERE session_id = ?1 AND holder = ?2",
            &[self.session_id.clone(), self.holder.as_str().into()],
        )?;
        Ok(Promise::Kept(()))
    }
}

/// Notes until when compressing is not tried again, and why; both absent end it.
pub(crate) struct SetCooldown {
    pub(crate) session_id: Value,
    pub(crate) until: Value,
    pub(crate) error: Value,
}

impl Write for SetCooldown {
    type Answer = ();

    fn subject(&self) -> Option<&str> {
        self.session_id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        transaction.execute(
            "UPDATE sessions SET compression_failure_cooldown_until = ?2, compression_failure_error = ?3 WHERE id = ?1",
            &[self.session_id.clone(), self.until.clone(), self.error.clone()],
        )?;
        Ok(Promise::Kept(()))
    }
}

/// Notes how many compressions in a row had to make do with a substitute.
pub(crate) struct SetFallbackStreak {
    pub(crate) session_id: Value,
    pub(crate) streak: i64,
}

impl Write for SetFallbackStreak {
    type Answer = ();

    fn subject(&self) -> Option<&str> {
        self.session_id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        transaction.execute(
            "UPDATE sessions SET compression_fallback_streak = ?2 WHERE id = ?1",
            &[self.session_id.clone(), self.streak.max(0).into()],
        )?;
        Ok(Promise::Kept(()))
    }
}
