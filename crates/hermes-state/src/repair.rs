//! What is said of a file's health, and of what a repair did.

use std::path::PathBuf;

/// How closely a file is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CheckDepth {
    /// What stands on a page must make sense; takes some ten seconds at most. Of a file so large that this does not do for
    /// every page, sessions and messages come first, and what was not looked at is told.
    #[default]
    Quick,
    /// Every page is read; every row must be in every index, and nothing else, every message must have its session and every
    /// counter be right.
    Full,
}

/// A part of a store that a check tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Part {
    /// The table of sessions.
    Sessions,
    /// The table of messages.
    Transcript,
    /// The indexes, those for searching and the ordinary ones, which hold nothing that is not elsewhere.
    Index,
    /// The other tables.
    Others,
    /// The files beside the main one.
    Sidecars,
    /// Writes that wait beside the store.
    Spool,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 6] =
        [Part::Sessions, Part::Transcript, Part::Index, Part::Others, Part::Sidecars, Part::Spool];

    /// Those that stand in the store's own files.
    pub(crate) const OF_FILES: [Part; 5] =
        [Part::Sessions, Part::Transcript, Part::Index, Part::Others, Part::Sidecars];

    /// Its name for programs and people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Part::Sessions => "sessions",
            Part::Transcript => "transcript",
            Part::Index => "index",
            Part::Others => "others",
            Part::Sidecars => "sidecars",
            Part::Spool => "spool",
        }
    }
}

/// How a part is, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PartState {
    /// Nothing was found.
    Well,
    /// There is something to know about it.
    Noted,
    /// There was no time for all of it.
    Unfinished,
    /// It is damaged.
    Damaged,
}

impl PartState {
    /// Its name for programs and people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PartState::Well => "well",
            PartState::Noted => "noted",
            PartState::Unfinished => "unfinished",
            PartState::Damaged => "damaged",
        }
    }
}

/// How a part of a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartHealth {
    /// Which part.
    pub part: Part,
    /// How it is.
    pub state: PartState,
    /// What was found, at most a hundred findings.
    pub findings: Vec<String>,
    /// What to do next, if anything.
    pub next_step: Option<String>,
}

/// How a file is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Health {
    /// What is wrong, in SQLite's words, at most a hundred findings; empty if nothing is.
    pub problems: Vec<String>,
    /// The tables some of whose rows cannot be read. What is wrong elsewhere costs no message.
    pub unreadable: Vec<String>,
    /// How each part is.
    pub parts: Vec<PartHealth>,
}

impl Health {
    /// Whether nothing is damaged.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.problems.is_empty() && !self.is_spool_damaged()
    }

    fn is_spool_damaged(&self) -> bool {
        self.parts.iter().any(|part| part.part == Part::Spool && part.state == PartState::Damaged)
    }

    /// The finding in a few words.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match (self.problems.is_empty(), self.unreadable.is_empty()) {
            (true, _) if self.is_spool_damaged() => "spool damaged, store intact",
            (true, _) => "well",
            (false, true) => "index damaged, transcript intact",
            (false, false) => "transcript damaged",
        }
    }
}

/// How a file is repaired.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RepairOptions {
    /// Keep the damaged file beside the repaired one, as `<name>.malformed-backup-<stamp>`. It is kept in any case where
    /// rows could not be read.
    pub backup: bool,
    /// Also mend what keeps nobody from working: messages whose session is not there, and messages that a search index lacks.
    pub thorough: bool,
    /// Put what could be repaired into this file, which must not be there yet, and leave the store as and where it is. It may
    /// then be in use.
    pub into: Option<PathBuf>,
    /// What the backup's name ends with, such as the time; the time in UTC without one.
    pub stamp: Option<String>,
}

impl Default for RepairOptions {
    fn default() -> Self {
        Self { backup: true, thorough: true, into: None, stamp: None }
    }
}

/// By which means a file was repaired, from the mildest to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairStrategy {
    /// Nothing was wrong.
    AlreadyHealthy,
    /// Messages whose session was not there got one.
    AdoptOrphans,
    /// The search indexes were filled anew.
    RebuildFts,
    /// The ordinary indexes were made anew.
    ReindexBtree,
    /// Objects that stood twice in the schema stand there once.
    DedupSchema,
    /// The search indexes were taken out; the next opening makes them anew.
    DropFtsRebuild,
    /// Every row that could be read was put into a new file.
    SalvageRows,
}

impl RepairStrategy {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AlreadyHealthy => "already_healthy",
            Self::AdoptOrphans => "adopt_orphans",
            Self::RebuildFts => "rebuild_fts",
            Self::ReindexBtree => "reindex_btree",
            Self::DedupSchema => "dedup_schema",
            Self::DropFtsRebuild => "drop_fts_rebuild",
            Self::SalvageRows => "salvage_rows",
        }
    }
}

/// What a repair did.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RepairReport {
    /// The store.
    pub path: PathBuf,
    /// What helped.
    pub strategy: RepairStrategy,
    /// Where the damaged file is now, if it was kept.
    pub backup: Option<PathBuf>,
    /// The new file, if it was not to take the place of the damaged one.
    pub into: Option<PathBuf>,
    /// The tables of the repaired file; empty if nothing was wrong.
    pub tables: Vec<RepairedTable>,
    /// What else its owner may want to know: what was wrong, and what did not help.
    pub notes: Vec<String>,
}

impl RepairReport {
    /// Whether rows are lost, or may be.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        self.tables.iter().any(|table| table.lost > 0 || table.incomplete)
    }
}

/// One table of a repaired file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairedTable {
    /// Its name.
    pub name: String,
    /// Rows that it had, by what could be counted: its own pages, or an index that names each of them; `None` if neither
    /// could be read to the end.
    pub before: Option<u64>,
    /// Rows that it has now.
    pub rows: u64,
    /// Rows that an index still names and that could not be read, or that no table would take.
    pub lost: u64,
    /// Rows with bytes that were no text; they stand there as U+FFFD.
    pub mended: u64,
    /// Rows that were made because others refer to them: sessions of which only messages are left.
    pub made: u64,
    /// Whether part of the table could not be read and no index tells how many rows were there.
    pub incomplete: bool,
}
