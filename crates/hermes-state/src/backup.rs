//! How a store is backed up and restored, and what is said of it.

use std::path::PathBuf;

use crate::repair::{CheckDepth, Health};

/// How a store is backed up.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct BackupOptions {
    /// How closely the copy is looked at before it takes its name.
    pub check: CheckDepth,
    /// Copy also where the backup that is there holds the same already.
    pub always_copy: bool,
}

/// How a store is restored.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RestoreOptions {
    /// How closely the backup is looked at before it becomes the store.
    pub check: CheckDepth,
    /// What the name of the store that is replaced ends with, such as the time; the time in UTC without one.
    pub stamp: Option<String>,
}

/// What a backup or a restoring is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackupPhase {
    /// The store is compared with the backup that is there, row by row up to the first difference.
    Comparing,
    /// Pages are copied.
    Copying,
    /// The copy is looked at.
    Verifying,
}

impl BackupPhase {
    /// Its name for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Comparing => "comparing",
            Self::Copying => "copying",
            Self::Verifying => "verifying",
        }
    }
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupProgress {
    /// What is being done.
    pub phase: BackupPhase,
    /// Pages copied, or tables compared.
    pub done: u64,
    /// Of how many.
    pub total: u64,
}

impl BackupProgress {
    pub(crate) fn new(phase: BackupPhase, done: u64, total: u64) -> Self {
        Self { phase, done, total }
    }
}

/// What a backup came to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BackupReport {
    /// The backup, absolute and without symbolic links.
    pub target: PathBuf,
    /// Whether the store was copied; `false` if the backup that is there holds the same, and nothing was written.
    pub copied: bool,
    /// The size of the backup.
    pub bytes: u64,
    /// Its sessions.
    pub sessions: i64,
    /// Its messages.
    pub messages: i64,
    /// What is wrong with search indexes that came along, as they are in the store; of an unchanged backup nothing is
    /// told. A copy with messages that cannot be read is never kept.
    pub health: Health,
}

/// What restoring came to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The store, absolute and without symbolic links.
    pub path: PathBuf,
    /// The backup it was restored from.
    pub backup: PathBuf,
    /// Where the file is now that was the store before; `None` if there was none, or an empty one.
    pub kept: Option<PathBuf>,
    /// Where the log of that file is now, if it could not be merged.
    pub kept_log: Option<PathBuf>,
    /// The size of the store.
    pub bytes: u64,
    /// Its sessions.
    pub sessions: i64,
    /// Its messages.
    pub messages: i64,
    /// What is wrong with search indexes that came along.
    pub health: Health,
}
