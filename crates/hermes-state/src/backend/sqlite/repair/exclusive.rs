//! The damaged file, held so that nobody else can open it: read from, copied, and in the end replaced.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::super::connection::{Location, leave_log_alone, open_existing, take_any_schema};
use super::super::engine::patiently;
use super::super::errors::{classify, is_busy};
use super::super::identity::{FileIdentity, sidecar};
use super::super::{lock, status};
use super::work::{self, Work};
use crate::error::{Error, Holder, Result};
use crate::repair::RepairOptions;

/// How long somebody who has the file open may take to close it.
const WAIT: Duration = Duration::from_secs(3);
/// How long one attempt lasts. Two that want the file for themselves keep it from each other while they wait, so each
/// lets go of it in between, for a while that differs from process to process.
const ATTEMPT: Duration = Duration::from_millis(100);

/// The only connection on the file.
pub(in crate::backend::sqlite) struct Exclusive {
    connection: Connection,
    path: PathBuf,
    identity: Option<FileIdentity>,
}

impl Exclusive {
    /// Takes the file for itself, or says who has it open. Everybody who works on a file with a log holds a lock on it as
    /// long as it is open, so that getting this one proves that nobody does; in the other journal modes only the
    /// registry and the system know.
    pub(in crate::backend::sqlite) fn take(path: &Path) -> Result<Self> {
        let deadline = Instant::now() + WAIT;
        let mut pause = u64::from(std::process::id() % 97);
        loop {
            match Self::attempt(path) {
                Err(Error::InUse { .. }) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(pause))
                }
                taken => return taken,
            }
            pause = (pause * 3 + 17) % 211;
        }
    }

    fn attempt(path: &Path) -> Result<Self> {
        let in_use = || Error::InUse { path: path.to_owned(), users: users(path) };
        let failed = |error: rusqlite::Error| if is_busy(&error) { in_use() } else { classify(path, &error) };
        let identity = super::identity(path);
        let connection = open_existing(&Location::File(path.to_owned())).map_err(failed)?;
        // Whatever becomes of the repair, closing this connection writes nothing into the damaged file.
        leave_log_alone(&connection);
        take_any_schema(&connection).map_err(failed)?;
        connection.query_row("PRAGMA locking_mode=EXCLUSIVE", [], |_| Ok(())).map_err(failed)?;
        let taken = patiently(Instant::now() + ATTEMPT, || connection.execute_batch("BEGIN EXCLUSIVE; COMMIT"));
        if taken.map_err(failed)?.is_none() || !users(path).is_empty() {
            return Err(in_use());
        }
        Ok(Self { connection, path: path.to_owned(), identity })
    }

    /// Which file it is.
    pub(super) fn identity(&self) -> Option<FileIdentity> {
        self.identity
    }

    fn error(&self, error: &rusqlite::Error) -> Error {
        classify(&self.path, error)
    }

    /// The schema version, if that can be read.
    pub(super) fn schema_version(&self) -> Option<i64> {
        self.connection.query_row("SELECT MAX(version) FROM schema_version", [], |row| row.get(0)).ok().flatten()
    }

    /// Copies the file page by page, whatever stands in them, with what only its log holds.
    pub(super) fn copy_to(&self, copy: &Path) -> Result<()> {
        let failed = |error: rusqlite::Error| self.error(&error);
        let mut target = open_existing(&Location::File(copy.to_owned())).map_err(failed)?;
        let backup = Backup::new(&self.connection, &mut target).map_err(failed)?;
        loop {
            match backup.step(4096).map_err(failed)? {
                StepResult::Done => return Ok(()),
                StepResult::More => {}
                _ => return Err(Error::InUse { path: self.path.clone(), users: users(&self.path) }),
            }
        }
    }

    /// Puts the repaired file in the place of this one. At every moment there is a whole store under its name: first the
    /// damaged one, with all of its log merged, then the repaired one.
    pub(super) fn replace_by(self, repaired: Work, options: &RepairOptions, lossy: bool) -> Result<Option<PathBuf>> {
        repaired.finish(&self.path)?;
        self.merge_log()?;
        let backup = if options.backup || lossy { Some(self.back_up(options)?) } else { None };
        self.remove_sidecars();
        let placed = repaired.take_the_place_of(&self.path);
        if placed.is_err()
            && let Some(backup) = &backup
        {
            // It would be a second name of the store.
            let _ = std::fs::remove_file(backup);
        }
        placed.map(|()| backup)
    }

    /// Merges all of the log, so that the file is whole without it; refuses if it is not the only one's, or another took
    /// its place.
    pub(in crate::backend::sqlite) fn merge_log(&self) -> Result<()> {
        let merged = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        let busy = merged.map_err(|error| self.error(&error))?;
        let log = sidecar(&self.path, "-wal");
        if busy != 0 || status::bytes(&log) > 0 || !users(&self.path).is_empty() {
            return Err(Error::InUse { path: self.path.clone(), users: users(&self.path) });
        }
        if super::identity(&self.path) != self.identity {
            let what = "another file took its place meanwhile".to_owned();
            return Err(Error::Replaced { path: self.path.clone(), what });
        }
        Ok(())
    }

    /// Removes log and index: nobody can have them open, and to the file that takes the place of this one they would be a
    /// stranger's.
    pub(in crate::backend::sqlite) fn remove_sidecars(&self) {
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(sidecar(&self.path, suffix));
        }
    }

    fn back_up(&self, options: &RepairOptions) -> Result<PathBuf> {
        let backup = work::free_name(&self.path, work::BACKUP, options.stamp.as_deref());
        self.keep_as(&backup)?;
        Ok(backup)
    }

    /// Gives the file a second name, under which it stays, or copies it where a file has only one.
    pub(in crate::backend::sqlite) fn keep_as(&self, name: &Path) -> Result<()> {
        if std::fs::hard_link(&self.path, name).is_err() {
            let copy = Work::at(name.to_owned())?;
            self.copy_to(copy.path())?;
            copy.finish(&self.path)?;
            copy.keep();
        }
        Ok(())
    }
}

/// Who has the file open, this process included if it has a store open there.
pub(in crate::backend::sqlite) fn users(path: &Path) -> Vec<Holder> {
    let users = status::users(path).into_iter().map(|user| Holder {
        operation: None,
        pid: user.pid,
        program: user.program,
        since: user.open_for,
    });
    let mut users: Vec<Holder> = users.collect();
    let asking = i32::try_from(std::process::id()).unwrap_or_default();
    if let Some(holder) = lock::holder::of_write_lock(path)
        && holder.pid != asking
        && users.iter().all(|user| user.pid != holder.pid)
    {
        users.push(holder);
    }
    users
}
