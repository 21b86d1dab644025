//! Upkeep: giving space back, pruning from time to time, and who is there to be disturbed by it.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::SessionDb;
use super::steps::{LOCK_WAIT, StepProgress, Watch, goes_on, unwatched};
use crate::clock;
use crate::error::{Error, Result};
use crate::status::User;

/// The key under which the time of the last automatic prune is kept.
const LAST_PRUNE: &str = "last_auto_prune";

/// From how far ahead a time of the last prune is a fault of a clock, and not of two clocks that differ a little.
const AHEAD: f64 = 86_400.0;

/// What giving space back has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceReport {
    /// Bytes of the store before; on a server, of the schema's tables and indexes.
    pub before: u64,
    /// Bytes of the store afterwards.
    pub after: u64,
}

/// When sessions are pruned without being asked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AutoPruneOptions {
    /// How long after the last time nothing is done.
    pub min_interval: Duration,
    /// Whether the space of what was pruned is given back, in small steps.
    pub vacuum: bool,
}

impl Default for AutoPruneOptions {
    fn default() -> Self {
        Self { min_interval: Duration::from_secs(86_400), vacuum: true }
    }
}

/// What an automatic prune did.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct AutoPruneReport {
    /// It was not time yet, or another process had begun.
    pub skipped: bool,
    /// Sessions that were pruned.
    pub pruned: usize,
    /// Whether space was given back.
    pub vacuumed: bool,
    /// Why not, if it was wanted and failed.
    pub trouble: Option<Error>,
}

impl SessionDb {
    /// Who has the store open: processes of ours with what they do, and others as far as the system shows them.
    ///
    /// # Errors
    /// Those of every read.
    pub fn who(&self) -> Result<Vec<User>> {
        self.open_store()?.users()
    }

    /// Gives the space of what was deleted back, in steps of some milliseconds between which others write. A file that
    /// an older release has made gives back nothing this way; [`vacuum`](SessionDb::vacuum) does. A server gives it to
    /// what comes by itself.
    ///
    /// # Errors
    /// Those of every write.
    pub fn release_space(&self) -> Result<SpaceReport> {
        self.release_space_with(&mut unwatched)
    }

    /// As [`release_space`](SessionDb::release_space); `watch` hears after each step how many bytes were given back, of how
    /// many that were free at the beginning, and answers whether to go on.
    ///
    /// # Errors
    /// Those of every write.
    pub fn release_space_with(&self, watch: &mut dyn FnMut(StepProgress) -> ControlFlow<()>) -> Result<SpaceReport> {
        self.release(self.patience().routine, watch)
    }

    fn release(&self, patience: Duration, watch: Watch<'_>) -> Result<SpaceReport> {
        let (mut step_began, mut interrupted) = (Instant::now(), Ok(()));
        let (before, after) = self.open_store()?.release_space(patience, &mut |done, total| {
            let going = goes_on(watch, done, Some(total));
            if going {
                interrupted = self.rest(step_began);
                step_began = Instant::now();
            }
            going && interrupted.is_ok()
        })?;
        interrupted.map(|()| SpaceReport { before, after })
    }

    /// Gives back what can be given back in steps, as [`release_space`](SessionDb::release_space) does, then rewrites the
    /// whole file without its free space. Every other writer waits until it is done, which on a store of
    /// some gigabytes takes minutes, and twice the space of the store is needed meanwhile; [`who`](SessionDb::who) tells
    /// who would wait. On a server, has it vacuum the schema's tables, as far as this user may.
    ///
    /// # Errors
    /// [`Error::Busy`] after a second, [`Error::Full`], and those of every write. Nothing is lost then.
    pub fn vacuum(&self) -> Result<SpaceReport> {
        let before = self.release(LOCK_WAIT, &mut unwatched)?.before;
        let (_, after) = self.open_store()?.vacuum(LOCK_WAIT)?;
        Ok(SpaceReport { before, after })
    }

    /// Runs `prune` if it was not run for a while, by this process or another, and gives back the space. Of several
    /// processes that come at once one does it. If `prune` fails, the next comer tries again.
    ///
    /// # Errors
    /// Those of every write, and those of `prune`.
    pub fn maybe_auto_prune_and_vacuum(
        &self,
        options: &AutoPruneOptions,
        prune: impl FnOnce(&Self) -> Result<usize>,
    ) -> Result<AutoPruneReport> {
        let seen = self.meta_value(LAST_PRUNE)?;
        let now = clock::now();
        let last = seen.as_str().and_then(|text| text.trim().parse::<f64>().ok()).filter(|last| !last.is_nan());
        let interval = options.min_interval.as_secs_f64();
        if last.is_some_and(|last| now - last < interval && last - now <= AHEAD.max(interval)) {
            return Ok(AutoPruneReport { skipped: true, ..AutoPruneReport::default() });
        }
        let claim = now.to_string();
        if !self.replace_meta(LAST_PRUNE, seen.clone(), claim.as_str())? {
            return Ok(AutoPruneReport { skipped: true, ..AutoPruneReport::default() });
        }
        let pruned = match prune(self) {
            Ok(pruned) => pruned,
            Err(error) => {
                // If that fails too, the first error is still the one to tell.
                let _ = self.replace_meta(LAST_PRUNE, claim.as_str(), seen);
                return Err(error);
            }
        };
        let mut report = AutoPruneReport { pruned, ..AutoPruneReport::default() };
        if options.vacuum && pruned > 0 {
            match self.release_space() {
                Ok(_) => report.vacuumed = true,
                Err(error) => report.trouble = Some(error),
            }
        }
        Ok(report)
    }
}
