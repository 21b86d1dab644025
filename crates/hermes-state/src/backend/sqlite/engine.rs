//! The write side of a store: its one write connection, as the gate drives it.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;

use super::connection::{Location, WalLength, leave_log_alone};
use super::errors::{classify, is_busy};
use super::generation::Generation;
use super::identity::StoreIdentity;
use super::index_state::{Chore, IndexState};
use super::journal;
use super::lock;
use super::part;
use super::readers::Readers;
use super::schema;
use super::search::{DAMAGED_INDEX, has_lost_rows, table};
use super::siblings::{Place, Siblings, Standing};
use super::soundness::Soundness;
use super::transaction::{Met, SqliteTransaction};
use super::upkeep::can_be_read;
use crate::backend::{Attempt, Operation, Stored, WriteEngine};
use crate::error::{Error, Holder, Result};
use crate::search::index::Index;
use crate::search::upkeep::Backfill;
use crate::transaction::Transaction;

/// How often the lock of the file is asked for. Processes of older releases take no turn among ours and do not tell
/// when they are done, so this bounds how late a release is noticed.
const POLL: Duration = Duration::from_micros(500);

/// How many ids are indexed, and how many rows of old indexes removed, behind one write.
const FILLED_IDS: i64 = 500;
const CLEARED_ROWS: i64 = 500;

/// How many pages of the log may be left to merge under the write lock.
const LITTLE: i64 = 100;

/// The writing connection of one store.
pub(crate) struct SqliteEngine {
    connection: Connection,
    log: WalLength,
    location: Location,
    identity: Option<StoreIdentity>,
    generation: Generation,
    soundness: Arc<Soundness>,
    siblings: Siblings,
    /// Our place in the line of those that want to write, from the first attempt to the end of the write.
    place: Option<Place>,
    pause: Pause,
    indexes: Arc<IndexState>,
    /// On their connections long logs are merged.
    readers: Arc<Readers>,
    /// Whether a statement of this transaction met damage, or what may be a sign of it.
    met: Cell<Met>,
    mending: Cell<Mending>,
}

