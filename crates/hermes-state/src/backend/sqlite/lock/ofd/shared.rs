//! The one registry of the process, behind a lock that may be taken before a fork and released in the child.
//!
//! A pthread mutex, because its release in the child by the thread that continues the forking one is common practice,
//! it waits asleep, and it cannot be poisoned.
#![expect(unsafe_code, reason = "a lock held over a fork cannot be a guard of the standard library")]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use super::registry::Registry;

struct Shared {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    registry: UnsafeCell<Registry>,
}

// SAFETY: the registry is reached through a `Guard` only, of which the mutex lets one exist at a time.
unsafe impl Sync for Shared {}

static SHARED: Shared =
    Shared { mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), registry: UnsafeCell::new(Registry::new()) };

/// The right to use the registry. While one exists no fork happens and no other thread takes or drops a lock.
pub(super) struct Guard(());

pub(super) fn lock() -> Guard {
    // SAFETY: a mutex that was initialised statically, is never moved and never destroyed.
    unsafe { libc::pthread_mutex_lock(SHARED.mutex.get()) };
    Guard(())
}

/// None while another thread has it.
pub(super) fn try_lock() -> Option<Guard> {
    // SAFETY: as in `lock`.
    (unsafe { libc::pthread_mutex_trylock(SHARED.mutex.get()) } == 0).then_some(Guard(()))
}

impl Guard {
    /// Takes over the lock from a guard that was forgotten.
    ///
    /// # Safety
    /// This thread, or the one of which it is the continuation in a forked child, forgot a guard and has not taken it
    /// over since.
    pub(super) unsafe fn resume() -> Self {
        Guard(())
    }
}

impl Deref for Guard {
    type Target = Registry;
    fn deref(&self) -> &Registry {
        // SAFETY: this guard holds the mutex.
        unsafe { &*SHARED.registry.get() }
    }
}

impl DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut Registry {
        // SAFETY: this guard holds the mutex and is borrowed exclusively.
        unsafe { &mut *SHARED.registry.get() }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: this guard holds the mutex.
        unsafe { libc::pthread_mutex_unlock(SHARED.mutex.get()) };
    }
}
