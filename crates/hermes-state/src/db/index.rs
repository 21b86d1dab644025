//! Keeping the search indexes in order: rebuilding, merging, bringing old layouts up to date.
//!
//! All of it is done in steps that hold the write lock for some hundredths of a second, with pauses between them, so that
//! neither siblings nor threads of this process notice. Whoever is killed in between leaves work that anybody can go on
//! with.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::SessionDb;
use super::steps::{LOCK_WAIT, StepProgress, goes_on, unwatched};
use crate::error::{Error, Result};
use crate::op::index::{BeginRebuild, ClearStep, EnsurePairs, MergeStep, RebuildStep, ReplaceLayout, SettleLayout};
use crate::search::index::Index;
use crate::search::upkeep::{Backfill, RebuildStatus};

/// How work on the indexes is cut into steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepPace {
    /// At most so many ids of messages a step. A step also ends when it has indexed about as much text as can be done
    /// without anybody noticing.
    pub rows: i64,
    /// How much longer than a step the pause behind it is.
    pub duty_factor: f64,
    /// The shortest pause.
    pub min_pause: Duration,
}

impl Default for StepPace {
    fn default() -> Self {
        Self { rows: 500, duty_factor: 4.0, min_pause: Duration::from_millis(200) }
    }
}

/// How [`SessionDb::optimize_fts_storage`] goes about it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OptimizeOptions {
    /// Whether the file is rewritten at the end, to give free space back. That is one long hold of the write lock.
    pub vacuum: bool,
    /// The steps.
    pub pace: StepPace,
}

impl Default for OptimizeOptions {
    fn default() -> Self {
        Self { vacuum: true, pace: StepPace::default() }
    }
}

/// What [`SessionDb::optimize_fts_storage`] is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptimizePhase {
    /// Messages are indexed.
    Backfill,
    /// What was replaced is removed.
    Teardown,
    /// The file is rewritten.
    Vacuum,
    /// It is over.
    Done,
}

impl OptimizePhase {
    /// Its name in the Python module and the command.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Backfill => "backfill",
            Self::Teardown => "teardown",
            Self::Vacuum => "vacuum",
            Self::Done => "done",
        }
    }
}

/// How far [`SessionDb::optimize_fts_storage`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptimizeProgress {
    /// What it is at.
    pub phase: OptimizePhase,
    /// How far indexing is; `None` once it is done. It may begin again for the index of Chinese, Japanese and Korean.
    pub rebuilding: Option<RebuildStatus>,
}

/// How many steps of merging one call makes for one index: what is left is gone on with by the next.
const MERGE_STEPS: usize = 256;

/// How many pages a step of merging has at most, and how long it may take before the next ones have fewer.
const MERGE_PAGES: i32 = 64;
const MERGE_TIME: Duration = Duration::from_millis(10);

impl SessionDb {
    /// How far a rebuild of the search indexes has come that some process has begun; `None` if there is none. Until it is
    /// done, searches read the rows that it has not reached.
    ///
    /// # Errors
    /// Those of every read; [`Error::Invalid`] for markers that are no numbers.
    pub fn fts_rebuild_status(&self) -> Result<Option<RebuildStatus>> {
        self.read(|transaction| transaction.rebuilding(Backfill::Main))
    }

    /// The same of the index of Chinese, Japanese and Korean, which does not answer before it is done.
    ///
    /// # Errors
    /// As [`fts_rebuild_status`](SessionDb::fts_rebuild_status).
    pub fn fts_cjk_rebuild_status(&self) -> Result<Option<RebuildStatus>> {
        self.read(|transaction| transaction.rebuilding(Backfill::Pairs))
    }

    /// Indexes the next `rows` ids of a rebuild that is going on; says whether there is more. Any number of processes may
    /// do this side by side: none does what another has done. Does nothing on a handle that only reads.
    ///
    /// # Errors
    /// Those of every write. [`Error::Busy`] passes.
    pub fn fts_rebuild_step(&self, rows: i64) -> Result<bool> {
        self.rebuild_step(Backfill::Main, rows)
    }

    /// The same of the index of Chinese, Japanese and Korean. Nothing is done where its tokenizer is not everybody's, or
    /// while the index is marked as having gaps.
    ///
    /// # Errors
    /// As [`fts_rebuild_step`](SessionDb::fts_rebuild_step).
    pub fn fts_cjk_rebuild_step(&self, rows: i64) -> Result<bool> {
        self.rebuild_step(Backfill::Pairs, rows)
    }

    fn rebuild_step(&self, of: Backfill, ids: i64) -> Result<bool> {
        // Most calls find nothing to do, which takes no lock to see. A rebuild whose end is at zero has no status.
        if self.is_read_only() || !self.read(move |transaction| transaction.is_outdated())? {
            return Ok(false);
        }
        self.routine(RebuildStep { of, ids })
    }