/// What becomes of writes that meet a damaged full-text index: their rows are well, so they are stored, and the index is
/// begun anew before them in the same transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mending {
    NotNeeded,
    /// The next transaction begins with it.
    Wanted(Met),
    /// A suspicion was not confirmed. Damage that is met now is another matter.
    Dismissed,
    /// It was tried in this transaction: what fails now fails for another reason.
    Tried {
        done: bool,
    },
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
    pub(super) fn new(
        (connection, log): (Connection, WalLength),
        location: Location,
        indexes: Arc<IndexState>,
    ) -> Result<Self> {
        let soundness = Soundness::of(location.path());
        let readers = Arc::new(Readers::new(location.clone(), false, indexes.clone(), soundness.clone()));
        let (identity, siblings) = match &location {
            Location::File(path) => {
                let wal = journal::mode(&connection).map_err(|error| classify(path, &error))? == "wal";
                (Some(StoreIdentity::take(path, wal)?), Siblings::join(path))
            }
            Location::Memory(_) => (None, Siblings::none()),
        };
        Ok(Self {
            connection,
            log,
            soundness,
            location,
            identity,
            generation: Generation::default(),
            siblings,
            place: None,
            pause: Pause::default(),
            indexes,
            readers,
            met: Cell::default(),
            mending: Cell::new(Mending::NotNeeded),
        })
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

    /// What is known of the file, by all handles of this process.
    pub(super) fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    pub(super) fn soundness(&self) -> &Arc<Soundness> {
        &self.soundness
    }

    /// Refuses where the store's files are not those that the connection works on, or not what it left in them.
    pub(super) fn check_files(&self) -> Result<()> {
        self.soundness.check_files()?;
        let Some(identity) = &self.identity else { return Ok(()) };
        let checked = identity.check().and_then(|main_bytes| {
            match self.generation.find_fault(&self.connection, main_bytes, identity.has_log()) {
                Some(what) => Err(Error::Replaced { path: self.path().to_owned(), what }),
                None => Ok(()),
            }
        });
        checked.inspect_err(|fault| self.soundness.note(fault))
    }

    /// Refuses to write to a store that is damaged, or is no longer the one that was opened.
    pub(super) fn check_sound(&self) -> Result<()> {
        self.soundness.check()?;
        self.check_files()
    }

    /// Notes damage that is not that of a search index, after which nothing more is written; says where it is. Not to be
    /// asked in a transaction: looking for the place takes its time.
    pub(super) fn judged(&self, mut error: Error) -> Error {
        let is_search = match error {
            Error::NotADatabase { .. } => false,
            Error::Corrupt { code, part: None, .. } => {
                let found = part::find(&self.connection, part::SEARCH_FOR_PART);
                let is_search = found.as_ref().map_or(code == DAMAGED_INDEX, |part| part.is_search);
                error = error.in_part(found.map(|part| part.name));
                is_search
            }
            _ => return error,
        };
        if !is_search {
            self.soundness.note(&error);
        }
        error
    }

    fn begin_immediately(&mut self, operation: Operation, until: Instant) -> Result<bool> {
        self.check_sound()?;
        let place = self.place.get_or_insert_with(|| Place::take(&self.siblings, operation));
        loop {
            let standing = place.wait(&self.siblings, until.saturating_duration_since(Instant::now()));
            if standing != Standing::Behind {
                match self.connection.execute_batch("BEGIN IMMEDIATE") {
                    Ok(()) => {
                        place.holding(&self.siblings, operation);
                        return Ok(true);
                    }
                    Err(error) if is_busy(&error) => {}
                    Err(error) => {
                        let error = classify(self.location.path(), &error);
                        return Err(self.judged(error));
                    }
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

    /// Begins damaged indexes anew, if that is wanted. If it cannot be done the transaction is as if it had not been tried.
    fn mend_indexes(&mut self) -> Result<()> {
        self.met.take();
        let wanted = match self.mending.get() {
            Mending::Wanted(Met::Suspicion) => {
                self.mending.set(Mending::Dismissed);
                let kept = schema::kept_indexes(&self.connection).unwrap_or_default();
                [Index::Words, Index::Trigrams, Index::Pairs].into_iter().any(|index| {
                    let lost = has_lost_rows(&mut *self.transaction(), index);
                    lost.unwrap_or_else(|error| matches!(error, Error::Corrupt { .. }))
                        || kept[index as usize] && !can_be_read(&self.connection, table(index))
                })
            }
            Mending::Wanted(_) => true,
            _ => self.indexes.is_damaged(&self.connection),
        };
        self.met.take();
        if !wanted {
            return Ok(());
        }
        let done = schema::renew_all(&self.connection, self.indexes.cjk()).is_ok();
        if !done {
            self.indexes.forget_damage();
            let again = self.connection.execute_batch("ROLLBACK; BEGIN IMMEDIATE");
            again.map_err(|error| self.error(&error))?;
        }
        self.mending.set(Mending::Tried { done });
        Ok(())
    }

    /// Does what is to be done for the indexes behind a write.
    pub(super) fn tend_indexes(&mut self, chore: Chore) {
        match chore {
            Chore::Fill => {
                let started = Instant::now();
                let more = self.fill_indexes().map_err(|error| self.judged(error));
                self.indexes.note_step(more.ok(), started.elapsed());
            }
            Chore::Look => {
                let pending = schema::pending(&self.connection, self.indexes.cjk(), SystemTime::now());
                self.indexes.note_look(pending.unwrap_or_default());
            }
        }
    }

    /// Indexes a part of what indexes that were begun anew lack, or removes a part of what they were; says whether there is
    /// more. Somebody else's lock ends it for now.
    fn fill_indexes(&mut self) -> Result<bool> {
        let until = Instant::now() + POLL;
        let outcome = match self.begin(Operation::Index, until) {
            Ok(true) => {
                let more = {
                    let mut transaction = self.transaction();
                    let filled = transaction.rebuild_step(Backfill::Main, FILLED_IDS);
                    let filled =
                        filled.and_then(|more| Ok(more || transaction.rebuild_step(Backfill::Pairs, FILLED_IDS)?));
                    filled.and_then(|more| Ok(more || transaction.clear_step(CLEARED_ROWS)?))
                };
                more.and_then(|more| Ok(!self.commit(until)? || more))
            }
            Ok(false) => Ok(true),
            Err(error) => Err(error),
        };
        self.rollback();
        self.end();
        outcome
    }

    /// Notes that opening the store has begun indexes anew, which are to be filled behind the writes.
    pub(super) fn note_begun_indexes(&self) {
        self.indexes.note_begun();
    }

    fn leave_line(&mut self) {
        if let Some(place) = self.place.take() {
            place.leave(&self.siblings);
        }
    }

    /// Merges as much of the log into the main file as can be done without making anybody wait. A log that nobody else
    /// sees any more is never merged: it would write an older state over what others have stored since. Says how many
    /// pages are left.
    pub(crate) fn checkpoint(&mut self) -> Result<i64> {
        self.check_sound()?;
        self.connection
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| Ok(row.get::<_, i64>(1)? - row.get::<_, i64>(2)?))
            .map_err(|error| self.error(&error))
    }

    /// Merges the log and cuts it off, if nobody is reading or writing. Cutting holds the write lock, and merges first what
    /// is left, which then must be little.
    pub(super) fn cut_log(&mut self) -> Result<()> {
        if self.checkpoint()? <= LITTLE {
            let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        }
        Ok(())
    }

    /// Rewrites the file without its free pages. That is one long hold of the write lock, which only its caller can want.
    pub(super) fn rewrite(&mut self, until: Instant) -> Result<()> {
        self.check_sound()?;
        let started = Instant::now();
        let done = patiently(until, || self.connection.execute_batch("VACUUM"));
        match done.map_err(|error| self.judged(self.error(&error)))? {
            Some(()) => self.check_files(),
            None => {
                let holder = self.holder();
                Err(self.busy(started.elapsed(), holder, false))
            }
        }
    }

    /// Closes the connection. The log is merged, and cut off if nobody else is reading or writing: nobody is made to
    /// wait for it, and SQLite removes the sidecars when this was the last connection of all. A store that was replaced
    /// is left as it is: nothing of the old one may get into the new. So is one that is damaged.
    pub(super) fn close(mut self) {
        // The last write may have begun a merge, whose connection would outlive this one.
        self.readers.wait_for_merge();
        self.readers.close();
        // Without the log merged the store is whole all the same; the next opener merges it.
        if self.cut_log().is_err() && self.soundness.check().is_err() {
            leave_log_alone(&self.connection);
        }
        drop(self.connection);
    }
}

impl WriteEngine for SqliteEngine {
    const SAVEPOINTS: bool = true;

    fn begin(&mut self, operation: Operation, until: Instant) -> Result<bool> {
        let begun = self.begin_immediately(operation, until)?;
        if begun {
            self.mend_indexes()?;
        }
        Ok(begun)
    }

    fn transaction(&mut self) -> Box<dyn Transaction + '_> {
        Box::new(SqliteTransaction {
            connection: &self.connection,
            path: self.location.path(),
            state: &self.indexes,
            met: &self.met,
        })
    }

    /// Work on the indexes changes the schema under the feet of whatever shares a transaction with it.
    fn may_share(one: Operation, other: Operation) -> bool {
        one != Operation::Index && other != Operation::Index
    }

    fn in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    fn commit(&mut self, until: Instant) -> Result<bool> {
        // One of the writes of this transaction may have met damage.
        self.soundness.check()?;
        let committed = patiently(until, || self.connection.execute_batch("COMMIT"));
        match committed.map_err(|error| self.error(&error)).inspect_err(|error| Met::note(&self.met, error))? {
            Some(()) => {
                if self.mending.replace(Mending::NotNeeded) == (Mending::Tried { done: true }) {
                    self.indexes.note_renewal();
                }
                // The next in line need not wait for our checks and answers.
                self.leave_line();
                self.check_files().map(|()| true)
            }
            None => Ok(false),
        }
    }

    fn rollback(&mut self) {
        let met = self.met.take();
        let is_new = match self.mending.get() {
            Mending::NotNeeded => met != Met::Nothing,
            Mending::Dismissed => met > Met::Suspicion,
            _ => false,
        };
        if is_new {
            self.mending.set(Mending::Wanted(met));
        }
        if self.in_transaction() {
            // An error here means that SQLite has rolled back already, or will when the connection closes.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    fn end(&mut self) {
        if !matches!(self.mending.get(), Mending::Wanted(_)) {
            self.mending.set(Mending::NotNeeded);
        }
        self.leave_line();
        self.pause = Pause::default();
        if self.log.calls_for_checkpoint()
            && !(self.log.is_long() && self.check_sound().is_ok() && self.readers.begin_to_merge_log())
        {
            // Somebody else checkpointing, or a full disk, is no fault of the writes that are done.
            let _ = self.checkpoint();
        }
    }

    fn holder(&mut self) -> Option<Holder> {
        let sibling = self.siblings.holder().and_then(|sibling| sibling.as_holder());
        sibling.or_else(|| lock::holder::of_write_lock(self.path()))
    }

    fn record(&mut self, _: &[Attempt]) -> Result<Vec<Stored>> {
        Ok(Vec::new())
    }

    /// A file either takes a write or says why not; waiting for its lock is all in `begin`. Damage passes if it is that of
    /// an index, which the next transaction finds out by doing without.
    fn is_passing(&self) -> bool {
        match self.mending.get() {
            Mending::NotNeeded => self.met.get() != Met::Nothing,
            Mending::Dismissed => self.met.get() > Met::Suspicion,
            Mending::Wanted(_) => true,
            Mending::Tried { .. } => false,
        }
    }

    /// What an index is not to blame for is damage of the store itself.
    fn judge(&mut self, error: Error) -> Error {
        if !matches!(self.mending.get(), Mending::Tried { .. }) || !matches!(error, Error::Corrupt { .. }) {
            return error;
        }
        self.rollback();
        self.judged(error)
    }

    fn busy(&self, waited: Duration, holder: Option<Holder>, _: bool) -> Error {
        Error::Busy { path: self.path().to_owned(), waited, holder }
    }
}
