//! Operations on the state that compressing a conversation keeps: leases, failures and substitutes.

use super::SessionDb;
use crate::clock;
use crate::error::{Error, Result};
use crate::op::compression::{RefreshLock, ReleaseLock, SetCooldown, SetFallbackStreak};
use crate::query::compression::{self, CompressionCooldown};
use crate::value::Value;

impl SessionDb {
    /// [`acquire_compression_lease`](SessionDb::acquire_compression_lease) for callers that store under no lease;
    /// returns whether `holder` has it now.
    ///
    /// # Errors
    /// Those of every write; [`Error::Invalid`] for a term that is not a number.
    pub fn try_acquire_compression_lock(
        &self,
        session_id: impl Into<Value>,
        holder: impl Into<String>,
        ttl: f64,
    ) -> Result<bool> {
        Ok(self.acquire_compression_lease(session_id, holder, ttl)?.is_some())
    }

    /// Gives a live lease of `holder` a new term of `ttl` seconds from now, which may be a shorter one; returns whether
    /// there was one. A lapsed lease must be acquired again.
    ///
    /// # Errors
    /// As [`try_acquire_compression_lock`](SessionDb::try_acquire_compression_lock).
    pub fn refresh_compression_lock(
        &self,
        session_id: impl Into<Value>,
        holder: impl Into<String>,
        ttl: f64,
    ) -> Result<bool> {
        let (session_id, holder) = (session_id.into(), holder.into());
        if session_id.is_falsy() || holder.is_empty() {
            return Ok(false);
        }
        self.routine(RefreshLock { session_id, holder, now: clock::now(), ttl: number(ttl)? })
    }

    /// Ends the lease of `holder`; that of another stays.
    ///
    /// # Errors
    /// Those of every write.
    pub fn release_compression_lock(&self, session_id: impl Into<Value>, holder: impl Into<String>) -> Result<()> {
        let session_id = session_id.into();
        if session_id.is_falsy() {
            return Ok(());
        }
        self.routine(ReleaseLock { session_id, holder: holder.into() })
    }

    /// Who has a live lease on compressing the session.
    ///
    /// # Errors
    /// Those of every read.
    pub fn compression_lock_holder(&self, session_id: impl Into<Value>) -> Result<Option<String>> {
        let session_id = session_id.into();
        self.read(move |transaction| compression::lock_holder(transaction, &session_id))
    }

    /// Notes that compressing the session failed and is not to be tried again before `until`, in seconds since the
    /// epoch. The last call counts, also where it shortens the time or names no error.
    ///
    /// # Errors
    /// Those of every write.
    pub fn record_compression_failure_cooldown(
        &self,
        session_id: impl Into<Value>,
        until: impl Into<Value>,
        error: impl Into<Value>,
    ) -> Result<()> {
        let session_id = session_id.into();
        if session_id.is_falsy() {
            return Ok(());
        }
        self.routine(SetCooldown { session_id, until: until.into(), error: error.into() })
    }

    /// Until when compressing the session is not to be tried again; `None` if it may be.
    ///
    /// # Errors
    /// [`Error::Invalid`] if what is stored is no time.
    pub fn compression_failure_cooldown(&self, session_id: impl Into<Value>) -> Result<Option<CompressionCooldown>> {
        let session_id = session_id.into();
        self.read(move |transaction| compression::cooldown(transaction, &session_id))
    }

    /// Lets compressing the session be tried again at once.
    ///
    /// # Errors
    /// Those of every write.
    pub fn clear_compression_failure_cooldown(&self, session_id: impl Into<Value>) -> Result<()> {
        self.record_compression_failure_cooldown(session_id, Value::Null, Value::Null)
    }

    /// How many compressions of the session in a row had to make do with a substitute for a summary; 0 if none did, or
    /// the session does not exist.
    ///
    /// # Errors
    /// Those of every read.
    pub fn compression_fallback_streak(&self, session_id: impl Into<Value>) -> Result<i64> {
        let session_id = session_id.into();
        self.read(move |transaction| compression::fallback_streak(transaction, &session_id))
    }

    /// Sets that number; a negative one counts as 0. It is not passed on to continuations.
    ///
    /// # Errors
    /// Those of every write.
    pub fn set_compression_fallback_streak(&self, session_id: impl Into<Value>, streak: i64) -> Result<()> {
        let session_id = session_id.into();
        if session_id.is_falsy() {
            return Ok(());
        }
        self.routine(SetFallbackStreak { session_id, streak })
    }
}

/// A term that times can be compared by.
pub(super) fn number(ttl: f64) -> Result<f64> {
    if ttl.is_nan() { Err(Error::Invalid("the term of a lease is a number of seconds".into())) } else { Ok(ttl) }
}
