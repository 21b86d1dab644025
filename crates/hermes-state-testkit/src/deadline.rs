//! Waiting for what other processes do: by looking again and again, never longer than a deadline.

use std::thread;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(10);

/// Looks until there is something to return, at least once; `None` when `limit` is over.
pub(crate) fn wait_for<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

/// Looks until it is so; whether it came to be within `limit`.
pub(crate) fn wait_until(limit: Duration, mut look: impl FnMut() -> bool) -> bool {
    wait_for(limit, || look().then_some(())).is_some()
}
