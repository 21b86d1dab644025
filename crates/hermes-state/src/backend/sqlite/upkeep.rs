//! Keeping a file's full-text indexes in order, in steps that hold the write lock shortly.

use rusqlite::Connection;

use super::errors::classify;
use super::schema;
use super::search::table;
use super::segments;
use super::transaction::SqliteTransaction;
use crate::error::{Error, Result};
use crate::search::index::Index;
use crate::search::upkeep::{Backfill, RebuildStatus, Upkeep};

impl Upkeep for SqliteTransaction<'_> {
    fn rebuilding(&mut self, of: Backfill) -> Result<Option<RebuildStatus>> {
        let (last, done) = self.markers(of)?;
        Ok(last.filter(|last| *last > 0).map(|last| RebuildStatus::new(last, done)))
    }

    fn rebuild_step(&mut self, of: Backfill, ids: i64) -> Result<bool> {
        if of == Backfill::InPlace {
            return self.about(|connection| schema::in_place_step(connection, ids.max(1)));
        }
        let cjk = of == Backfill::Pairs;
        if cjk && !self.state.cjk() || !self.about(|connection| schema::can_be_filled(connection, cjk))? {
            return Ok(false);
        }
        let (Some(last), done) = self.markers(of)? else { return Ok(false) };
        self.about(|connection| schema::step(connection, cjk, done, last, ids.max(1)))
    }

    fn begin_rebuild(&mut self, of: Backfill) -> Result<usize> {
        let (kept, cjk) = (self.about(schema::kept_indexes)?, self.state.cjk());
        let joins = |cjk| -> Result<bool> {
            let ours = self.about(|connection| schema::is_ours(connection, cjk))?;
            Ok(ours && !self.state.is_damaged(self.connection))
        };
        match of {
            Backfill::InPlace => self.about(schema::begin_in_place),
            Backfill::Pairs if !cjk || !self.about(|connection| schema::can_be_filled(connection, true))? => Ok(0),
            Backfill::Pairs if joins(true)? => Ok(1),
            Backfill::Pairs => self.about(schema::renew_cjk).map(|()| 1),
            Backfill::Main if joins(false)? => Ok(kept[..2].len()),
            Backfill::Main => self.about(|connection| {
                // Old layouts have no markers by which triggers would know what is filled in.
                let at_once = [false, true].map(|trigrams| schema::rebuild_legacy(connection, trigrams));
                let rebuilt: usize =
                    at_once.into_iter().map(|done| done.map(usize::from)).sum::<rusqlite::Result<_>>()?;
                if rebuilt == 0 {
                    schema::renew(connection)?;
                }
                Ok(if rebuilt == 0 { kept[..2].len() } else { rebuilt })
            }),
        }
    }

    fn is_outdated(&mut self) -> Result<bool> {
        let cjk = self.state.cjk();
        self.about(|connection| schema::is_due(connection, cjk))
    }

    fn is_damaged(&mut self) -> Result<bool> {
        // Files of the oldest releases have no table for markers.
        let marked = schema::is_marked_damaged(self.connection).unwrap_or(false);
        Ok(marked || self.state.is_damaged(self.connection))
    }

    fn replace_layout(&mut self, always: bool) -> Result<i64> {
        if !always && (self.markers(Backfill::Main)?.0.is_some() || !self.about(schema::is_legacy)?) {
            return Ok(0);
        }
        self.about(schema::renew)
    }

    fn ensure_pairs(&mut self) -> Result<()> {
        if self.state.cjk() { self.about(schema::ensure_cjk) } else { Ok(()) }
    }

    fn clear_step(&mut self, rows: i64) -> Result<bool> {
        self.about(|connection| schema::clear_step(connection, rows.max(1)))
    }

    fn settle_layout(&mut self) -> Result<()> {
        self.about(schema::settle)
    }

    fn mergeable(&mut self) -> Result<Vec<Index>> {
        let mut indexes = vec![Index::Words, Index::Trigrams];
        if self.state.cjk() {
            indexes.push(Index::Pairs);
        }
        Ok(indexes.into_iter().filter(|index| can_be_read(self.connection, table(*index))).collect())
    }

    /// FTS5 says whether it found anything to merge by the number of rows it changed.
    fn merge_step(&mut self, index: Index, first: bool, pages: i32) -> Result<bool> {
        let table = table(index);
        // Below zero it takes all parts of the index for parts to be merged, from then on those that it began with.
        let all = first && self.about(|connection| segments::Parts::read(connection, table))?.are_worth_merging();
        let pages = if all { -pages } else { pages };
        self.about(|connection| {
            let before = connection.total_changes();
            connection
                .prepare_cached(&format!("INSERT INTO {table} ({table}, rank) VALUES ('merge', ?1)"))?
                .execute([pages])?;
            Ok(connection.total_changes() - before >= 2)
        })
    }

    fn can_read_table(&mut self, name: &str) -> Result<bool> {
        Ok(can_be_read(self.connection, name))
    }
}

/// Whether a table can be read here: it may need a module or a tokenizer that is not.
pub(super) fn can_be_read(connection: &Connection, table: &str) -> bool {
    let table = table.replace('"', "\"\"");
    connection
        .prepare(&format!("SELECT * FROM \"{table}\" LIMIT 0"))
        .and_then(|mut rows| rows.query([])?.next().map(drop))
        .is_ok()
}

impl SqliteTransaction<'_> {
    fn about<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        work(self.connection).map_err(|error| self.failed(&error))
    }

    /// The highest id that a rebuild goes to, if there is one, and how far it has come.
    pub(super) fn markers(&self, of: Backfill) -> Result<(Option<i64>, i64)> {
        if of == Backfill::InPlace {
            let found = self.about(schema::in_place)?;
            return Ok(found.map_or((None, 0), |[done, last]| (Some(last), done)));
        }
        let found = match schema::markers(self.connection, of == Backfill::Pairs) {
            Ok(found) => found,
            // Files of the oldest releases have no table for them, and no rebuild.
            Err(error) if super::errors::extended_code(&error) == rusqlite::ffi::SQLITE_ERROR => return Ok((None, 0)),
            Err(error) => return Err(classify(self.path, &error)),
        };
        let number = |text: String| {
            let parsed = text.trim().parse::<i64>();
            parsed.map_err(|_| Error::Invalid(format!("a marker of the search index is no number: {text:?}")))
        };
        let Some(last) = found.high_water.map(number).transpose()? else { return Ok((None, 0)) };
        Ok((Some(last), found.progress.map(number).transpose()?.unwrap_or(0)))
    }
}
