//! Telling a process from a later one with the same number.

use std::os::unix::fs::MetadataExt;

/// When the process started, in clock ticks since the system did: field 22 of `/proc/<pid>/stat` (proc(5)).
pub(super) fn start_of(pid: u32) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "a file of the kernel, never a store")]
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may hold anything, parentheses and blanks included.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    fields.nth(22 - 3)?.parse().ok()
}

/// The space in which this process's number has a meaning: containers that share a store have one each.
pub(super) fn namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}
