//! The copy while it is being made: beside the name that it is for, and locked, so that nobody else works on it. The lock
//! ends with the process; what a killed one leaves is nobody's and is removed by the next.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::super::connection::{Location, open_existing};
use super::super::errors::{cannot_open, classify, is_busy};
use super::super::identity::{FileIdentity, sidecar};
use super::super::repair::work::{like, remove, sync_folder, told};
use super::super::status;
use super::super::store::birth;
use super::watch::Watch;
use crate::error::{Error, Holder, Result};

const MARK: &str = ".unfinished";

/// A copy that is being made; removed when it is dropped without having been put in its place.
pub(super) struct Draft {
    /// Open as long as the draft is.
    connection: Option<Connection>,
    path: PathBuf,
    target: PathBuf,
    placed: bool,
}

impl Draft {
    /// Makes an empty one for `target`, readable for this user only.
    pub(super) fn begin(target: &Path, watch: &Watch) -> Result<Self> {
        let path = sidecar(target, MARK);
        loop {
            watch.check()?;
            birth::create_private(&path);
            let Some(found) = FileIdentity::of(&path) else { return Err(cannot_open(path)) };
            let fresh = status::bytes(&path) == 0;
            let mut connection = match lock(&path) {
                Ok(connection) => connection,
                Err(error) if is_busy(&error) => return Err(in_use(&path)),
                Err(error) => match classify(target, &error) {
                    // It could be read, so nobody has it locked: it is what a killed process left.
                    Error::Corrupt { .. } | Error::NotADatabase { .. } if !fresh => {
                        remove(&path);
                        continue;
                    }
                    error => return Err(error),
                },
            };
            // Somebody may have put it in its place, and it is no draft any more.
            if FileIdentity::of(&path) != Some(found) {
                continue;
            }
            if fresh {
                let cancelled = watch.cancelled();
                let heed = connection.progress_handler(10_000, Some(move || cancelled.is_set()));
                heed.map_err(|error| classify(target, &error))?;
                return Ok(Self { connection: Some(connection), path, target: target.to_owned(), placed: false });
            }
            remove(&path);
        }
    }

    pub(super) fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("open as long as the draft is")
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where it is to be.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// Lets it stand by itself: without a log, and durable.
    pub(super) fn finish(&mut self) -> Result<()> {
        let target = self.target.clone();
        let set = |error: rusqlite::Error| classify(&target, &error);
        let connection = self.connection();
        connection.pragma_update(None, "synchronous", "FULL").map_err(set)?;
        let mode: String = connection.query_row("PRAGMA journal_mode=DELETE", [], |row| row.get(0)).map_err(set)?;
        if mode != "delete" {
            let message = format!("the log of {} could not be merged", self.path.display());
            return Err(Error::Engine { message, code: 0 });
        }
        Ok(())
    }

    /// Gives it the owner and mode of the file that it is to replace.
    pub(super) fn take_after_target(&self) -> Result<()> {
        match FileIdentity::of(&self.target) {
            Some(_) => like(&self.target, &self.path).map_err(|error| told(&self.path, &error)),
            None => Ok(()),
        }
    }

    /// Renames it to its name, in one step.
    pub(super) fn put_in_place(mut self) -> Result<()> {
        std::fs::rename(&self.path, &self.target).map_err(|error| told(&self.target, &error))?;
        self.placed = true;
        sync_folder(&self.target);
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.placed {
            remove(&self.path);
        }
        drop(self.connection.take());
        if !self.placed {
            // What closing has left.
            remove_sidecars(&self.path);
        }
    }
}

fn remove_sidecars(path: &Path) {
    for suffix in ["-wal", "-shm", "-journal"] {
        let _ = std::fs::remove_file(sidecar(path, suffix));
    }
}

/// Opens it and locks it for as long as it is open. Nothing that is put into it needs a journal: until it has its name
/// it is worth nothing.
fn lock(path: &Path) -> rusqlite::Result<Connection> {
    let connection = open_existing(&Location::File(path.to_owned()))?;
    connection.query_row("PRAGMA locking_mode=EXCLUSIVE", [], |_| Ok(()))?;
    connection.query_row("PRAGMA journal_mode=OFF", [], |_| Ok(()))?;
    connection.execute_batch("BEGIN EXCLUSIVE; COMMIT")?;
    Ok(connection)
}

/// Somebody else is making the same.
fn in_use(path: &Path) -> Error {
    let users = status::users(path).into_iter().map(|user| Holder {
        pid: user.pid,
        program: user.program,
        operation: None,
        since: user.open_for,
    });
    Error::InUse { path: path.to_owned(), users: users.collect() }
}
