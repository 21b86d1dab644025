//! The files that a repair works on, beside the store: born, finished, put in its place, or removed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::backup::{Backup, StepResult};

use super::super::connection::{Location, open_existing, take_any_schema};
use super::super::engine::patiently;
use super::super::errors::{cannot_open, classify};
use super::super::identity::{FileIdentity, sidecar};
use super::super::onlooker;
use super::super::store::birth;
use crate::error::{Error, Result};

/// How long a file without a log is waited for while somebody writes to it.
const COPYING: Duration = Duration::from_secs(20);

const MARK: &str = ".repairing-";
pub(in crate::backend::sqlite) const BACKUP: &str = ".malformed-backup-";

/// A working copy; removed when it is dropped without having been kept.
pub(super) struct Work {
    location: Location,
    kept: bool,
}

impl Work {
    /// Makes an empty one beside the store.
    pub(super) fn begin(store: &Path, role: &str) -> Result<Self> {
        static UNIQUE: AtomicU64 = AtomicU64::new(0);
        let number = UNIQUE.fetch_add(1, Ordering::Relaxed);
        Self::at(sidecar(store, &format!("{MARK}{role}-{}-{number}", std::process::id())))
    }

    /// Makes an empty one under this name.
    pub(super) fn at(path: PathBuf) -> Result<Self> {
        birth::create_private(&path);
        if FileIdentity::of(&path).is_none() {
            return Err(cannot_open(path));
        }
        Ok(Self { location: Location::File(path), kept: false })
    }

    pub(super) fn path(&self) -> &Path {
        self.location.path()
    }

    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    /// Brings everything into the file itself, durably, and gives it the owner and mode of the store.
    pub(super) fn finish(&self, store: &Path) -> Result<()> {
        let failed = |error: rusqlite::Error| classify(store, &error);
        let connection = super::open_copy(self.path())?;
        let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        let busy = busy.map_err(failed)?;
        connection.close().map_err(|(_, error)| failed(error))?;
        if busy != 0 || FileIdentity::of(&sidecar(self.path(), "-wal")).is_some() {
            let message = format!("the log of {} could not be merged", self.path().display());
            return Err(Error::Engine { message, code: 0 });
        }
        like(store, self.path()).map_err(|error| told(self.path(), &error))
    }

    /// Renames it to the store's name, in one step.
    pub(super) fn take_the_place_of(mut self, store: &Path) -> Result<()> {
        std::fs::rename(self.path(), store).map_err(|error| told(store, &error))?;
        self.kept = true;
        sync_folder(store);
        Ok(())
    }

    /// Gives it a name that nothing has yet, in one step.
    pub(super) fn become_new(mut self, target: &Path, taken: impl Fn() -> Error) -> Result<()> {
        match std::fs::hard_link(self.path(), target) {
            Ok(()) => {
                // The second name stays.
                let _ = std::fs::remove_file(self.path());
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Err(taken()),
            // A file has only one name here.
            Err(_) if FileIdentity::of(target).is_some() => return Err(taken()),
            Err(_) => std::fs::rename(self.path(), target).map_err(|error| told(target, &error))?,
        }
        self.kept = true;
        sync_folder(target);
        Ok(())
    }

    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.kept {
            remove(self.path());
        }
    }
}

pub(in crate::backend::sqlite) fn remove(path: &Path) {
    for suffix in ["-wal", "-shm", "-journal"] {
        let _ = std::fs::remove_file(sidecar(path, suffix));
    }
    let _ = std::fs::remove_file(path);
}

/// Removes what repairs that were killed have left: their working copies, and a backup's name that still leads to the
/// store itself. Whoever calls this has the store for itself, so no repair can be at work.
pub(super) fn remove_leftovers(store: &Path) {
    let (Some(folder), Some(name)) = (store.parent(), store.file_name()) else { return };
    let starting = |mark: &str| [name.as_encoded_bytes(), mark.as_bytes()].concat();
    let (works, backups) = (starting(MARK), starting(BACKUP));
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, found) = (entry.path(), entry.file_name());
        let is_second_name = || FileIdentity::of(&path).is_some() && FileIdentity::of(&path) == FileIdentity::of(store);
        let found = found.as_encoded_bytes();
        if found.starts_with(&works) || (cfg!(unix) && found.starts_with(&backups) && is_second_name()) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes the working copies that repairs into this file have left which were killed; others may be at work on theirs.
