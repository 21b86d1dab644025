//! What the system tells of a file system: free space, locks of two owners on one file, and memory that both map.
#![expect(unsafe_code, reason = "statvfs, fcntl and mmap have no safe wrappers")]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes that this user may still take.
pub(super) fn free_bytes(folder: &Path) -> Option<u64> {
    let path = CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: plain data, for which all zeros is a valid value.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a NUL-terminated string and a buffer that outlive the call.
    let asked = unsafe { libc::statvfs(path.as_ptr(), &raw mut found) };
    #[expect(clippy::useless_conversion, reason = "the types differ from system to system")]
    (asked == 0).then(|| u64::from(found.f_bavail).saturating_mul(u64::from(found.f_frsize)))
}

/// The effective user.
pub(super) fn user() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}

/// Locks the first byte for the owner of `file`, or lets it go; `false` if another owner has it.
#[cfg(target_os = "linux")]
pub(super) fn lock(file: &File, locked: bool) -> io::Result<bool> {
    // SAFETY: plain data, for which all zeros is a valid value; `l_pid` has to be 0 for this call.
    let mut wish: libc::flock = unsafe { std::mem::zeroed() };
    wish.l_type = if locked { libc::F_WRLCK } else { libc::F_UNLCK } as libc::c_short;
    wish.l_whence = libc::SEEK_SET as libc::c_short;
    wish.l_len = 1;
    // SAFETY: a valid descriptor and a structure that outlives the call; does not wait.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const wish) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error => Err(error),
    }
}

/// The first page of a file in memory, shared.
pub(super) struct Shared(NonNull<AtomicU8>);

/// The least that can be mapped on any system of ours is a part of this.
const LENGTH: usize = 1 << 16;

impl Shared {
    /// Maps the file, which must be `LENGTH` long.
    pub(super) fn map(file: &File) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the system's choice; the descriptor is valid.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        match NonNull::new(address.cast()).filter(|_| address != libc::MAP_FAILED) {
            Some(address) => Ok(Self(address)),
            None => Err(io::Error::last_os_error()),
        }
    }

    pub(super) const LENGTH: usize = LENGTH;

    /// A byte that others change.
    pub(super) fn byte(&self) -> u8 {
        self.first().load(Ordering::SeqCst)
    }

    pub(super) fn set_byte(&self, value: u8) {
        self.first().store(value, Ordering::SeqCst);
    }

    fn first(&self) -> &AtomicU8 {
        // SAFETY: mapped until the drop, and any byte is a valid atomic one.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `map`, to which no reference outlives `self`.
        unsafe { libc::munmap(self.0.as_ptr().cast(), LENGTH) };
    }
}
