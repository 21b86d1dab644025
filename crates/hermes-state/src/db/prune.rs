//! Clean-ups: deleting and archiving what is old, and mending what was left behind.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::SessionDb;
use super::steps::{StepProgress, goes_on, unwatched};
use crate::clock;
use crate::error::Result;
use crate::op::archive::ArchiveLineages;
use crate::op::finalize::FinalizeOrphans;
use crate::query::prune::{self, PruneFilter, PrunePlan, Reason};
use crate::session::Session;

/// How long a terminal that was closed again without a word is kept, in seconds.
const GHOST: f64 = 86_400.0;

impl SessionDb {
    /// What [`prune_sessions`](SessionDb::prune_sessions) would do. Open sessions whose owner is gone are told apart
    /// whether or not the filter asks for them; see [`PruneFilter::abandoned`].
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a number that is none.
    pub fn plan_prune(&self, filter: &PruneFilter) -> Result<PrunePlan> {
        filter.check()?;
        let (filter, owners_since) = (filter.clone(), self.owners_since()?);
        self.read(move |transaction| prune::plan(transaction, &filter, owners_since))
    }

    /// The sessions that [`prune_sessions`](SessionDb::prune_sessions) would delete, oldest first, each with `id`,
    /// `source`, `title`, `model`, `started_at`, `ended_at`, `message_count` and `archived`.
    ///
    /// # Errors
    /// As [`plan_prune`](SessionDb::plan_prune).
    pub fn list_prune_candidates(&self, filter: &PruneFilter) -> Result<Vec<Session>> {
        let reason = self.pruned(filter)?;
        self.read(move |transaction| prune::chosen(transaction, &reason))
    }

    /// Deletes the sessions that meet the filter with their messages and all that they delegated, in steps; other children
    /// stay, without a parent. Returns how many met it. Files go as with [`delete_session`](SessionDb::delete_session).
    ///
    /// ```
    /// use hermes_state::{NewSession, PruneFilter, SessionDb};
    /// let folder = tempfile::tempdir().unwrap();
    /// let db = SessionDb::open(folder.path().join("state.db"))?;
    /// db.create_session(NewSession::new("done", "cli"))?;
    /// db.create_session(NewSession::new("live", "cli"))?;
    /// db.end_session("done", "cli_close")?;
    /// assert_eq!(db.prune_sessions(&PruneFilter::older_than_days(90.0), None)?, 0);
    /// assert_eq!(db.prune_sessions(&PruneFilter::default(), None)?, 1);
    /// assert!(db.session("live")?.is_some());
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of every write, and as [`plan_prune`](SessionDb::plan_prune).
    pub fn prune_sessions(&self, filter: &PruneFilter, files: Option<&Path>) -> Result<usize> {
        self.prune_sessions_with(filter, files, &mut unwatched)
    }

    /// As [`prune_sessions`](SessionDb::prune_sessions); `watch` hears before each step how many sessions of the list are
    /// done, delegates among them, and answers whether to go on.
    ///
    /// # Errors
    /// As [`prune_sessions`](SessionDb::prune_sessions).
    pub fn prune_sessions_with(
        &self,
        filter: &PruneFilter,
        files: Option<&Path>,
        watch: &mut dyn FnMut(StepProgress) -> ControlFlow<()>,
    ) -> Result<usize> {
        self.delete_all(self.pruned(filter)?, files, watch)
    }

    /// Archives the sessions that meet the filter, each with the conversation that it is part of, in steps. Returns how
    /// many met it. Without [`archived`](PruneFilter::archived) it takes those that are archived already, too.
    ///
    /// # Errors
    /// Those of every write, and as [`plan_prune`](SessionDb::plan_prune).
    pub fn archive_sessions(&self, filter: &PruneFilter) -> Result<usize> {
        self.archive_sessions_with(filter, &mut unwatched)
    }

    /// As [`archive_sessions`](SessionDb::archive_sessions); `watch` hears before each step how many sessions are done, and
    /// answers whether to go on. Returns how many that are.
    ///
    /// # Errors
    /// As [`archive_sessions`](SessionDb::archive_sessions).
    pub fn archive_sessions_with(
        &self,
        filter: &PruneFilter,
        watch: &mut dyn FnMut(StepProgress) -> ControlFlow<()>,
    ) -> Result<usize> {
        let reason = self.pruned(filter)?;
        let list: Arc<[String]> = self.read(move |transaction| prune::ids(transaction, &reason))?.into();
        let mut from = 0;
        while from < list.len() && goes_on(watch, from, u64::try_from(list.len()).ok()) {
            let began = Instant::now();
            from = self.routine(ArchiveLineages { list: list.clone(), from })?;
            if from < list.len() {
                self.rest(began)?;
            }
        }
        Ok(from)
    }

    fn pruned(&self, filter: &PruneFilter) -> Result<Reason> {
        filter.check()?;
        // Nothing but what was left open depends on who is there.
        let owners_since = if filter.abandoned { self.owners_since()? } else { f64::NEG_INFINITY };
        Ok(Reason::Pruned { filter: Box::new(filter.clone()), owners_since })
    }

    /// Deletes sessions of terminals (`tui`) that were closed without a word, a title or a message, and began more than a
    /// day ago. Their children stay, without a parent. Returns how many there were.
    ///
    /// # Errors
    /// Those of every write.
    pub fn prune_empty_ghost_sessions(&self, files: Option<&Path>) -> Result<usize> {
        self.delete_all(Reason::Ghost { before: clock::now() - GHOST }, files, &mut unwatched)
    }

    /// Ends continuations of compressed conversations that hold messages but were never taken up, a week after they
    /// began: `orphaned_compression`. Returns how many there were.
    ///
    /// # Errors
    /// Those of every write.
    pub fn finalize_orphaned_compression_sessions(&self) -> Result<usize> {
        self.routine(FinalizeOrphans)
    }
}
