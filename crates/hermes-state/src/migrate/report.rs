//! What a migration tells while it runs and at its end.

use std::fmt;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MigrationPhase {
    /// Looking for what cannot be copied.
    Checking,
    /// Copying rows.
    Copying,
    /// Reading back what the target holds.
    Comparing,
    /// Filling the search index.
    Indexing,
}

/// How far it is.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct MigrationProgress {
    /// What is being done.
    pub phase: MigrationPhase,
    /// The table it is at.
    pub table: &'static str,
    /// How many rows of all tables are done; message ids while indexing.
    pub done: u64,
    /// Of how many, as of the beginning.
    pub total: u64,
}

/// A row, or a part of one, that cannot be copied as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MigrationProblem {
    /// The table.
    pub table: &'static str,
    /// The row's key, as far as there is one row.
    pub key: Option<String>,
    /// The column, if it is about one.
    pub column: Option<String>,
    /// What is the matter, and what to do.
    pub reason: String,
}

impl fmt::Display for MigrationProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.table)?;
        if let Some(key) = &self.key {
            write!(f, " {key}")?;
        }
        if let Some(column) = &self.column {
            write!(f, ", column {column}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// How one table fared.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TableReport {
    /// Its name.
    pub table: &'static str,
    /// Rows of the source, without those that only concern its engine.
    pub source_rows: u64,
    /// Rows of the target at the end.
    pub target_rows: u64,
    /// A checksum over the rows of the source: equal rows in any order give the same.
    pub source_checksum: String,
    /// The same over the rows of the target.
    pub target_checksum: String,
    /// Rows that were written; in a dry run, would be.
    pub copied: u64,
    /// Rows that an unfinished run had left and the source no longer has.
    pub removed: u64,
    /// When merging: rows that the target had already.
    pub same: u64,
    /// When merging: rows that the target has otherwise, and which stay as they are there.
    pub kept: u64,
    /// The keys of the first of them.
    pub kept_keys: Vec<String>,
    /// When merging: messages that got new ids.
    pub renumbered: u64,
}

/// What a migration did, or would do.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct MigrationReport {
    /// Nothing was changed.
    pub dry_run: bool,
    /// Rows went into a store that had some.
    pub merged: bool,
    /// An unfinished run was continued.
    pub resumed: bool,
    /// How often the source was gone through. The target is as the source was when the last time began.
    pub passes: usize,
    /// Whether the source was written to after that: it has messages that are new or lacks some, or another table differs.
    /// A message that was only rewritten in its place is not noticed.
    pub source_changed: bool,
    /// The tables, in the order of copying.
    pub tables: Vec<TableReport>,
    /// What was not carried over as it is, and why that loses nothing.
    pub notes: Vec<MigrationProblem>,
    /// In a dry run: what is in the way.
    pub problems: Vec<MigrationProblem>,
}

impl MigrationReport {
    /// Whether counts and checksums agree in all tables.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.tables
            .iter()
            .all(|table| table.source_rows == table.target_rows && table.source_checksum == table.target_checksum)
    }
}
