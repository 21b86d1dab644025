//! What a store looks like from outside: its files, its settings, and who uses it.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::backend::sqlite::lock::LockKind;

/// The state of a store at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Status {
    /// The main file, or the URL of the server without its password.
    pub path: PathBuf,
    /// Whether the handle that was asked only reads.
    pub read_only: bool,
    /// What it stands on.
    pub engine: EngineStatus,
    /// The schema version of the store; `None` in a file without one.
    pub schema_version: Option<i64>,
    /// Stored sessions.
    pub sessions: i64,
    /// Stored messages, in any state.
    pub messages: i64,
    /// The processes that have the store open, as far as this user may see them.
    pub open_by: Vec<User>,
}

/// What a store stands on.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum EngineStatus {
    /// A file of this machine.
    #[non_exhaustive]
    File {
        /// Bytes of the main file.
        main_bytes: u64,
        /// Bytes of the write-ahead log; 0 without one.
        wal_bytes: u64,
        /// Bytes of the log's shared index; 0 without one.
        shm_bytes: u64,
        /// The journal mode in effect: `wal`, or `delete` where the file system cannot bear a shared log.
        journal_mode: String,
        /// By which means this process holds its locks.
        lock_kind: LockKind,
    },
    /// A schema on a server.
    #[non_exhaustive]
    Server {
        /// The server's own word on its version.
        version: String,
        /// The schema.
        schema: String,
        /// Bytes of the schema's tables with their indexes.
        bytes: u64,
        /// Whether the connection is encrypted.
        encrypted: bool,
    },
}

/// A process that has a store open.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct User {
    /// Its process id; on a server, that of the server's process which serves it.
    pub pid: i32,
    /// Where it connects from, if the store is on a server and the server tells.
    pub host: Option<String>,
    /// The program it runs, if the system tells.
    pub program: Option<String>,
    /// How long it has had the store open, if that is known.
    pub open_for: Option<Duration>,
    /// Since when; the same each time it is asked for. Unknown of processes that do not tell.
    pub open_since: Option<SystemTime>,
    /// Whether it runs this release or one like it and takes its turn among them; older releases do not.
    pub takes_turns: bool,
    /// What it is writing or waiting to write.
    pub operation: Option<String>,
    /// How long it has been waiting for its turn.
    pub waiting: Option<Duration>,
    /// How long it has held the write lock, if it is one that takes turns.
    pub holding: Option<Duration>,
    /// Whether it holds the write lock.
    pub holds_write_lock: bool,
}
