//! What an import is allowed, and what it says at its end.

/// How much one import takes, so that it neither fills the memory nor keeps others from writing for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportLimits {
    /// The most sessions.
    pub sessions: usize,
    /// The most messages of one session.
    pub messages_per_session: usize,
    /// The most messages of all sessions.
    pub total_messages: usize,
    /// The most bytes of one session, as JSON without white space in UTF-8.
    pub session_bytes: usize,
    /// The most bytes of all sessions.
    pub total_bytes: usize,
}

impl Default for ImportLimits {
    fn default() -> Self {
        Self {
            sessions: 500,
            messages_per_session: 10_000,
            total_messages: 50_000,
            session_bytes: 5 << 20,
            total_bytes: 25 << 20,
        }
    }
}

/// How sessions are imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportOptions {
    /// How much is taken.
    pub limits: ImportLimits,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// What is wrong with one of the entries of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportProblem {
    /// Its place among the entries, from 0.
    pub index: usize,
    /// The id of its session, if it has one.
    pub session_id: Option<String>,
    /// What is wrong.
    pub error: String,
}

/// What an import has done. If there are errors it has done nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportReport {
    /// The sessions that came in, in the order of the entries.
    pub imported_ids: Vec<String>,
    /// Those that were there and of which nothing was changed.
    pub skipped_ids: Vec<String>,
    /// Those among the imported that came in without the parent they name: it is nowhere, or the links would form a
    /// ring.
    pub detached_ids: Vec<String>,
    /// What is wrong, in the order of the entries, one for each bad one.
    pub errors: Vec<ImportProblem>,
}

impl ImportReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.errors.is_empty()
    }
}
