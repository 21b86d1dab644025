//! Wall-clock time as the store keeps it: seconds since the epoch, as a double.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now.
pub(crate) fn now() -> f64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}
