//! A store's reading connections: a few, each lent to one read at a time, none ever waiting for a writer.

use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::connection::{Location, leave_log_alone, open_onlooker, open_reader};
use super::engine::patiently;
use super::errors::classify;
use super::identity::{FileIdentity, StoreIdentity, sidecar};
use super::lock::crew;
use super::transaction::SqliteTransaction;
use crate::error::{Error, Result};
use crate::transaction::Transaction;

/// More would cost descriptors and memory and, on the few cores agents run on, gain nothing.
const MOST: usize = 4;

/// How long a read waits where one can be made to wait at all: with a rollback journal, while a writer writes its
/// pages; with a log, only in the instant in which another process recovers or removes it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pool of one store.
pub(super) struct Readers {
    location: Location,
    onlooker: bool,
    /// The files that are read, as they were when the store was opened.
    identity: OnceLock<StoreIdentity>,
    pool: Mutex<Pool>,
    returned: Condvar,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Connection>,
    lent: usize,
}

impl Readers {
    /// An empty pool; `onlooker` if the store is only looked at.
    pub(super) fn new(location: Location, onlooker: bool) -> Self {
        Self { location, onlooker, identity: OnceLock::new(), pool: Mutex::default(), returned: Condvar::new() }
    }

    /// Takes over a connection that was opened otherwise.
    pub(super) fn adopt(&self, connection: Connection) {
        self.pool().idle.push(connection);
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `read` in one read transaction, so that all its statements see the same state of the store. Runs on a
    /// crew thread; see [`permit`](Readers::permit).
    pub(super) fn read<T>(&self, read: impl FnOnce(&mut dyn Transaction) -> Result<T>) -> Result<T> {
        self.read_directly(|connection, path| read(&mut SqliteTransaction { connection, path }))
    }

    /// As [`read`](Readers::read), for reads that are about SQLite itself.
    pub(super) fn read_directly<T>(&self, read: impl FnOnce(&Connection, &Path) -> Result<T>) -> Result<T> {
        let path = self.location.path();
        if let Some(identity) = self.identity.get() {
            // A connection made now would read the new log by the index of the old one.
            identity.check()?;
        }
        let idle = self.pool().idle.pop();
        let connection = match idle {
            Some(connection) => connection,
            None if self.onlooker => open_onlooker(&self.location).map_err(|error| classify(path, &error))?,
            None => open_reader(&self.location).map_err(|error| classify(path, &error))?,
        };
        // The first statement takes the snapshot; it is the one that may have to wait.
        patiently_reading(path, || {
            connection.execute_batch("BEGIN")?;
            let seen = connection.query_row("SELECT 1 FROM sqlite_schema LIMIT 1", [], |_| Ok(()));
            if let Err(error) = seen
                && error != rusqlite::Error::QueryReturnedNoRows
            {
                connection.execute_batch("ROLLBACK")?;
                return Err(error);
            }
            Ok(())
        })?;
        let result = read(&connection, path);
        if connection.execute_batch("COMMIT").is_ok() {
            self.pool().idle.push(connection);
        }
        result
    }

    /// Waits until fewer than the most connections are lent, on the caller's own thread so that no crew thread idles.
    pub(super) fn permit(&self) -> Permit<'_> {
        let mut pool = self.pool();
        while pool.lent >= MOST {
            pool = self.returned.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
        pool.lent += 1;
        Permit(self)
    }

    /// Notes which files are read, once they have been read or written.
    pub(super) fn remember_identity(&self) {
        if let Location::File(path) = &self.location {
            let wal = FileIdentity::of(&sidecar(path, "-wal")).is_some();
            if let Ok(identity) = StoreIdentity::take(path, wal) {
                let _ = self.identity.set(identity);
            }
        }
    }

    /// Closes the idle connections. One that looks may be the last of all and then merges a log; never one that is not
    /// the store's any more.
    pub(super) fn close(&self) {
        let replaced = self.identity.get().is_some_and(|identity| identity.check().is_err());
        for connection in std::mem::take(&mut self.pool().idle) {
            if replaced {
                leave_log_alone(&connection);
            }
        }
    }
}

/// Repeats what a reader begins with while somebody's lock is in its way.
pub(super) fn patiently_reading<T>(path: &Path, begin: impl FnMut() -> rusqlite::Result<T>) -> Result<T> {
    let started = Instant::now();
    match patiently(started + PATIENCE, begin).map_err(|error| classify(path, &error))? {
        Some(begun) => Ok(begun),
        None => Err(Error::Busy {
            path: path.to_owned(),
            waited: started.elapsed(),
            holder: super::lock::holder::of_write_lock(path),
        }),
    }
}

/// The right to one connection of the pool.
pub(super) struct Permit<'a>(&'a Readers);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.pool().lent -= 1;
        self.0.returned.notify_one();
    }
}

/// Runs `job` on a crew thread of this process.
pub(super) fn on_crew<T: Send + 'static>(job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    crew::owners().run(job).unwrap_or_else(|error| Err(no_thread(&error)))
}

/// The error for a store that cannot get the threads it needs.
pub(super) fn no_thread(error: &std::io::Error) -> Error {
    Error::Engine { message: format!("no thread could be started for the store: {error}"), code: 0 }
}
