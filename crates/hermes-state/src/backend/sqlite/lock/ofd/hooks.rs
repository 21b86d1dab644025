//! The system calls that SQLite is given instead of the real ones.
#![expect(unsafe_code, reason = "functions that C calls with raw pointers")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::RawFd;

use rusqlite::ffi;

use super::registry::Closing;
use super::shared::lock;
use super::sys;

/// Sets every hook; false and nothing changed where SQLite was compiled in a way that they do not fit.
pub(super) fn install() -> bool {
    // SAFETY: initialising is idempotent; the VFS named "unix" lives for ever.
    let vfs = unsafe {
        ffi::sqlite3_initialize();
        ffi::sqlite3_vfs_find(c"unix".as_ptr())
    };
    // SAFETY: null or a valid structure; a constant option name.
    let (vfs_calls, waits_for_locks) = unsafe {
        (
            vfs.as_ref().map(|vfs| (vfs.xGetSystemCall, vfs.xSetSystemCall)),
            // With it SQLite asks for locks by F_SETLKW as well, which would be taken as POSIX locks.
            ffi::sqlite3_compileoption_used(c"ENABLE_SETLK_TIMEOUT".as_ptr()) != 0,
        )
    };
    let Some((Some(get), Some(set))) = vfs_calls else { return false };
    // The structures SQLite passes are those of the `libc` crate only where offsets have 64 bits by default.
    if waits_for_locks || !cfg!(target_pointer_width = "64") {
        return false;
    }
    let hooks: [(&CStr, *const ()); 6] = [
        (c"open", open as unsafe extern "C" fn(_, _, _) -> _ as *const ()),
        (c"close", close as unsafe extern "C" fn(_) -> _ as *const ()),
        (c"fcntl", fcntl as unsafe extern "C" fn(_, _, _) -> _ as *const ()),
        (c"mmap", mmap as unsafe extern "C" fn(_, _, _, _, _, _) -> _ as *const ()),
        (c"munmap", munmap as unsafe extern "C" fn(_, _) -> _ as *const ()),
        (c"mremap", mremap as unsafe extern "C" fn(_, _, _, _) -> _ as *const ()),
    ];
    // SAFETY: the VFS is valid and the names are constants.
    let is_used = |name: &CStr| unsafe { get(vfs, name.as_ptr()).is_some() };
    // Without memory mapping there is no `mremap` to replace, and so with the others of its kind.
    let used: Vec<_> = hooks.into_iter().filter(|(name, _)| is_used(name)).collect();
    if used.len() < 3 || !hooks[..3].iter().all(|(name, _)| is_used(name)) {
        return false;
    }
    used.into_iter().all(|(name, hook)| {
        // SAFETY: each function has the signature with which SQLite's unix VFS calls this name; going through its
        // generic pointer type is how `xSetSystemCall` takes them.
        unsafe {
            set(vfs, name.as_ptr(), std::mem::transmute::<*const (), ffi::sqlite3_syscall_ptr>(hook)) == ffi::SQLITE_OK
        }
    })
}

/// A name under which SQLite keeps no locks.
fn is_sidecar(path: &CStr) -> bool {
    let name = path.to_bytes();
    name.ends_with(b"-wal") || name.ends_with(b"-journal")
}

/// SQLite closes a descriptor below 3 at once and tries again; for a lockable file that close must not happen.
fn fill_standard_descriptors() {
    while let Some(gap) = (0..3).find(|descriptor| !sys::is_open(*descriptor)) {
        let filler = sys::open(c"/dev/null", libc::O_RDWR, 0);
        if filler != gap {
            // Another thread was quicker, or there is no `/dev/null`.
            if filler > 2 {
                sys::close(filler);
            }
            if filler < 0 {
                return;
            }
        }
    }
}

unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_int) -> RawFd {
    // SAFETY: SQLite passes a NUL-terminated path.
    let path = unsafe { CStr::from_ptr(path) };
    let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
    // SQLite follows no link to its own files, unlike to a directory; those that must be new are temporary ones, which
    // nobody else knows. What is misjudged here is recognised at its first lock.
    let lockable = flags & libc::O_NOFOLLOW != 0 && flags & libc::O_EXCL == 0 && !is_sidecar(path);
    if lockable {
        fill_standard_descriptors();
    }
    // Held over the call itself: a fork between opening and registering would leave the child a copy to keep.
    let mut registry = lock();
    if lockable
        && flags & (libc::O_TRUNC | libc::O_TMPFILE) == 0
        && let Some(parked) = registry.reuse(path, writable)
    {
        return parked;
    }
    let mut descriptor = sys::open(path, flags, mode as libc::mode_t);
    if descriptor < 0 {
        return descriptor;
    }
    let regular = sys::facts_of(descriptor).filter(|facts| facts.regular);
    if lockable && regular.is_some() && descriptor < 3 {
        // Another thread closed a standard descriptor just now.
        descriptor = sys::move_above_standard(descriptor);
        if descriptor < 0 {
            return descriptor;
        }
    }
    // The number was free, so whatever we knew of it is past.
    registry.lose(descriptor);
    if let Some(facts) = regular {
        registry.register(descriptor, facts.identity, writable, lockable);
    }
    descriptor
}

unsafe extern "C" fn close(descriptor: RawFd) -> c_int {
    let closing = lock().close(descriptor);
    match closing {
        Closing::CloseIt => sys::close(descriptor),
        Closing::Parked => 0,
        Closing::NotOpen => fail(libc::EBADF),
    }
}

/// Declared with three fixed arguments where C has an ellipsis: on the 64-bit Linux platforms a variadic call passes
/// integers and pointers in the registers in which a plain function looks for them.
unsafe extern "C" fn fcntl(descriptor: RawFd, command: c_int, argument: *mut c_void) -> c_int {
    let answer = match command {
        libc::F_SETLK | libc::F_GETLK => {
            // SAFETY: with these commands SQLite passes a valid structure of its own.
            let lock_of_sqlite = unsafe { &mut *argument.cast::<libc::flock>() };
            let mut registry = lock();
            if command == libc::F_SETLK {
                registry.set_lock(descriptor, lock_of_sqlite)
            } else {
                registry.get_lock(descriptor, lock_of_sqlite)
            }
        }
        libc::F_SETLKW => Err(libc::EINVAL),
        // SAFETY: the arguments are SQLite's, passed through unchanged.
        _ => return unsafe { libc::fcntl(descriptor, command, argument) },
    };
    answer.map_or_else(fail, |()| 0)
}

fn fail(error: c_int) -> c_int {
    sys::set_errno(error);
    -1
}

/// From the first address to the end of the page in which the last one is.
fn pages(at: *mut c_void, length: usize) -> (u64, u64) {
    let start = at as u64;
    (start, start + (length as u64).next_multiple_of(sys::page_size()))
}

unsafe extern "C" fn mmap(
    hint: *mut c_void,
    length: usize,
    access: c_int,
    flags: c_int,
    descriptor: RawFd,
    offset: libc::off_t,
) -> *mut c_void {
    let mut registry = lock();
    // SAFETY: the arguments are SQLite's, passed through unchanged.
    let at = unsafe { libc::mmap(hint, length, access, flags, descriptor, offset) };
    if at != libc::MAP_FAILED && descriptor >= 0 {
        let (start, end) = pages(at, length);
        registry.mapped.insert(start, end);
    }
    at
}

unsafe extern "C" fn munmap(at: *mut c_void, length: usize) -> c_int {
    let mut registry = lock();
    // SAFETY: the arguments are SQLite's, passed through unchanged.
    let result = unsafe { libc::munmap(at, length) };
    if result == 0 {
        let (start, end) = pages(at, length);
        registry.mapped.remove(start, end);
    }
    result
}

/// Variadic in C, see [`fcntl`]; SQLite never passes the fifth argument.
unsafe extern "C" fn mremap(old: *mut c_void, old_length: usize, length: usize, flags: c_int) -> *mut c_void {
    let mut registry = lock();
    // SAFETY: the arguments are SQLite's, passed through unchanged.
    let at = unsafe { libc::mremap(old, old_length, length, flags) };
    if at != libc::MAP_FAILED {
        let (start, end) = pages(old, old_length);
        registry.mapped.remove(start, end);
        let (start, end) = pages(at, length);
        registry.mapped.insert(start, end);
    }
    at
}
