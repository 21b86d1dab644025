//! The spool's folder: its files, who may see them, and whose turn it is to store what they hold.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is still to be stored.
const LOG: &str = "log";
/// What the store refused.
const REFUSED: &str = "refused";
/// A log with lines that cannot be read, the others of which are stored.
const DAMAGED: &str = "damaged";
/// A file that is not complete.
const PARTIAL: &str = "partial";

/// How long others' turn is left alone before it is asked for again.
const POLL: Duration = Duration::from_millis(10);

/// The files of a spool.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// In the order in which they were begun.
    pub(super) logs: Vec<PathBuf>,
    pub(super) refused: Vec<PathBuf>,
    pub(super) damaged: Vec<PathBuf>,
}

/// The files that are there; none if there is no folder.
pub(super) fn files(folder: &Path) -> io::Result<Files> {
    let mut files = Files::default();
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some(LOG) => files.logs.push(path),
            Some(REFUSED) => files.refused.push(path),
            Some(DAMAGED) => files.damaged.push(path),
            _ => {}
        }
    }
    files.logs.sort();
    files.refused.sort();
    files.damaged.sort();
    Ok(files)
}

/// The name of a log.
pub(super) fn log_name(name: impl std::fmt::Display) -> String {
    format!("{name}.{LOG}")
}

/// The name of a write that was refused.
pub(super) fn refused_name(name: impl std::fmt::Display) -> String {
    format!("{name}.{REFUSED}")
}

/// Where a damaged log is kept.
pub(super) fn damaged_path(log: &Path) -> PathBuf {
    log.with_extension(DAMAGED)
}

/// Makes the folder, this user's alone, and waits until the disk has it.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    folder.parent().map_or(Ok(()), sync)
}

/// Makes a file, this user's alone.
#[expect(clippy::disallowed_methods, reason = "a file of the spool, never a store's")]
pub(super) fn create_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.append(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Opens a file for reading.
#[expect(clippy::disallowed_methods, reason = "a file of the spool, never a store's")]
pub(super) fn read_file(path: &Path) -> io::Result<BufReader<File>> {
    Ok(BufReader::with_capacity(1 << 16, File::open(path)?))
}

/// Waits until the disk has the names of the folder's files.
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "a folder, not a store")]
pub(super) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Elsewhere a folder cannot be waited for.
#[cfg(not(unix))]
pub(super) fn sync(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Puts a whole file with this content in the place of what has that name.
pub(super) fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let partial = path.with_extension(PARTIAL);
    remove(&partial)?;
    let mut file = create_file(&partial)?;
    io::Write::write_all(&mut file, content)?;
    file.sync_all()?;
    std::fs::rename(&partial, path)?;
    path.parent().map_or(Ok(()), sync)
}

/// Removes a file that may be gone already.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// Removes the folder if nothing is in it, so that a look tells that nothing is spooled.
pub(super) fn remove_if_empty(folder: &Path) {
    let _ = std::fs::remove_dir(folder);
}

/// Whether the open file is the one that has this name.
#[cfg(unix)]
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

/// Elsewhere an open file keeps its name.
#[cfg(not(unix))]
pub(super) fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

/// The turn of one who stores what is spooled; others wait.
pub(super) struct Turn {
    _folder: Option<File>,
}

/// Waits for the turn, at most until `deadline`; `None` if somebody else has it all that time.
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "a folder, not a store")]
pub(super) fn take_turn(folder: &Path, deadline: Instant) -> io::Result<Option<Turn>> {
    loop {
        let opened = match File::open(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Turn { _folder: None })),
            opened => opened?,
        };
        match opened.try_lock() {
            // It may have been removed, and made again, since it was opened.
            Ok(()) if is_at(&opened, folder) => return Ok(Some(Turn { _folder: Some(opened) })),
            Ok(()) => continue,
            Err(std::fs::TryLockError::WouldBlock) => {}
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
        let now = Instant::now();
        if now >= deadline {
            return Ok(None);
        }
        std::thread::sleep(POLL.min(deadline - now));
    }
}

/// Elsewhere folders have no locks; what the store notes of each ticket is what keeps a write from being stored twice.
#[cfg(not(unix))]
pub(super) fn take_turn(_: &Path, _: Instant) -> io::Result<Option<Turn>> {
    let _ = POLL;
    Ok(Some(Turn { _folder: None }))
}
