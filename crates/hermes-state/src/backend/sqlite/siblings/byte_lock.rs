//! Locks on single bytes of the sidecar, which tell the living from the dead.
//!
//! They belong to the open file description (fcntl(2), "Open file description locks"): other descriptors of the same
//! file may come and go, and two stores open in one process exclude each other. A forked child has a copy of every
//! descriptor of the forking thread's table and would keep the description alive after its parent's death, so the
//! descriptors stand in a table from which [`close_in_child`] closes them. Claiming and releasing exclude a fork.
#![expect(unsafe_code, reason = "fcntl, and closing by number in a fork handler")]

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::backend::sqlite::lock::{generation, in_child, while_not_forking};

/// More stores than slots in one sidecar can be open in one process, but hardly more than this; the next has no slot.
const MOST: usize = 256;

static CLAIMED: [Claimed; MOST] = [const { Claimed::new() }; MOST];

/// A descriptor that a child has to close, with the file it leads to.
struct Claimed {
    descriptor: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Claimed {
    const fn new() -> Self {
        Self { descriptor: AtomicI32::new(-1), device: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }
}

/// A claimed byte. The descriptor is used for nothing else and is never mapped: a mapping would hold its description.
pub(super) struct ByteLock {
    file: Option<File>,
    entry: &'static Claimed,
    /// The generation of processes it belongs to; in another one it is an ancestor's.
    generation: u64,
}

impl ByteLock {
    /// Opens the file and claims the first free of the bytes at `offsets`; says which one in the order given.
    pub(super) fn claim(
        open: impl FnOnce() -> std::io::Result<File>,
        offsets: impl Iterator<Item = i64>,
    ) -> Option<(Self, usize)> {
        in_child(close_in_child);
        while_not_forking(|| {
            let entry = CLAIMED.iter().find(|entry| entry.descriptor.load(Ordering::Relaxed) < 0)?;
            let file = open().ok()?;
            let metadata = file.metadata().ok()?;
            let number = offsets.into_iter().position(|offset| lock(&file, offset))?;
            entry.device.store(metadata.dev(), Ordering::Relaxed);
            entry.inode.store(metadata.ino(), Ordering::Relaxed);
            entry.descriptor.store(file.as_raw_fd(), Ordering::Release);
            Some((Self { file: Some(file), entry, generation: generation() }, number))
        })
    }

    /// The file, for asking about other bytes.
    pub(super) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Whether it is a byte of this very file.
    pub(super) fn is_on(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|status| {
            status.dev() == self.entry.device.load(Ordering::Relaxed)
                && status.ino() == self.entry.inode.load(Ordering::Relaxed)
        })
    }

    pub(super) fn is_of_this_process(&self) -> bool {
        self.generation == generation()
    }
}

impl Drop for ByteLock {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        if !self.is_of_this_process() {
            // `close_in_child` has closed it, and the number may be somebody else's by now.
            std::mem::forget(file);
            return;
        }
        while_not_forking(|| {
            self.entry.descriptor.store(-1, Ordering::Release);
            drop(file);
        });
    }
}

/// Closes in the child of a fork the lock descriptors that it inherited, so that slots end with their owner. Made for a
/// fork handler: neither allocates nor locks.
///
/// With a private descriptor table the child has no such descriptor and the number may lead elsewhere, hence the
/// comparison; it may be called with any kind of locks.
fn close_in_child() {
    for entry in &CLAIMED {
        let descriptor = entry.descriptor.swap(-1, Ordering::AcqRel);
        if descriptor >= 0 && leads_to(descriptor, entry) {
            // SAFETY: it leads to a sidecar, whose descriptors only this module opens and whose owners, as they are
            // from before the fork, never use or close theirs again.
            unsafe { libc::close(descriptor) };
        }
    }
}

fn leads_to(descriptor: RawFd, entry: &Claimed) -> bool {
    // SAFETY: plain data, for which all zeros is a valid value.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a valid buffer; a number without a file is answered with an error.
    let answered = unsafe { libc::fstat(descriptor, &raw mut status) } == 0;
    answered
        && status.st_dev == entry.device.load(Ordering::Relaxed)
        && status.st_ino == entry.inode.load(Ordering::Relaxed)
}

/// Whether somebody holds the byte through another description than that of `file`.
pub(super) fn is_held(file: &File, offset: i64) -> bool {
    let mut question = exclusive(offset);
    // SAFETY: a valid descriptor and a structure that outlives the call.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut question) };
    asked == 0 && question.l_type != libc::F_UNLCK as libc::c_short
}

fn lock(file: &File, offset: i64) -> bool {
    let wish = exclusive(offset);
    // SAFETY: as above; does not wait.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const wish) == 0 }
}

fn exclusive(offset: i64) -> libc::flock {
    // SAFETY: plain data, for which all zeros is a valid value; `l_pid` has to be 0 for these calls.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = offset as libc::off_t;
    lock.l_len = 1;
    lock
}
