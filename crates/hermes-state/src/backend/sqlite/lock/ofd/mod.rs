//! Means B: SQLite's system calls are replaced, so that it locks open file descriptions (`docs/locks.md`).
//!
//! POSIX locks belong to the process: SQLite does not see those of another SQLite library beside it, and any `close` of
//! the file by anybody drops them all. Locks of open file descriptions have neither fault. In return they outlive the
//! process in a forked child that keeps the description, which is why forks are watched here too.
#![expect(unsafe_code, reason = "the state is locked before a fork and released after it")]

mod hooks;
mod ranges;
mod registry;
mod shared;
mod sys;
#[cfg(test)]
mod tests;

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use shared::{Guard, lock};
use sys::Facts;

static INSTALLED: AtomicBool = AtomicBool::new(false);

/// A descriptor to put over those that a child inherits; opened in advance, as the child may be out of descriptors.
static INERT: AtomicI32 = AtomicI32::new(-1);

/// Replaces SQLite's system calls if this system locks descriptions; otherwise changes nothing and answers false.
///
/// Must run before SQLite opens anything: a descriptor it does not know gets no locks.
pub(super) fn install() -> bool {
    let installed = sys::descriptions_can_be_locked() && hooks::install();
    if installed {
        INERT.store(sys::open_inert(), Ordering::Release);
        INSTALLED.store(true, Ordering::Release);
    }
    installed
}

fn installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// Waits until no thread is between a system call and its entry in the registry, and keeps it so.
pub(super) fn before_fork() {
    if installed() {
        mem::forget(lock());
    }
}

/// Ends what [`before_fork`] began; in the parent and in the child.
pub(super) fn after_fork() {
    if installed() {
        // SAFETY: `before_fork` forgot the guard on the thread that forked.
        drop(unsafe { Guard::resume() });
    }
}

/// Parts the child from the parent's descriptions, so that locks end with the process that took them. Between
/// [`before_fork`] and [`after_fork`].
pub(super) fn in_child() {
    if !installed() {
        return;
    }
    let mut inert = INERT.load(Ordering::Acquire);
    if !sys::is_inert(inert) {
        // Somebody closed everything, perhaps to become a daemon.
        inert = sys::open_inert();
        INERT.store(inert, Ordering::Release);
    }
    // SAFETY: `before_fork` forgot the guard on the thread that forked; it is forgotten again below.
    let mut registry = unsafe { Guard::resume() };
    // SAFETY: the registry lists what SQLite mapped from files and has not unmapped.
    registry.disinherit(inert, |start, end| unsafe { sys::replace_pages(start, end) });
    mem::forget(registry);
}

/// The same for a child whose fork ran no handlers, as soon as it is noticed. Until then the child keeps the parent's
/// locks; and if a thread was at work here when the fork happened, nothing in this process may be trusted.
pub(super) fn in_unannounced_child() {
    if installed()
        && let Some(guard) = shared::try_lock()
    {
        mem::forget(guard);
        in_child();
        after_fork();
    }
}

/// Makes sure that SQLite, which is about to see this `stat` of a path, meets no descriptor that became another file.
pub(super) fn verify(stat: &libc::stat) {
    let seen = Facts::from(stat);
    if seen.regular && installed() {
        lock().verify(seen.identity);
    }
}

/// How often the locks on this file were lost by a foreign `close`. SQLite must take the file for another one when it
/// changes, or new connections would join the old ones in believing to have those locks.
pub(super) fn epoch(stat: &libc::stat) -> u64 {
    if installed() { lock().epoch(Facts::from(stat).identity) } else { 0 }
}
