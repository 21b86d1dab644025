//! The system calls of the layer in safe clothes: true ones, not those that SQLite is made to see.
#![expect(unsafe_code, reason = "system calls without a safe wrapper")]

use std::ffi::{CStr, c_int};
use std::os::fd::RawFd;

/// What the kernel takes for one file, whatever its names are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    device: libc::dev_t,
    inode: libc::ino_t,
}

/// The part of a `stat` on which the layer decides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    pub(super) identity: Identity,
    pub(super) regular: bool,
    /// No directory names the file any more.
    pub(super) deleted: bool,
}

impl From<&libc::stat> for Facts {
    fn from(stat: &libc::stat) -> Self {
        Self {
            identity: Identity { device: stat.st_dev, inode: stat.st_ino },
            regular: stat.st_mode & libc::S_IFMT == libc::S_IFREG,
            deleted: stat.st_nlink == 0,
        }
    }
}

/// Bytes of a file from the first number up to the second, where 0 stands for "however long the file gets".
pub(super) type Bytes = (u64, u64);
pub(super) const WHOLE_FILE: Bytes = (0, 0);

fn blank<T: Plain>() -> T {
    // SAFETY: `Plain` is implemented for C structures of integers only, for which all zeros is a valid value.
    unsafe { std::mem::zeroed() }
}

trait Plain {}
impl Plain for libc::stat {}
impl Plain for libc::flock {}

pub(super) fn facts_of(descriptor: RawFd) -> Option<Facts> {
    let mut stat: libc::stat = blank();
    // SAFETY: the kernel checks the number; the buffer outlives the call.
    (unsafe { libc::fstat(descriptor, &raw mut stat) } == 0).then(|| Facts::from(&stat))
}

/// Of the name itself, not of what a symbolic link points to.
pub(super) fn facts_at(path: &CStr) -> Option<Facts> {
    let mut stat: libc::stat = blank();
    // SAFETY: a NUL-terminated path and a buffer that outlives the call.
    (unsafe { libc::lstat(path.as_ptr(), &raw mut stat) } == 0).then(|| Facts::from(&stat))
}

/// Whether an `open` of `path` would be allowed now, by the effective user and on this mount.
pub(super) fn permits(path: &CStr, writable: bool) -> bool {
    let mode = if writable { libc::R_OK | libc::W_OK } else { libc::R_OK };
    // SAFETY: a NUL-terminated path.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), mode, libc::AT_EACCESS) == 0 }
}

pub(super) fn open(path: &CStr, flags: c_int, mode: libc::mode_t) -> RawFd {
    // SAFETY: a NUL-terminated path; the third argument is read or ignored as the flags say.
    unsafe { libc::open(path.as_ptr(), flags, mode) }
}

pub(super) fn close(descriptor: RawFd) -> c_int {
    // SAFETY: every caller owns the descriptor it names, by having opened it or on behalf of SQLite, which did.
    unsafe { libc::close(descriptor) }
}

pub(super) fn is_open(descriptor: RawFd) -> bool {
    // SAFETY: asks about a number; no memory is involved.
    unsafe { libc::fcntl(descriptor, libc::F_GETFD) != -1 }
}

/// The same open file under a number that is not one of the standard descriptors; the old number becomes free.
pub(super) fn move_above_standard(descriptor: RawFd) -> RawFd {
    // SAFETY: takes numbers only; the caller gives up `descriptor`.
    let moved = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) };
    close(descriptor);
    moved
}

/// `F_OFD_SETLK` or `F_OFD_GETLK`, on the description behind `descriptor`.
pub(super) fn lock_description(descriptor: RawFd, command: c_int, lock: &mut libc::flock) -> c_int {
    // Locks of descriptions have no owner with a number, and the kernel insists on that.
    lock.l_pid = 0;
    // SAFETY: the structure is valid and outlives the call.
    unsafe { libc::fcntl(descriptor, command, std::ptr::from_mut(lock)) }
}

pub(super) fn request(kind: c_int, (start, end): Bytes) -> libc::flock {
    let mut lock: libc::flock = blank();
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = start as libc::off_t;
    lock.l_len = end.saturating_sub(start) as libc::off_t;
    lock
}

/// Takes (`F_RDLCK`, `F_WRLCK`) or drops (`F_UNLCK`) a lock without waiting.
pub(super) fn set_lock(descriptor: RawFd, kind: c_int, bytes: Bytes) -> bool {
    lock_description(descriptor, libc::F_OFD_SETLK, &mut request(kind, bytes)) == 0
}

/// Whether nobody but this description has a lock on the file.
pub(super) fn is_unlocked(descriptor: RawFd) -> bool {
    let mut lock = request(libc::F_WRLCK, WHOLE_FILE);
    lock_description(descriptor, libc::F_OFD_GETLK, &mut lock) == 0 && c_int::from(lock.l_type) == libc::F_UNLCK
}

/// Tries the real thing on a file without a name: descriptions can be locked, and their locks stop those of processes.
pub(super) fn descriptions_can_be_locked() -> bool {
    // SAFETY: a NUL-terminated name and a flag.
    let file = unsafe { libc::memfd_create(c"hermes-state-probe".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return false;
    }
    let mut ordinary = request(libc::F_WRLCK, WHOLE_FILE);
    let locked = set_lock(file, libc::F_WRLCK, WHOLE_FILE);
    // SAFETY: the structure is valid and outlives the call.
    let refused = unsafe { libc::fcntl(file, libc::F_SETLK, &raw mut ordinary) } == -1;
    close(file);
    locked && refused
}

/// A descriptor that stands for a file without giving access to it, held by no lock.
pub(super) fn open_inert() -> RawFd {
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    let inert = open(c"/dev/null", flags, 0);
    if inert < 0 { open(c"/", flags, 0) } else { inert }
}

pub(super) fn is_inert(descriptor: RawFd) -> bool {
    // SAFETY: asks about a number; no memory is involved.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    flags != -1 && flags & libc::O_PATH != 0
}

/// Puts `cover` in the place of `descriptor`, so that every use of it fails and the number is not given out again.
pub(super) fn cover(descriptor: RawFd, cover: RawFd) {
    // SAFETY: takes numbers only; the caller owns `descriptor`.
    let covered = unsafe { libc::dup3(cover, descriptor, libc::O_CLOEXEC) };
    if covered < 0 {
        close(descriptor);
    }
}

/// Replaces the pages from `start` to `end` by empty private ones.
///
/// # Safety
/// They must be pages that SQLite mapped from a file and has not unmapped.
pub(super) unsafe fn replace_pages(start: u64, end: u64) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: by the contract the range is SQLite's, who reads plain numbers there and finds zeros from now on.
    unsafe { libc::mmap(start as *mut libc::c_void, (end - start) as usize, access, flags, -1, 0) };
}

pub(super) fn page_size() -> u64 {
    // SAFETY: no memory is involved.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

pub(super) fn errno() -> c_int {
    // SAFETY: the location belongs to this thread and always exists.
    unsafe { *libc::__errno_location() }
}

pub(super) fn set_errno(error: c_int) {
    // SAFETY: the location belongs to this thread and always exists.
    unsafe { *libc::__errno_location() = error };
}