pub(super) fn remove_leftovers_of_the_dead(target: &Path) {
    let (Some(folder), Some(name)) = (target.parent(), target.file_name()) else { return };
    let works = [name.as_encoded_bytes(), MARK.as_bytes()].concat();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let Some(rest) = found.as_encoded_bytes().strip_prefix(works.as_slice()) else { continue };
        // Its role, and then whose it is.
        let owner = std::str::from_utf8(rest).ok().and_then(|rest| rest.split('-').nth(1));
        if owner.is_some_and(|pid| cfg!(target_os = "linux") && !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Copies a file page by page, whatever stands in them, as it is at one moment; returns its schema version, if that can be
/// read. Others may write to it meanwhile.
pub(super) fn copy_as_it_is(source: &Location, copy: &Path) -> Result<Option<i64>> {
    let failed = |error: rusqlite::Error| classify(source.path(), &error);
    let from = onlooker::open_as_it_is(source).map_err(failed)?;
    take_any_schema(&from).map_err(failed)?;
    let mut to = open_existing(&Location::File(copy.to_owned())).map_err(failed)?;
    let backup = Backup::new(&from, &mut to).map_err(failed)?;
    // All at once is one transaction.
    let done = patiently(Instant::now() + COPYING, || match backup.step(-1)? {
        StepResult::Done => Ok(()),
        _ => Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None)),
    });
    drop(backup);
    match done.map_err(failed)? {
        Some(()) => Ok(from.query_row("SELECT MAX(version) FROM schema_version", [], |row| row.get(0)).ok().flatten()),
        None => Err(Error::InUse { path: source.path().to_owned(), users: Vec::new() }),
    }
}

/// How many working copies lie beside the store.
pub(super) fn leftovers(store: &Path) -> usize {
    let (Some(folder), Some(name)) = (store.parent(), store.file_name()) else { return 0 };
    let works = [name.as_encoded_bytes(), MARK.as_bytes()].concat();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sidecars = ["-wal", "-shm", "-journal"];
    entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            name.starts_with(&works) && !sidecars.iter().any(|sidecar| name.ends_with(sidecar.as_bytes()))
        })
        .count()
}

/// A name beside the store's that nothing has yet, of this kind and with this stamp; the time in UTC without one.
pub(in crate::backend::sqlite) fn free_name(store: &Path, mark: &str, stamp: Option<&str>) -> PathBuf {
    let stamp = stamp.map_or_else(|| utc(SystemTime::now()), str::to_owned);
    let first = sidecar(store, &format!("{mark}{stamp}"));
    let more = (2..).map(|number| sidecar(store, &format!("{mark}{stamp}_{number}")));
    std::iter::once(first.clone()).chain(more).find(|name| FileIdentity::of(name).is_none()).unwrap_or(first)
}

/// `YYYYMMDD_HHMMSS` in UTC.
fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, in eras of 400 years.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}_{:02}{:02}{:02}", second / 3_600, second / 60 % 60, second % 60)
}

/// Gives a file the owner and mode of another.
pub(in crate::backend::sqlite) fn like(model: &Path, path: &Path) -> std::io::Result<()> {
    let found = std::fs::metadata(model)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let own = std::fs::metadata(path)?;
        if (own.uid(), own.gid()) != (found.uid(), found.gid()) {
            std::os::unix::fs::chown(path, Some(found.uid()), Some(found.gid()))?;
        }
    }
    std::fs::set_permissions(path, found.permissions())
}

pub(in crate::backend::sqlite) fn told(path: &Path, error: &std::io::Error) -> Error {
    Error::Directory { path: path.to_owned(), message: error.to_string(), errno: error.raw_os_error() }
}

/// Makes the new name durable; where a folder cannot be synced, the system does it in its own time.
#[expect(clippy::disallowed_methods, reason = "a folder, never a store")]
pub(in crate::backend::sqlite) fn sync_folder(store: &Path) {
    if let Some(folder) = store.parent() {
        let _ = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_stamp_is_the_time_in_utc() {
        for (seconds, stamp) in [
            (0, "19700101_000000"),
            (951_782_400, "20000229_000000"),
            (1_767_225_599, "20251231_235959"),
            (4_107_542_400, "21000301_000000"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), stamp);
        }
    }
}
