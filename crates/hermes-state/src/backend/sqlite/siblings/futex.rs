//! Sleeping, waking and telling the time between processes.
#![expect(unsafe_code, reason = "futex and clock_gettime have no safe wrapper")]

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps until the word is woken, at most so long; returns at once when it is no longer `expected`.
pub(super) fn wait(word: &AtomicU32, expected: u32, at_most: Duration) {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(at_most.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: at_most.subsec_nanos() as libc::c_long,
    };
    // SAFETY: the word and the time outlive the call; FUTEX_WAIT (not the private one, for the sleeper's waker is
    // another process) reads both and writes neither.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const time) };
}

/// Wakes the one that sleeps on the word.
pub(super) fn wake(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE uses the address of the word only, which is mapped as long as the reference lives.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Nanoseconds of the monotonic clock, the same in all processes since the system started. No system call on the usual
/// machine (vDSO), and never 0.
pub(super) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes into a structure on this stack.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64).max(1)
}
