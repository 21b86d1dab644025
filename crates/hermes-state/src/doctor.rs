//! What an examination of a store and its surroundings has found.

use std::path::PathBuf;
use std::time::Duration;

use crate::spool::SpoolStatus;
use crate::status::User;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Worth knowing, nothing more.
    Notice,
    /// The store works, but not as it could, or not for long.
    Warning,
    /// The store cannot be used as it should be.
    Problem,
    /// The store is damaged.
    Damage,
}

impl Severity {
    /// Its name for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Severity::Notice => "notice",
            Severity::Warning => "warning",
            Severity::Problem => "problem",
            Severity::Damage => "damage",
        }
    }
}

/// Something that was found, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about, in a word: `store`, `file system`, `journal`, `schema`, `log`, `index`, `spool`, `space`,
    /// `permissions`, `writer`, `server`.
    pub about: &'static str,
    /// What was found.
    pub message: String,
    /// The one thing to do next.
    pub next_step: String,
}

impl Finding {
    pub(crate) fn new(
        severity: Severity,
        about: &'static str,
        message: impl Into<String>,
        next_step: impl Into<String>,
    ) -> Self {
        Self { severity, about, message: message.into(), next_step: next_step.into() }
    }
}

/// Whether something works, as far as it could be tried.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Probe {
    /// It was tried and works.
    Works,
    /// It was tried and does not; this is how.
    Fails(String),
    /// It could not be tried; this is why.
    NotTested(String),
}

impl Probe {
    /// Its outcome for programs: `works`, `fails`, `not tested`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Probe::Works => "works",
            Probe::Fails(_) => "fails",
            Probe::NotTested(_) => "not tested",
        }
    }

    /// How it fails, or why it was not tried.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Probe::Works => None,
            Probe::Fails(reason) | Probe::NotTested(reason) => Some(reason),
        }
    }
}

/// The file system that the folder of a store is on.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FileSystem {
    /// Its kind, such as `ext4`, `nfs4`, `tmpfs`, if the system tells.
    pub kind: Option<String>,
    /// Where it is mounted.
    pub mount: Option<PathBuf>,
    /// Bytes that this user may still take.
    pub free_bytes: Option<u64>,
    /// Whether what one writes into a mapped file another sees.
    pub shared_memory: Probe,
    /// Whether the lock of one owner keeps another out.
    pub locks: Probe,
}

/// Who may do what with a file or folder of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileAccess {
    /// The file or folder.
    pub path: PathBuf,
    /// Its permission bits, such as `0o600`.
    pub mode: u32,
    /// The number of its owner.
    pub owner: u32,
    /// The number of its group.
    pub group: u32,
}

/// How far the search indexes are behind the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexLag {
    /// How far they are filled, in percent.
    pub filled: i64,
    /// Messages that they do not hold yet.
    pub unindexed: i64,
    /// Whether searches read messages themselves meanwhile.
    pub degraded: bool,
}

/// The store as one file, and what is around it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FileExamination {
    /// The file system of its folder.
    pub file_system: FileSystem,
    /// The journal mode that this release asks for.
    pub journal_configured: &'static str,
    /// The journal mode that the file has; `None` if it cannot be read.
    pub journal_effective: Option<String>,
    /// The version of SQLite in this program.
    pub sqlite_version: &'static str,
    /// Bytes of the main file.
    pub main_bytes: u64,
    /// Bytes of the write-ahead log.
    pub wal_bytes: u64,
    /// Bytes of the log's shared index.
    pub shm_bytes: u64,
    /// Bytes within the file that hold nothing.
    pub unused_bytes: Option<u64>,
    /// Frames of the log that count.
    pub wal_frames: Option<u64>,
    /// Those that are not in the main file yet.
    pub wal_unmerged: Option<u64>,
    /// The store, its sidecars and its folder, as far as they are there.
    pub access: Vec<FileAccess>,
}

/// The store on a server, and the connection to it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerExamination {
    /// The server's own word on its version.
    pub version: String,
    /// The schema.
    pub schema: String,
    /// Bytes of the schema's tables with their indexes.
    pub bytes: u64,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
    /// How long a question that costs nothing takes, the best of some.
    pub latency: Duration,
    /// The role that is connected.
    pub role: String,
    /// Whether the role may store messages.
    pub may_write: bool,
    /// Whether the role may bring the schema up to date.
    pub may_upgrade: bool,
    /// Connections of all clients to the server, as far as this role sees them.
    pub connections: i64,
    /// How many the server takes.
    pub max_connections: i64,
}

/// What was found of one store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Examination {
    /// The file, or the URL without its password.
    pub location: PathBuf,
    /// Whether there is a store.
    pub exists: bool,
    /// The version of this program.
    pub program_version: &'static str,
    /// The schema version that this program writes.
    pub schema_supported: i64,
    /// The schema version of the store.
    pub schema_version: Option<i64>,
    /// If it is a file.
    pub file: Option<FileExamination>,
    /// If it is on a server.
    pub server: Option<ServerExamination>,
    /// The search indexes, if they can be asked.
    pub index: Option<IndexLag>,
    /// When the newest message was written, in seconds since 1970.
    pub newest_message: Option<f64>,
    /// What its spool holds; `None` if there is no place for one, or it cannot be read.
    pub spool: Option<SpoolStatus>,
    /// Who has the store open, as far as this user may see them.
    pub open_by: Vec<User>,
    /// What there is to say about it, the worst first.
    pub findings: Vec<Finding>,
}

impl Examination {
    pub(crate) fn of(location: PathBuf, schema_supported: i64) -> Self {
        Self {
            location,
            exists: false,
            program_version: env!("CARGO_PKG_VERSION"),
            schema_supported,
            schema_version: None,
            file: None,
            server: None,
            index: None,
            newest_message: None,
            spool: None,
            open_by: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// How bad the worst finding is; `None` if there is nothing to say.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// Adds what is to be said of any store, and puts the worst first.
    pub(crate) fn conclude(mut self) -> Self {
        if let Some(found) = self.schema_version {
            let supported = self.schema_supported;
            if found > supported {
                self.findings.push(Finding::new(
                    Severity::Problem,
                    "schema",
                    format!("it has schema version {found} of a newer release and can only be read (this one writes {supported})"),
                    "Upgrade this program.",
                ));
            } else if found < supported {
                self.findings.push(Finding::new(
                    Severity::Notice,
                    "schema",
                    format!("it has schema version {found} of an older release"),
                    "Nothing: the next program of this release that opens it for writing brings it up to date.",
                ));
            }
        }
        if let Some(index) = self.index.filter(|index| index.degraded) {
            self.findings.push(Finding::new(
                Severity::Warning,
                "index",
                format!(
                    "the search indexes are filled to {} % and lack {} messages, which searches read themselves",
                    index.filled, index.unindexed
                ),
                "Run `hermes-state repair`, which fills them while others go on.",
            ));
        }
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        self
    }
}
