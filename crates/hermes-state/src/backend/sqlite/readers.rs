//! A store's reading connections: a few, each lent to one read at a time, none ever waiting for a writer.

use std::cell::Cell;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::connection::{Location, leave_log_alone, open_reader};
use super::engine::patiently;
use super::errors::classify;
use super::identity::{FileIdentity, StoreIdentity, sidecar};
use super::index_state::IndexState;
use super::lock::crew;
use super::onlooker::{self, Reading};
use super::part::{self, SEARCH_FOR_PART};
use super::soundness::Soundness;
use super::transaction::{Met, SqliteTransaction};
use crate::error::{Error, Result};
use crate::transaction::Transaction;

/// More would cost descriptors and memory and, on the few cores agents run on, gain nothing.
const MOST: usize = 4;

/// How long a read waits where one can be made to wait at all: with a rollback journal, while a writer writes its
/// pages; with a log, only in the instant in which another process recovers or removes it.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the damaged part of a file is looked for behind a read that could do without it.
const SEARCH_BESIDE: Duration = Duration::from_millis(500);

/// The pool of one store.
pub(super) struct Readers {
    location: Location,
    onlooker: bool,
    /// The files that are read, as they were when the store was opened.
    identity: OnceLock<StoreIdentity>,
    pool: Mutex<Pool>,
    returned: Condvar,
    state: Arc<IndexState>,
    soundness: Arc<Soundness>,
    /// Hears of the end of the last merge of the log that was begun in the background.
    merging: Mutex<Option<Receiver<()>>>,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Reading>,
    lent: usize,
}

impl Readers {
    /// An empty pool; `onlooker` if the store is only looked at.
    pub(super) fn new(location: Location, onlooker: bool, state: Arc<IndexState>, soundness: Arc<Soundness>) -> Self {
        Self {
            location,
            onlooker,
            identity: OnceLock::new(),
            pool: Mutex::default(),
            returned: Condvar::new(),
            state,
            soundness,
            merging: Mutex::default(),
        }
    }

    /// Takes over a connection that was opened otherwise.
    pub(super) fn adopt(&self, reading: Reading) {
        self.pool().idle.push(reading);
    }

