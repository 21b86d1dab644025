//! The layout of the sidecar, and the file as memory that processes share.
//!
//! All of it is atomics, for others change it at any time, and all zeros is a valid beginning: only the identity is
//! written by whoever comes first, by compare-and-swap.
#![expect(unsafe_code, reason = "mapping a file")]

use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::backend::sqlite::lock;

pub(super) const SLOTS: usize = 128;
pub(super) const PROGRAM_BYTES: usize = 56;

/// "hermslot" without its last two letters, then the version of the layout.
const MAGIC: u64 = u64::from_be_bytes(*b"hermsl\0\0");
const VERSION: u64 = 1;
pub(super) const IDENTITY: u64 = MAGIC | VERSION;

/// The granularity in which a file is given room; also where slots may begin.
const PAGE: usize = 4096;

#[repr(C, align(4096))]
pub(super) struct Layout {
    pub(super) identity: AtomicU64,
    pub(super) counters: Counters,
    pub(super) slots: Slots,
}

#[repr(C, align(128))]
pub(super) struct Counters {
    /// The ticket that was given out last.
    pub(super) last_ticket: AtomicU64,
    /// How many slots, from the first, have ever been claimed: no need to look further.
    pub(super) used: AtomicU32,
}

#[repr(C, align(4096))]
pub(super) struct Slots([Slot; SLOTS]);

/// One open store of one process. Valid only while its byte is locked: the dead do not clean up.
#[repr(C, align(128))]
pub(super) struct Slot {
    /// The place in the line, 0 outside it.
    pub(super) ticket: AtomicU64,
    /// Times of the monotonic clock in nanoseconds, 0 for "is not".
    pub(super) waiting_since: AtomicU64,
    pub(super) holding_since: AtomicU64,
    /// Changed and woken when it is this one's turn.
    pub(super) word: AtomicU32,
    /// Changed whenever its owner, being first in line, tries for SQLite's lock: it is alive and awake.
    pub(super) beat: AtomicU32,
    pub(super) operation: AtomicU32,
    /// 0 until everything below is there.
    pub(super) pid: AtomicU32,
    pub(super) started: AtomicU64,
    pub(super) namespace: AtomicU64,
    pub(super) claimed_at: AtomicU64,
    pub(super) program: [AtomicU64; PROGRAM_BYTES / 8],
    /// When it was claimed by the clock on the wall; see [`Slot::claimed_on_the_wall`]. The last byte of a page is
    /// written to give the file room, and stands where this has nothing.
    pub(super) claimed_wall: AtomicU64,
}

const _: () = {
    assert!(size_of::<Slot>() == 128);
    assert!(offset_of!(Layout, slots) == PAGE);
    assert!(size_of::<Layout>() == PAGE + SLOTS * size_of::<Slot>());
    assert!(size_of::<Layout>().is_multiple_of(PAGE));
};

impl Layout {
    pub(super) const SIZE: usize = size_of::<Layout>();

    /// The byte of the file whose lock claims the slot: its first.
    pub(super) fn lock_of(slot: usize) -> i64 {
        (PAGE + slot * size_of::<Slot>()) as i64
    }

    pub(super) fn slot(&self, number: usize) -> &Slot {
        &self.slots.0[number]
    }

    /// The slots that may be in use.
    pub(super) fn slots(&self) -> &[Slot] {
        let used = self.counters.used.load(Ordering::SeqCst) as usize;
        &self.slots.0[..used.min(SLOTS)]
    }
}

/// The sidecar in this process's memory.
pub(super) struct Mapping {
    layout: NonNull<Layout>,
    generation: u64,
}

impl Mapping {
    /// Maps a sidecar for taking part, making it a valid one if it is new or was cut off.
    pub(super) fn join(file: &File) -> Option<Self> {
        let mut identity = [0; 8];
        file.read_at(&mut identity, 0).ok()?;
        if ![0, IDENTITY].contains(&u64::from_ne_bytes(identity)) {
            return None;
        }
        give_room(file).ok()?;
        let mapping = Self::map(file, libc::PROT_READ | libc::PROT_WRITE)?;
        let first = mapping.identity.compare_exchange(0, IDENTITY, Ordering::SeqCst, Ordering::SeqCst);
        (first.is_ok() || first == Err(IDENTITY)).then_some(mapping)
    }

    /// Maps an existing sidecar for looking only.
    pub(super) fn look(file: &File) -> Option<Self> {
        let mapping = Self::map(file, libc::PROT_READ)?;
        (mapping.identity.load(Ordering::SeqCst) == IDENTITY).then_some(mapping)
    }

    fn map(file: &File, access: i32) -> Option<Self> {
        if file.metadata().ok()?.len() < Layout::SIZE as u64 {
            return None;
        }
        // SAFETY: a new mapping at an address of the kernel's choice; the descriptor is valid and the file long enough.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), Layout::SIZE, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return None;
        }
        let mapping = Self { layout: NonNull::new(address.cast())?, generation: lock::generation() };
        // SAFETY: exactly the mapping just made. A child must not be able to write into its parent's slot.
        let kept_from_children = unsafe { libc::madvise(address, Layout::SIZE, libc::MADV_DONTFORK) } == 0;
        kept_from_children.then_some(mapping)
    }
}

impl Deref for Mapping {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        // SAFETY: mapped with the size of a `Layout`, at a page's address and so aligned, until the drop; all of its
        // fields are atomics, for which any bytes are valid and others may change them. Of a mapping made for looking
        // nothing is ever written: `look` gives it to nobody who does.
        unsafe { self.layout.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A child has no such mapping: what stands at its address there is somebody else's.
        if self.generation == lock::generation() {
            // SAFETY: the mapping made by `map`, to which no reference outlives `self`.
            unsafe { libc::munmap(self.layout.as_ptr().cast(), Layout::SIZE) };
        }
    }
}

/// Makes the file as long as the layout, with real blocks: writing a hole through a mapping on a full disk is SIGBUS.
///
/// Writes one meaningless byte at the end of each page, in ascending order, so that it neither harms what others have
/// written meanwhile nor leaves a file of full length with a hole.
fn give_room(file: &File) -> io::Result<()> {
    if file.metadata()?.len() >= Layout::SIZE as u64 {
        return Ok(());
    }
    (PAGE..=Layout::SIZE).step_by(PAGE).try_for_each(|end| file.write_all_at(&[0], end as u64 - 1))
}