    /// Whether [`optimize_fts_storage`](SessionDb::optimize_fts_storage) has something to do: an index of an older
    /// release's layout, a rebuild that is not done, leftovers of one. `false` on a handle that only reads.
    ///
    /// # Errors
    /// Those of every read.
    pub fn fts_optimize_available(&self) -> Result<bool> {
        Ok(!self.is_read_only() && self.read(|transaction| transaction.is_outdated())?)
    }

    /// Brings the storage of the search indexes up to date: replaces the layout of an older release, finishes rebuilds,
    /// removes leftovers and, on request, rewrites the file. Takes minutes on a large store, during which everything works;
    /// may be ended at any point, also by an error of `progress`, and called again. Says whether the file was rewritten,
    /// which may fail without harm; `None` if it was not asked for or is not the store's business.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let db = hermes_state::SessionDb::open(folder.path().join("state.db"))?;
    /// if db.fts_optimize_available()? {
    ///     db.optimize_fts_storage(&Default::default(), &mut |progress| {
    ///         println!("{}", progress.phase.name());
    ///         Ok(())
    ///     })?;
    /// }
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of every write but [`Error::Busy`], which is waited out; those of `progress`.
    pub fn optimize_fts_storage(
        &self,
        options: &OptimizeOptions,
        progress: &mut dyn FnMut(&OptimizeProgress) -> Result<()>,
    ) -> Result<Option<bool>> {
        self.check_writable()?;
        let pace = options.pace;
        self.routine(ReplaceLayout { always: false })?;
        self.routine(EnsurePairs {})?;
        let mut tell = |phase| progress(&OptimizeProgress { phase, rebuilding: self.any_rebuild()? });
        tell(OptimizePhase::Backfill)?;
        self.in_steps(pace, &mut || {
            let more = self.fts_rebuild_step(pace.rows)?;
            if more { tell(OptimizePhase::Backfill) } else { Ok(()) }.map(|()| more)
        })?;
        tell(OptimizePhase::Backfill)?;
        self.in_steps(pace, &mut || {
            let more = self.fts_cjk_rebuild_step(pace.rows)?;
            if more { tell(OptimizePhase::Backfill) } else { Ok(()) }.map(|()| more)
        })?;
        tell(OptimizePhase::Teardown)?;
        self.in_steps(pace, &mut || {
            let more = self.routine(ClearStep { rows: pace.rows })?;
            if more { tell(OptimizePhase::Teardown) } else { Ok(()) }.map(|()| more)
        })?;
        let mut rewritten = None;
        if options.vacuum {
            tell(OptimizePhase::Vacuum)?;
            rewritten = match self.open_store()?.rewrite(self.patience().routine) {
                Ok(done) => done.then_some(true),
                Err(error @ (Error::Busy { .. } | Error::Full { .. } | Error::Engine { .. })) => {
                    tracing::warn!(path = %self.path().display(), "the file was not rewritten: {error}");
                    Some(false)
                }
                Err(error) => return Err(error),
            };
        }
        self.routine(SettleLayout {})?;
        tell(OptimizePhase::Done)?;
        Ok(rewritten)
    }

    fn any_rebuild(&self) -> Result<Option<RebuildStatus>> {
        self.read(|transaction| match transaction.rebuilding(Backfill::Main)? {
            None => transaction.rebuilding(Backfill::Pairs),
            main => Ok(main),
        })
    }

