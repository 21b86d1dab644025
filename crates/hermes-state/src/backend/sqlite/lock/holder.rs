//! Who holds the write lock: what the lock itself and the system tell of its owner.
#![expect(unsafe_code, reason = "F_GETLK has no safe wrapper")]

use std::path::{Path, PathBuf};

use super::crew;
use crate::error::Holder;

/// First byte of the lock area in the `-shm` file; the first lock there is the writer's (SQLite's WAL format).
const WAL_WRITE_LOCK: i64 = 120;
/// The pending byte of the main file, after which follow the reserved byte and the shared range (rollback journal).
const PENDING_BYTE: i64 = 0x4000_0000;
const WRITER_RANGE: i64 = 2 + 510;

/// The process that holds the write lock of the store at `path`, if it is one that can be named: owners of POSIX locks
/// (older releases, and ours with a private table) can, owners of open file descriptions can not.
///
/// The question is put on a thread with a descriptor table of its own that owns no locks: opening and closing a store
/// file anywhere else would drop some.
pub(crate) fn of_write_lock(path: &Path) -> Option<Holder> {
    #[cfg(target_os = "linux")]
    {
        let main = path.to_owned();
        let ask = move || {
            let ask = || ask_the_lock(&main);
            let pid = ask()?;
            let program = program(pid);
            // Between the two it may have ended, and its number have become another's.
            (ask() == Some(pid)).then_some(Holder { pid, program, operation: None, since: None })
        };
        crew::bystander().run(ask).ok().flatten()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        None
    }
}

#[cfg(target_os = "linux")]
fn ask_the_lock(main: &Path) -> Option<i32> {
    let mut shm = main.as_os_str().to_owned();
    shm.push("-shm");
    owner_of(&PathBuf::from(shm), WAL_WRITE_LOCK, 1).or_else(|| owner_of(main, PENDING_BYTE, WRITER_RANGE))
}

#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "runs on the bystander's table, which owns no locks to lose")]
fn owner_of(file: &Path, start: i64, length: i64) -> Option<i32> {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::open(file).ok()?;
    // SAFETY: plain data, for which all zeros is a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    // Asked as a reader: whoever refuses to share these bytes writes.
    lock.l_type = libc::F_RDLCK as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = start;
    lock.l_len = length;
    // SAFETY: a valid descriptor and a valid structure that outlives the call.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
    (asked == 0 && lock.l_type == libc::F_WRLCK as i16 && lock.l_pid > 0).then_some(lock.l_pid)
}

/// The first bytes of a file of a store, read where opening and closing it drops no lock.
pub(crate) fn beginning<const LENGTH: usize>(file: &Path) -> Option<[u8; LENGTH]> {
    #[cfg(target_os = "linux")]
    {
        let file = file.to_owned();
        crew::bystander().run(move || read_beginning(&file)).ok().flatten()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        None
    }
}

#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "runs on the bystander's table, which owns no locks to lose")]
fn read_beginning<const LENGTH: usize>(file: &Path) -> Option<[u8; LENGTH]> {
    use std::io::Read as _;
    let mut bytes = [0; LENGTH];
    std::fs::File::open(file).ok()?.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// The program of a process in the words its owner would use: the executable, and the script an interpreter runs.
#[cfg(target_os = "linux")]
pub(crate) fn program(pid: i32) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "a file of the kernel, never a store")]
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).map(String::from_utf8_lossy);
    let base = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let executable = base(&words.next()?);
    match words.next() {
        Some(script) if executable.starts_with("python") && !script.starts_with('-') => {
            Some(format!("{executable} {}", base(&script)))
        }
        _ => Some(executable),
    }
}

/// The program of a process; unknown where there is no `/proc`.
#[cfg(not(target_os = "linux"))]
pub(crate) fn program(_pid: i32) -> Option<String> {
    None
}

/// The processes that have one of these files open, this one included. Every thread is looked at, since a thread may
/// have a descriptor table of its own; processes of other users show nothing.
#[cfg(target_os = "linux")]
pub(crate) fn processes_with(files: &[&Path]) -> Vec<i32> {
    let entries = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for process in entries(PathBuf::from("/proc")) {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let open = entries(process.path().join("task"))
            .flat_map(|thread| entries(thread.path().join("fd")))
            .filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok())
            .any(|target| files.contains(&target.as_path()));
        if open {
            found.push(pid);
        }
    }
    found
}

/// Unknown where there is no `/proc`.
#[cfg(not(target_os = "linux"))]
pub(crate) fn processes_with(_files: &[&Path]) -> Vec<i32> {
    Vec::new()
}
