//! Gives the space of what was deleted back: in small steps that nobody feels, or by rewriting the whole file.

use std::time::{Duration, Instant};

use super::engine::{SqliteEngine, patiently};
use super::errors::classify;
use crate::backend::{Operation, WriteEngine};
use crate::error::{Error, Result};

/// How long a step should hold the write lock.
const STEP: Duration = Duration::from_millis(20);

/// Pages of a step: at first, and at most.
const FIRST: i64 = 128;
const MOST: i64 = 8192;

/// Steps of a file whose free pages are given back.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    pages: i64,
}

impl Default for Steps {
    fn default() -> Self {
        Self { pages: FIRST }
    }
}

impl SqliteEngine {
    fn number(&self, pragma: &str) -> Result<i64> {
        let asked = self.connection().query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0));
        asked.map_err(|error| classify(self.location().path(), &error))
    }

    /// The size of the store, with what its log adds or takes away.
    pub(super) fn bytes(&self) -> Result<u64> {
        let bytes = self.number("page_count")?.saturating_mul(self.number("page_size")?);
        Ok(u64::try_from(bytes).unwrap_or_default())
    }

    /// How much of it is free.
    pub(super) fn free_bytes(&self) -> Result<u64> {
        let bytes = self.number("freelist_count")?.saturating_mul(self.number("page_size")?);
        Ok(u64::try_from(bytes).unwrap_or_default())
    }

    /// Gives some free pages back; `false` when there are none, or the file was born without the means for it.
    pub(super) fn release_some(&mut self, steps: &mut Steps, patience: Duration) -> Result<bool> {
        const INCREMENTAL: i64 = 2;
        self.check_sound()?;
        if self.number("auto_vacuum")? != INCREMENTAL || self.number("freelist_count")? == 0 {
            return Ok(false);
        }
        let done = self.release_in_turn(steps, Instant::now() + patience, patience);
        self.rollback();
        self.end();
        done.map(|()| true)
    }

    fn release_in_turn(&mut self, steps: &mut Steps, until: Instant, patience: Duration) -> Result<()> {
        if !self.begin(Operation::Vacuum, until)? {
            return Err(self.late(patience));
        }
        let started = Instant::now();
        let release = || -> rusqlite::Result<()> {
            // A page a row: it has to be asked until it has no more to say.
            let mut statement = self.connection().prepare(&format!("PRAGMA incremental_vacuum({})", steps.pages))?;
            let mut rows = statement.query([])?;
            while rows.next()?.is_some() {}
            Ok(())
        };
        release().map_err(|error| classify(self.location().path(), &error))?;
        if !self.commit(until)? {
            return Err(self.late(patience));
        }
        let took = started.elapsed();
        steps.pages = if took > STEP { (steps.pages / 2).max(1) } else { (steps.pages * 2).min(MOST) };
        Ok(())
    }

    /// Rewrites the whole file. Readers are not in the way; writers wait until it is done.
    pub(super) fn vacuum(&mut self, patience: Duration) -> Result<()> {
        let done = self.vacuum_in_turn(Instant::now() + patience, patience);
        // The default of our connections would hold the whole store in memory.
        let _ = self.connection().pragma_update(None, "temp_store", "MEMORY");
        self.rollback();
        self.end();
        done?;
        // The log is as long as the store now.
        self.cut_log()
    }

    fn vacuum_in_turn(&mut self, until: Instant, patience: Duration) -> Result<()> {
        if !self.begin(Operation::Vacuum, until)? {
            return Err(self.late(patience));
        }
        // SQLite rewrites a file outside of transactions only. The turn is still ours.
        self.rollback();
        let done = self
            .connection()
            .pragma_update(None, "temp_store", "FILE")
            .and_then(|()| patiently(until, || self.connection().execute_batch("VACUUM")));
        match done.map_err(|error| classify(self.location().path(), &error))? {
            Some(()) => self.check_files(),
            None => Err(self.late(patience)),
        }
    }

    fn late(&mut self, waited: Duration) -> Error {
        let holder = self.holder();
        self.busy(waited, holder, false)
    }
}