    /// Repeats a step while it says that there is more. A lock that is not to be had in time is waited for once more.
    fn in_steps(&self, pace: StepPace, step: &mut dyn FnMut() -> Result<bool>) -> Result<()> {
        loop {
            let started = Instant::now();
            match step() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error @ (Error::Busy { .. } | Error::LockedOnServer { .. })) => {
                    tracing::warn!(path = %self.path().display(), "a step on the search indexes is tried again: {error}");
                }
                Err(error) => return Err(error),
            }
            let pause = started.elapsed().mul_f64(pace.duty_factor.max(0.0)).max(pace.min_pause);
            std::thread::sleep(pause);
            self.check_interrupt()?;
        }
    }

    /// Sets the indexes of an older release's layout aside and begins the current ones; returns up to which id these have
    /// to be filled. [`optimize_fts_storage`](SessionDb::optimize_fts_storage) does this first.
    ///
    /// # Errors
    /// Those of every write.
    pub fn demote_legacy_fts_to_trash(&self) -> Result<i64> {
        self.routine(ReplaceLayout { always: true })
    }

    /// Makes the search indexes anew from the messages and returns how many there are. In steps, behind each of which
    /// others get their turn; writes and searches go on meanwhile. A rebuild that is going on, of whatever process, is
    /// joined. Indexes of the oldest layout, which know no steps, are rebuilt at one go. An index of Chinese, Japanese and Korean that is marked as having gaps stays so.
    ///
    /// # Errors
    /// Those of every write but [`Error::Busy`], of which an index that was left out for it tells in the log.
    pub fn rebuild_fts(&self, pace: StepPace) -> Result<usize> {
        self.rebuild_fts_with(pace, &mut unwatched)
    }

    /// As [`rebuild_fts`](SessionDb::rebuild_fts); `watch` hears after each step which id is indexed, and answers whether to
    /// go on. What is left then is gone on with by the next call, or by [`fts_rebuild_step`](SessionDb::fts_rebuild_step).
    ///
    /// # Errors
    /// As [`rebuild_fts`](SessionDb::rebuild_fts).
    pub fn rebuild_fts_with(
        &self,
        pace: StepPace,
        watch: &mut dyn FnMut(StepProgress) -> ControlFlow<()>,
    ) -> Result<usize> {
        let (mut rebuilt, mut going) = (0, true);
        for of in [Backfill::InPlace, Backfill::Main, Backfill::Pairs] {
            if !going || of == Backfill::Main && rebuilt > 0 {
                continue;
            }
            let begun = self.unless_refused("rebuilt", self.patiently(BeginRebuild { of }, LOCK_WAIT))?;
            if let Some(count @ 1..) = begun {
                rebuilt += count;
                self.in_steps(pace, &mut || {
                    let more = self.rebuild_step(of, pace.rows)?;
                    let status = self.read(move |transaction| transaction.rebuilding(of))?;
                    going =
                        status.is_none_or(|status| goes_on(watch, status.indexed, u64::try_from(status.total).ok()));
                    Ok(more && going)
                })?;
            }
        }
        if rebuilt > 0 && going {
            self.in_steps(pace, &mut || self.routine(ClearStep { rows: pace.rows }))?;
        }
        Ok(rebuilt)
    }

    /// Merges the search indexes, in bounded steps, so that searches find what they want in fewer places; results stay as
    /// they are. Returns how many indexes were merged. One of whose parts most are merged already is left as it is. What is
    /// left of a very large one is gone on with by the next call, of any process.
    ///
    /// # Errors
    /// Those of every write but [`Error::Busy`], of which an index that was left out for it tells in the log.
    pub fn optimize_fts(&self) -> Result<usize> {
        self.optimize_fts_with(&mut unwatched)
    }

    /// As [`optimize_fts`](SessionDb::optimize_fts); `watch` hears after each step how many there were, and answers whether
    /// to go on.
    ///
    /// # Errors
    /// As [`optimize_fts`](SessionDb::optimize_fts).
    pub fn optimize_fts_with(&self, watch: &mut dyn FnMut(StepProgress) -> ControlFlow<()>) -> Result<usize> {
        let (mut merged, mut steps, mut going) = (0, 0, true);
        for index in self.read(|transaction| transaction.mergeable())? {
            if !going {
                break;
            }
            let outcome = self.merge(index, &mut || {
                steps += 1;
                going = goes_on(watch, steps, None);
                going
            });
            merged += usize::from(self.unless_refused("merged", outcome)?.is_some());
        }
        Ok(merged)
    }

    /// Merges one index in steps, as large as leaves the lock to others soon.
    fn merge(&self, index: Index, goes_on: &mut dyn FnMut() -> bool) -> Result<()> {
        let mut pages = MERGE_PAGES;
        for step in 0..MERGE_STEPS {
            let began = Instant::now();
            let patience = if step == 0 { LOCK_WAIT } else { self.patience().routine };
            let (more, took) = self.patiently(MergeStep { index, first: step == 0, pages }, patience)?;
            if !goes_on() || !more {
                break;
            }
            pages = if took > MERGE_TIME { (pages / 2).max(MERGE_PAGES / 8) } else { (pages * 2).min(MERGE_PAGES) };
            self.rest(began)?;
        }
        Ok(())
    }

    /// `None` for what was refused for a reason that has nothing to do with the index.
    fn unless_refused<T>(&self, what: &str, outcome: Result<T>) -> Result<Option<T>> {
        match outcome {
            Ok(done) => Ok(Some(done)),
            Err(error) if is_operational(&error) => {
                tracing::warn!(path = %self.path().display(), "a search index was not {what}: {error}");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the engine has a table of this name and can read it.
    ///
    /// # Errors
    /// Those of a handle that is closed or inherited.
    pub fn fts_table_exists(&self, name: &str) -> Result<bool> {
        let name = name.to_owned();
        self.read(move |transaction| transaction.can_read_table(&name))
    }
}

fn is_operational(error: &Error) -> bool {
    matches!(
        error,
        Error::Busy { .. }
            | Error::LockedOnServer { .. }
            | Error::ReadOnly { .. }
            | Error::TooNew { .. }
            | Error::Full { .. }
            | Error::Engine { .. }
    )
}
