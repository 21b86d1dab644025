//! What the tests look at from outside.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of this")]

use std::time::{Duration, Instant};

/// Looks again and again whether it is so, for at most half a minute.
pub fn becomes(mut look: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !look() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Whether the process runs. One that has ended may stay visible until its new parent, the system's first process, looks.
pub fn runs(pid: u32) -> bool {
    #[expect(clippy::disallowed_methods, reason = "a text of the kernel")]
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
}
