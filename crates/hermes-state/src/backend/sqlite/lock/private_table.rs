//! Means A: a thread with a descriptor table of its own, which is what really owns POSIX locks (`docs/locks.md`).
#![expect(unsafe_code, reason = "system calls without a safe wrapper")]

use std::io;

/// Gives the calling thread a descriptor table of its own, empty but for `/dev/null` on 0, 1 and 2. Threads it starts
/// afterwards share that table.
///
/// Call it only on a thread that no other code uses: every descriptor the thread knew is gone for it.
pub(super) fn enter() -> io::Result<()> {
    // SAFETY: takes three integers; unshares and closes descriptors of this thread's new table only, the process's own
    // table keeps all of its descriptors.
    let unshared = unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, libc::CLOSE_RANGE_UNSHARE) };
    if unshared != 0 {
        leave_shared_table()?;
    }
    fill_standard_descriptors()
}

/// The older call for the same: Linux before 5.9, or a sandbox that filters `close_range`.
fn leave_shared_table() -> io::Result<()> {
    // SAFETY: takes an integer; affects only this thread's relation to the descriptor table.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let limit = std::fs::read_dir("/proc/self/fd")
        .map(|entries| entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok()).max())
        .ok()
        .flatten()
        .unwrap_or(1023);
    for descriptor in 0..=limit {
        // SAFETY: closes numbers of this thread's own copy of the table; nothing on this thread holds one of them.
        unsafe { libc::close(descriptor) };
    }
    Ok(())
}

/// SQLite refuses to use descriptors 0 to 2 for its files, and C code may write to them: they must lead nowhere.
fn fill_standard_descriptors() -> io::Result<()> {
    // SAFETY: a constant NUL-terminated path.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if null < 0 {
        return Err(io::Error::last_os_error());
    }
    for descriptor in 0..3 {
        // SAFETY: both numbers belong to this thread's own table, in which 0 to 2 are free or `null` itself.
        if descriptor != null && unsafe { libc::dup2(null, descriptor) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    if null > 2 {
        // SAFETY: `null` was opened above and is used nowhere else.
        unsafe { libc::close(null) };
    }
    Ok(())
}

/// Whether this system lets a thread leave the common table; tried on a thread that ends at once.
pub(super) fn available() -> bool {
    std::thread::spawn(enter).join().is_ok_and(|entered| entered.is_ok())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a scratch file that is no store")]
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn the_table_is_empty_inside_and_whole_outside() {
        let file = std::fs::File::open("/proc/self/status").expect("a descriptor to lose");
        let number = file.as_raw_fd();
        let inside = std::thread::spawn(move || {
            enter().expect("a private table");
            // SAFETY: asks about a number; no memory is involved.
            unsafe { libc::fcntl(number, libc::F_GETFD) }
        })
        .join()
        .expect("the thread ends");
        assert_eq!(inside, -1, "the descriptor is invisible inside");
        // SAFETY: as above.
        assert!(unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0, "and untouched outside");
    }
}
