//! Long work in steps: how far it is, whether it is to go on, and the pause between two steps.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::SessionDb;
use crate::error::Result;

/// How far long work in steps is. What is not known beforehand has no total.
///
/// Who is told so answers whether the work is to go on. What is done by then is whole and stays, and the same call does the
/// rest another time.
///
/// ```
/// use std::ops::ControlFlow;
/// use hermes_state::{PruneFilter, SessionDb};
/// let folder = tempfile::tempdir().unwrap();
/// let db = SessionDb::open(folder.path().join("state.db"))?;
/// db.prune_sessions_with(&PruneFilter::older_than_days(90.0), None, &mut |progress| {
///     println!("{} of {:?}", progress.done, progress.total);
///     ControlFlow::Continue(())
/// })?;
/// # Ok::<(), hermes_state::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepProgress {
    /// How much is done: sessions of a prune, ids of messages of a rebuild, bytes that were given back, steps of a merge.
    pub done: u64,
    /// Of how much.
    pub total: Option<u64>,
}

/// How long work that nobody's turn needs waits for somebody who is writing before it begins.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(1);

/// Who is told after each step, and answers whether to go on.
pub(super) type Watch<'a> = &'a mut dyn FnMut(StepProgress) -> ControlFlow<()>;

/// Nobody who would end it.
pub(super) fn unwatched(_: StepProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Tells and asks; whether to go on.
pub(super) fn goes_on(watch: Watch<'_>, done: impl TryInto<u64>, total: Option<u64>) -> bool {
    let done = done.try_into().unwrap_or_default();
    watch(StepProgress { done, total }).is_continue()
}

impl SessionDb {
    /// Leaves the lock to others for a while after a step. Siblings of ours stand in line and need no pause; processes of
    /// older releases look for a free lock from time to time, and find none if steps follow each other at once.
    pub(super) fn rest(&self, step_began: Instant) -> Result<()> {
        let pause = (step_began.elapsed() / 4).clamp(Duration::from_millis(1), Duration::from_millis(10));
        std::thread::sleep(pause);
        self.check_interrupt()
    }
}
