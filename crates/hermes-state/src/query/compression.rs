//! Reads of the state that compressing a conversation keeps.

use crate::clock;
use crate::error::{Error, Result};
use crate::transaction::Transaction;
use crate::value::Value;

/// A failed compression, which is not tried again for a while.
#[derive(Debug, Clone, PartialEq)]
pub struct CompressionCooldown {
    /// When it may be tried again, in seconds since the epoch.
    pub until: f64,
    /// How many seconds that is from now; more than 0.
    pub remaining: f64,
    /// What went wrong, if it was noted.
    pub error: Option<String>,
}

/// The cooldown of a session, unless it is over.
pub(crate) fn cooldown(transaction: &mut dyn Transaction, session_id: &Value) -> Result<Option<CompressionCooldown>> {
    let row = transaction.first(
        "SELECT compression_failure_cooldown_until, compression_failure_error FROM sessions WHERE id = ?1",
        std::slice::from_ref(session_id),
    )?;
    let Some(row) = row else { return Ok(None) };
    let until = match row.get("compression_failure_cooldown_until") {
        None | Some(Value::Null) => return Ok(None),
        Some(stored) => stored.as_f64().ok_or_else(|| {
            Error::Invalid(format!(
                "the end of the session's compression cooldown is stored as {stored:?}, not as a time"
            ))
        })?,
    };
    let remaining = until - clock::now();
    if remaining > 0.0 {
        let error = row.text("compression_failure_error").map(str::to_owned);
        return Ok(Some(CompressionCooldown { until, remaining, error }));
    }
    Ok(None)
}

/// How many compressions in a row had to make do with a substitute; what is no number counts as none.
pub(crate) fn fallback_streak(transaction: &mut dyn Transaction, session_id: &Value) -> Result<i64> {
    let stored = transaction
        .scalar("SELECT compression_fallback_streak FROM sessions WHERE id = ?1", std::slice::from_ref(session_id))?;
    // Saturates, and is 0 for what is not a number.
    Ok(stored.as_i64().or_else(|| stored.as_f64().map(|number| number as i64)).unwrap_or_default().max(0))
}

/// Who has a live lease on compressing a session.
pub(crate) fn lock_holder(transaction: &mut dyn Transaction, session_id: &Value) -> Result<Option<String>> {
    let holder = transaction.scalar(
        "SELECT holder FROM compression_locks WHERE session_id = ?1 AND expires_at >= ?2",
        &[session_id.clone(), clock::now().into()],
    )?;
    Ok(holder.as_str().map(str::to_owned))
}
