//! What an open store knows of its full-text indexes: which of them serve at this moment, and which were found damaged.
//!
//! Other processes make, drop and mark indexes at any time, so each search asks; what only changes with the schema is
//! remembered for as long as the schema's number stays the same.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::schema::{self, Note, Pending};
use crate::search::index::{Index, Indexes};

/// How long after damage the indexes are left to whoever calls for a rebuild: people are to see that something happened, and
/// a disk on which damage follows damage must not make every write pay for it.
const PATIENCE: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(60) };

/// How much longer than a step the pause behind it is: others are to write meanwhile.
const DUTY: u32 = if cfg!(test) { 0 } else { 4 };

/// How often it is looked whether work on the indexes was left undone, and when again after it could not be done.
const LOOK: Duration = Duration::from_secs(10);
const LOOK_AFTER_FAILURE: Duration = Duration::from_secs(3600);

/// What a process does for the indexes behind one of its writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chore {
    /// Index some of what is missing.
    Fill,
    /// See whether somebody who began to has stopped.
    Look,
}

/// Shared by all connections of a store.
#[derive(Default)]
pub(super) struct IndexState {
    /// Whether the tokenizer of the cjk index is there for every program on this host.
    cjk: AtomicBool,
    known: Mutex<Known>,
    /// The schema's number when a search found an index damaged that every file has; 0 if none did.
    damaged: AtomicI64,
    /// When this process does its next step of filling indexes that were begun anew, if it has taken that up.
    next_step: Mutex<Option<Instant>>,
    /// When it next looks whether somebody else has left such work undone, and since when it has seen some.
    next_look: Mutex<Option<Instant>>,
    unattended: Mutex<Option<Instant>>,
    /// Whether a step or a look is waiting for its turn.
    step_waits: AtomicBool,
    noted: AtomicBool,
    notes: Mutex<Vec<Note>>,
}

/// What holds for one schema.
#[derive(Clone, Copy, Default)]
struct Known {
    schema: i64,
    kept: [bool; 3],
    /// Which indexes were compared with the rows that they should have.
    compared: [bool; 3],
}

impl IndexState {
    pub(super) fn new(cjk: bool) -> Self {
        Self { cjk: cjk.into(), ..Self::default() }
    }

    pub(super) fn set_cjk(&self, cjk: bool) {
        self.cjk.store(cjk, Ordering::Relaxed);
    }

    pub(super) fn cjk(&self) -> bool {
        self.cjk.load(Ordering::Relaxed)
    }

    /// Which indexes serve, as of the transaction on this connection.
    pub(super) fn indexes(&self, connection: &Connection) -> rusqlite::Result<Indexes> {
        let [words, trigrams, pairs] = self.known(connection)?.kept;
        let pairs = pairs && self.cjk() && {
            let mut marked = connection.prepare_cached(
                "SELECT COUNT(*) FROM state_meta WHERE key IN ('fts_cjk_stale', 'fts_cjk_rebuild_high_water')",
            )?;
            marked.query_row([], |row| Ok(row.get::<_, i64>(0)? == 0))?
        };
        Ok(Indexes { words, trigrams, pairs })
    }

    fn known(&self, connection: &Connection) -> rusqlite::Result<Known> {
        let schema = schema_number(connection)?;
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.schema == schema && schema != 0 {
            return Ok(known);
        }
        let known = Known { schema, kept: schema::kept_indexes(connection)?, compared: [false; 3] };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(known)
    }

    /// Whether the index has been compared with its rows since the schema last changed.
    pub(super) fn is_compared(&self, index: Index) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).compared[index as usize]
    }

    pub(super) fn note_compared(&self, index: Index) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).compared[index as usize] = true;
    }

    /// Notes that an index was found damaged under the schema last asked for.
    pub(super) fn note_damage(&self) {
        let schema = self.known.lock().unwrap_or_else(PoisonError::into_inner).schema;
        self.damaged.store(schema, Ordering::Relaxed);
    }

    /// Whether an index was found damaged that nobody has begun anew since: that changes the schema.
    pub(super) fn is_damaged(&self, connection: &Connection) -> bool {
        let damaged = self.damaged.load(Ordering::Relaxed);
        damaged != 0 && schema_number(connection).is_ok_and(|schema| schema == damaged)
    }

    /// Nothing can be done about it.
    pub(super) fn forget_damage(&self) {
        self.damaged.store(0, Ordering::Relaxed);
    }

    /// Notes that the indexes were begun anew.
    pub(super) fn note_renewal(&self) {
        self.damaged.store(0, Ordering::Relaxed);
        set(&self.next_step, Some(Instant::now() + PATIENCE));
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(Note::IndexesRenewed);
        self.noted.store(true, Ordering::Relaxed);
    }

    /// Notes that an opening has begun the indexes anew: nobody has to see that first.
    pub(super) fn note_begun(&self) {
        set(&self.next_step, Some(Instant::now()));
    }

    /// What is to be logged, by whoever may.
    pub(super) fn take_notes(&self) -> Vec<Note> {
        if !self.noted.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        std::mem::take(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is to be done behind a write; the caller then sees to it and says when it is done.
    pub(super) fn next_chore(&self) -> Option<Chore> {
        let is_due = |time: Option<Instant>| time.is_none_or(|time| Instant::now() >= time);
        let chore = match get(&self.next_step) {
            Some(time) => is_due(Some(time)).then_some(Chore::Fill),
            None => is_due(get(&self.next_look)).then_some(Chore::Look),
        };
        chore.filter(|_| !self.step_waits.swap(true, Ordering::Relaxed))
    }

    /// Notes how a step of filling went that took so long: `None` if it could not be done.
    pub(super) fn note_step(&self, more: Option<bool>, took: Duration) {
        set(&self.next_step, more.filter(|more| *more).map(|_| Instant::now() + took * DUTY));
        set(&self.next_look, Some(Instant::now() + if more.is_some() { LOOK } else { LOOK_AFTER_FAILURE }));
        self.step_waits.store(false, Ordering::Relaxed);
    }

    /// Notes what work on the indexes there is. It is taken up if nobody has been at it for a while.
    pub(super) fn note_look(&self, pending: Option<Pending>) {
        let is_left = match pending {
            None => {
                set(&self.unattended, None);
                false
            }
            Some(Pending { idle: Some(idle) }) => idle >= PATIENCE,
            Some(Pending { idle: None }) => {
                let mut since = self.unattended.lock().unwrap_or_else(PoisonError::into_inner);
                since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE
            }
        };
        if is_left {
            set(&self.next_step, Some(Instant::now()));
        }
        set(&self.next_look, Some(Instant::now() + LOOK));
        self.step_waits.store(false, Ordering::Relaxed);
    }
}

fn get(time: &Mutex<Option<Instant>>) -> Option<Instant> {
    *time.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set(time: &Mutex<Option<Instant>>, to: Option<Instant>) {
    *time.lock().unwrap_or_else(PoisonError::into_inner) = to;
}

fn schema_number(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA schema_version")?.query_row([], |row| row.get(0))
}

#[cfg(test)]
mod tests;