    /// The path of the store that is read.
    pub(super) fn path(&self) -> &Path {
        self.location.path()
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `read` in one read transaction, so that all its statements see the same state of the store. Runs on a
    /// crew thread; see [`permit`](Readers::permit).
    pub(super) fn read<T>(&self, read: impl FnOnce(&mut dyn Transaction) -> Result<T>) -> Result<T> {
        let state = &self.state;
        self.read_directly(|connection, path| {
            let met = Cell::default();
            let result = read(&mut SqliteTransaction { connection, path, state, met: &met });
            if met.get() == Met::Damage { self.judged(connection, path, result) } else { result }
        })
    }

    /// What it means that statements of a read met damage: if it is that of a search index, which the next write begins
    /// anew, the read has done without; anything else ends all writing.
    fn judged<T>(&self, connection: &Connection, path: &Path, result: Result<T>) -> Result<T> {
        if let Err(Error::Corrupt { part, .. }) = self.soundness.check() {
            return result.map_err(|error| error.in_part(part));
        }
        let found = part::find(connection, if result.is_ok() { SEARCH_BESIDE } else { SEARCH_FOR_PART });
        let is_search = found.as_ref().map_or(result.is_ok(), |part| part.is_search);
        let name = found.map(|part| part.name);
        if is_search {
            self.state.note_damage();
            return result;
        }
        let code = rusqlite::ffi::SQLITE_CORRUPT;
        let message = rusqlite::ffi::code_to_str(code).to_owned();
        self.soundness.note(&Error::Corrupt { path: path.to_owned(), message, part: name.clone(), code });
        result.map_err(|error| error.in_part(name))
    }

    /// As [`read`](Readers::read), for reads that are about SQLite itself.
    pub(super) fn read_directly<T>(&self, read: impl FnOnce(&Connection, &Path) -> Result<T>) -> Result<T> {
        let path = self.location.path();
        self.check_files()?;
        let reading = self.begin()?;
        let result = read(&reading.connection, path);
        if reading.connection.execute_batch("COMMIT").is_ok() {
            self.pool().idle.push(reading);
        }
        result
    }

    /// Refuses files that are no longer the store's.
    fn check_files(&self) -> Result<()> {
        if let Some(identity) = self.identity.get() {
            self.soundness.check_files()?;
            // A connection made now would read the new log by the index of the old one.
            identity.check().inspect_err(|fault| self.soundness.note(fault))?;
        }
        Ok(())
    }

    fn lend(&self) -> Result<Reading> {
        let idle = self.pool().idle.pop();
        match idle {
            Some(reading) => Ok(reading),
            // A new connection reads the schema, for which it may have to wait too.
            None => patiently_reading(self.location.path(), || match self.onlooker {
                true => onlooker::open(&self.location),
                false => open_reader(&self.location).map(Reading::from),
            }),
        }
    }

    /// A connection in a read transaction, which has its snapshot.
    fn begin(&self) -> Result<Reading> {
        let path = self.location.path();
        loop {
            let reading = self.lend()?;
            // The first statement takes the snapshot; it is the one that may have to wait.
            let current = patiently_reading(path, || {
                reading.connection.execute_batch("BEGIN")?;
                let seen = reading.connection.query_row("SELECT 1 FROM sqlite_schema LIMIT 1", [], |_| Ok(()));
                let current = match seen {
                    Ok(()) | Err(rusqlite::Error::QueryReturnedNoRows) => reading.is_current(path),
                    Err(error) => Err(error),
                };
                if !matches!(current, Ok(true)) {
                    reading.connection.execute_batch("ROLLBACK")?;
                }
                current
            })?;
            if current {
                return Ok(reading);
            }
        }
    }

    /// Merges the log into the main file as far as that makes nobody wait: beside the writer, whose writes go on. Runs on
    /// a crew thread.
    pub(super) fn merge_log(&self) -> Result<()> {
        self.soundness.check()?;
        self.check_files()?;
        let reading = self.lend()?;
        let merged = reading.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        self.pool().idle.push(reading);
        merged.map_err(|error| classify(self.location.path(), &error))
    }

    /// Begins to merge the log on another thread of the crew; `false` if that was done since this was last asked, so that
    /// what is left is little.
    pub(super) fn begin_to_merge_log(self: &Arc<Self>) -> bool {
        let mut merging = self.merging.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(end) = merging.as_ref() {
            if end.try_recv() == Err(TryRecvError::Empty) {
                return true;
            }
            *merging = None;
            return false;
        }
        let (done, end) = sync_channel(1);
        let readers = self.clone();
        let started = crew::owners().start(move || {
            // Somebody else merging, or a full disk, is no fault of the writes that are done.
            let _ = readers.merge_log();
            // Before the sign: who waits for it closes the connections, which may not be left to this thread.
            drop(readers);
            let _ = done.send(());
        });
        *merging = started.is_ok().then_some(end);
        merging.is_some()
    }

    /// Waits for the end of a merge that is going on.
    pub(super) fn wait_for_merge(&self) {
        let merging = self.merging.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(end) = merging {
            let _ = end.recv();
        }
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
            let taken =
                if self.onlooker { StoreIdentity::take_as_found(path, wal) } else { StoreIdentity::take(path, wal) };
            if let Ok(identity) = taken {
                let _ = self.identity.set(identity);
            }
        }
    }

    /// Closes the idle connections. One that looks may be the last of all and then merges a log; never one that is not
    /// the store's any more, or that is damaged.
    pub(super) fn close(&self) {
        let is_unsound =
            self.soundness.check().is_err() || self.identity.get().is_some_and(|identity| identity.check().is_err());
        for reading in std::mem::take(&mut self.pool().idle) {
            if is_unsound {
                leave_log_alone(&reading.connection);
            }
        }
    }
}

/// Begins a read transaction, which sees the store as it is now.
pub(super) fn begin_reading(connection: &Connection, path: &Path) -> Result<()> {
    patiently_reading(path, || {
        connection.execute_batch("BEGIN")?;
        // The first statement takes the snapshot; it is the one that may have to wait.
        let seen = connection.query_row("SELECT 1 FROM sqlite_schema LIMIT 1", [], |_| Ok(()));
        if let Err(error) = seen
            && error != rusqlite::Error::QueryReturnedNoRows
        {
            connection.execute_batch("ROLLBACK")?;
            return Err(error);
        }
        Ok(())
    })
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
