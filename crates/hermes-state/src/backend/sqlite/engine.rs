//! The write side of a store: its one write connection, as the gate drives it.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;

use super::connection::{Location, WalLength, leave_log_alone};
use super::errors::{classify, is_busy};
use super::identity::StoreIdentity;
use super::journal;
use super::lock;
use super::siblings::{Place, Siblings, Standing};
use super::transaction::SqliteTransaction;
use crate::backend::{Attempt, Operation, WriteEngine};
use crate::error::{Error, Holder, Result};
use crate::transaction::Transaction;

/// How often the lock of the file is asked for. Processes of older releases take no turn among ours and do not tell
/// when they are done, so this bounds how late a release is noticed.
const POLL: Duration = Duration::from_micros(500);

/// The writing connection of one store.
pub(crate) struct SqliteEngine {
    connection: Connection,
    log: WalLength,
    location: Location,
    identity: Option<StoreIdentity>,
    siblings: Siblings,
    /// Our place in the line of those that want to write, from the first attempt to the end of the write.
    place: Option<Place>,
    pause: Pause,
}

/// The pauses of a writer without a place in line. A hundred of them that all ask every half millisecond leave the one
/// that holds the lock no time to work, so each asks ever more seldom, and not in step with the others.
struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(POLL)
    }
}

impl Pause {
    const LONGEST: Duration = Duration::from_millis(25);

    fn next(&mut self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
        // Between half and one and a half of the pause, by what the clock's last digits happen to be.
        let pause = self.0 / 2 + self.0.mul_f64(f64::from(now / 100 % 1000) / 1000.0);
        self.0 = self.0.mul_f64(1.3).min(Self::LONGEST);
        pause
    }
}

/// Repeats `attempt` while it is refused for somebody's lock, until `deadline`. One attempt is always made.
pub(super) fn patiently<T>(
    deadline: Instant,
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    loop {
        match attempt() {
            Ok(done) => return Ok(Some(done)),
            Err(error) if is_busy(&error) => {}
            Err(error) => return Err(error),
        }
        let now = Instant::now();
        if now >= deadline {
            return Ok(None);
        }
        thread::sleep(POLL.min(deadline - now));
    }
}

impl SqliteEngine {
    /// Takes over a connection in its final journal mode on a store that has been read once.
    pub(super) fn new((connection, log): (Connection, WalLength), location: Location) -> Result<Self> {
        let (identity, siblings) = match &location {
            Location::File(path) => {
                let wal = journal::mode(&connection).map_err(|error| classify(path, &error))? == "wal";
                (Some(StoreIdentity::take(path, wal)?), Siblings::join(path))
            }
            Location::Memory(_) => (None, Siblings::none()),
        };
        Ok(Self { connection, log, location, identity, siblings, place: None, pause: Pause::default() })
    }

    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    fn path(&self) -> &Path {
        self.location.path()
    }

    fn error(&self, error: &rusqlite::Error) -> Error {
        classify(self.path(), error)
    }

    /// Refuses where the store's files are not those that the connection works on.
    pub(super) fn check_identity(&self) -> Result<()> {
        self.identity.as_ref().map_or(Ok(()), StoreIdentity::check)
    }

    fn leave_line(&mut self) {
        if let Some(place) = self.place.take() {
            place.leave(&self.siblings);
        }
    }

    /// Merges as much of the log into the main file as can be done without making anybody wait. A log that nobody else
    /// sees any more is never merged: it would write an older state over what others have stored since.
    pub(crate) fn checkpoint(&mut self) -> Result<()> {
        self.check_identity()?;
        self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(|error| self.error(&error))
    }

    /// Closes the connection. The log is merged, and cut off if nobody else is reading or writing: nobody is made to
    /// wait for it, and SQLite removes the sidecars when this was the last connection of all. A store that was replaced
    /// is left as it is: nothing of the old one may get into the new.
    pub(super) fn close(mut self) {
        // Without the log merged the store is whole all the same; the next opener merges it.
        match self.checkpoint() {
            Err(Error::Replaced { .. }) => leave_log_alone(&self.connection),
            _ => drop(self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))),
        }
        drop(self.connection);
    }
}

impl WriteEngine for SqliteEngine {
    const SAVEPOINTS: bool = true;

    fn begin(&mut self, operation: Operation, until: Instant) -> Result<bool> {
        self.check_identity()?;
        let place = self.place.get_or_insert_with(|| Place::take(&self.siblings));
        loop {
            let standing = place.wait(&self.siblings, until.saturating_duration_since(Instant::now()));
            if standing != Standing::Behind {
                match self.connection.execute_batch("BEGIN IMMEDIATE") {
                    Ok(()) => {
                        place.holding(&self.siblings, operation);
                        return Ok(true);
                    }
                    Err(error) if is_busy(&error) => {}
                    Err(error) => return Err(classify(self.location.path(), &error)),
                }
            }
            let now = Instant::now();
            if now >= until {
                return Ok(false);
            }
            match standing {
                Standing::First => thread::sleep(POLL.min(until - now)),
                Standing::Unordered => thread::sleep(self.pause.next().min(until - now)),
                Standing::Overdue | Standing::Behind => {}
            }
        }
    }

    fn transaction(&mut self) -> Box<dyn Transaction + '_> {
        Box::new(SqliteTransaction { connection: &self.connection, path: self.location.path() })
    }

    fn in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    fn commit(&mut self, until: Instant) -> Result<bool> {
        let committed = patiently(until, || self.connection.execute_batch("COMMIT"));
        match committed.map_err(|error| self.error(&error))? {
            Some(()) => {
                // The next in line need not wait for our checks and answers.
                self.leave_line();
                self.check_identity().map(|()| true)
            }
            None => Ok(false),
        }
    }

    fn rollback(&mut self) {
        if self.in_transaction() {
            // An error here means that SQLite has rolled back already, or will when the connection closes.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    fn end(&mut self) {
        self.leave_line();
        self.pause = Pause::default();
        if self.log.calls_for_checkpoint() {
            // Somebody else checkpointing, or a full disk, is no fault of the writes that are done.
            let _ = self.checkpoint();
        }
    }

    fn holder(&mut self) -> Option<Holder> {
        let sibling = self.siblings.holder().and_then(|sibling| sibling.as_holder());
        sibling.or_else(|| lock::holder::of_write_lock(self.path()))
    }

    fn record(&mut self, _: &[Attempt]) -> Result<Vec<Attempt>> {
        Ok(Vec::new())
    }

    /// A file either takes a write or says why not; waiting for its lock is all in `begin`.
    fn is_passing(&self) -> bool {
        false
    }

    fn busy(&self, waited: Duration, holder: Option<Holder>, _: bool) -> Error {
        Error::Busy { path: self.path().to_owned(), waited, holder }
    }
}
