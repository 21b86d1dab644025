//! What can go wrong, as types that carry the facts and the next step.

use std::path::PathBuf;
use std::time::Duration;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Who holds the write lock of a store, as far as the lock itself and the registry of siblings tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The process that holds the lock.
    pub pid: i32,
    /// The program it runs, if the system tells.
    pub program: Option<String>,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pid {}", self.pid)?;
        match &self.program {
            Some(program) => write!(f, " ({program})"),
            None => Ok(()),
        }
    }
}

/// Everything that an operation on a store can fail with.
///
/// Texts that callers of the older store match on are kept: a busy store says `database is locked`, a read-only one
/// `attempt to write a readonly database`, a missing file `unable to open database file`.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The write lock was not to be had within the patience of the call. The store is well; try again later. The text
    /// leaves out the path: callers look for words such as `disk` in it, which a path may hold.
    #[error(
        "database is locked: another Hermes process{} has held the write lock for the whole {:.1} s that this call waited; the database itself is healthy, retry when that process has finished",
        holder.as_ref().map(|h| format!(", {h},")).unwrap_or_default(), waited.as_secs_f64()
    )]
    Busy {
        /// The store.
        path: PathBuf,
        /// How long this call waited.
        waited: Duration,
        /// Who held the lock when the patience ended, if that could be seen.
        holder: Option<Holder>,
    },

    /// A write to a store that was opened read-only, or whose file the system protects.
    #[error("attempt to write a readonly database: {}", path.display())]
    ReadOnly {
        /// The store.
        path: PathBuf,
    },

    /// The file cannot be opened; `reason` says what is in the way.
    #[error("unable to open database file: {}: {reason}", path.display())]
    CannotOpen {
        /// The store.
        path: PathBuf,
        /// What is in the way and what to do about it.
        reason: String,
    },

    /// The directory of the store cannot be made or entered.
    #[error("cannot create the directory {}: {message}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        message: String,
        /// The system's error number, for callers that tell kinds apart.
        errno: Option<i32>,
    },

    /// The file holds something else than an SQLite database.
    #[error(
        "file is not a database: {} does not begin like one; if it was a store, keep it and its sidecars and restore a backup elsewhere", path.display()
    )]
    NotADatabase {
        /// The store.
        path: PathBuf,
    },

    /// The database file is damaged.
    #[error("database disk image is malformed: {}: {message}; work on a copy, or restore a backup", path.display())]
    Corrupt {
        /// The store.
        path: PathBuf,
        /// SQLite's word on the damage.
        message: String,
        /// SQLite's extended result code.
        code: i32,
    },

    /// The file was written by a release with a newer schema; it can be read, not written.
    #[error(
        "{} has schema version {found}, this release writes version {supported}: it can be read but not written; upgrade this program", path.display()
    )]
    TooNew {
        /// The store.
        path: PathBuf,
        /// The version the file has.
        found: i64,
        /// The version this release writes.
        supported: i64,
    },

    /// The store's files were replaced, removed or truncated under a live handle; nothing is acknowledged any more.
    #[error("{} was replaced while it was open ({what}): nothing is acknowledged any more; close every handle that this process has on it, then open it again", path.display())]
    Replaced {
        /// The store.
        path: PathBuf,
        /// Which of its files changed, and how.
        what: String,
    },

    /// The handle was opened in another process: it does not survive a fork.
    #[error("this handle on {} was opened in another process (pid {opened_by}); open the store again in this one", path.display())]
    Forked {
        /// The store.
        path: PathBuf,
        /// The process that opened the handle.
        opened_by: u32,
    },

    /// The handle was closed.
    #[error("the store {} is closed; open it again", path.display())]
    Closed {
        /// The store.
        path: PathBuf,
    },

    /// No room on the disk of the store.
    #[error("database or disk is full: {}: free some space and try again", path.display())]
    Full {
        /// The store.
        path: PathBuf,
    },

    /// A constraint refused the write: a missing session, a missing role, a title that is taken.
    #[error("{message}")]
    Constraint {
        /// SQLite's text, such as `FOREIGN KEY constraint failed`.
        message: String,
        /// SQLite's extended result code.
        code: i32,
    },

    /// The title belongs to another session.
    #[error(
        "Title '{title}' is already in use by session {holder} (source {holder_source}, {})",
        if *archived { "archived" } else { "not archived" }
    )]
    TitleInUse {
        /// The title asked for.
        title: String,
        /// The session that has it.
        holder: String,
        /// Where that session comes from.
        holder_source: String,
        /// Whether that session is archived.
        archived: bool,
    },

    /// The title is longer than a title may be.
    #[error("Title too long ({length} characters, max {max})")]
    TitleTooLong {
        /// Its length after cleaning, in code points.
        length: usize,
        /// The longest allowed.
        max: usize,
    },

    /// An argument that the contract does not allow; nothing was changed.
    #[error("{0}")]
    Invalid(String),

    /// The caller withdrew its write while it was waiting for the lock; nothing was stored.
    #[error("interrupted while waiting for the write lock; nothing was stored")]
    Interrupted,

    /// Any other error of the database engine.
    #[error("{message}")]
    Engine {
        /// The engine's text.
        message: String,
        /// The engine's extended result code (SQLite) or 0.
        code: i32,
    },
}

impl Error {
    /// The primary SQLite result code behind the error, 0 if there is none. The Python face picks its exception by it.
    #[must_use]
    pub fn sqlite_code(&self) -> i32 {
        match self {
            Error::Busy { .. } => 5,
            Error::ReadOnly { .. } => 8,
            Error::CannotOpen { .. } => 14,
            Error::NotADatabase { .. } => 26,
            Error::Full { .. } => 13,
            Error::Corrupt { code, .. } | Error::Constraint { code, .. } | Error::Engine { code, .. } => code & 0xff,
            _ => 0,
        }
    }
}
