//! What keeping the full-text indexes in order asks of an engine. Every step is short, and whole in itself.

use super::index::Index;
use crate::error::Result;

/// Which indexes are filled together, by markers of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backfill {
    /// Those that every store has.
    Main,
    /// The index of pairs of Chinese, Japanese and Korean characters.
    Pairs,
    /// Those of an older release's layout, which keep their own copy of all text: range by range it is replaced, and they
    /// serve meanwhile.
    InPlace,
}

/// How far a rebuild of search indexes has come, in ids of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuildStatus {
    /// The highest id that has to be indexed by it.
    pub total: i64,
    /// The highest id that has been.
    pub indexed: i64,
    /// The same in percent.
    pub percent: i64,
}

impl RebuildStatus {
    pub(crate) fn new(total: i64, indexed: i64) -> Self {
        let percent = (i128::from(indexed) * 100).div_euclid(i128::from(total.max(1))).min(100);
        Self { total, indexed, percent: i64::try_from(percent).unwrap_or(0) }
    }
}

/// The indexes of a store as their upkeep sees them.
pub(crate) trait Upkeep {
    /// How far a rebuild has come; `None` if there is none.
    fn rebuilding(&mut self, of: Backfill) -> Result<Option<RebuildStatus>>;

    /// Indexes the next range of a rebuild, at most so many ids; says whether there is more.
    fn rebuild_step(&mut self, of: Backfill, ids: i64) -> Result<bool>;

    /// Begins indexes anew, to be filled by [`rebuild_step`](Upkeep::rebuild_step); says how many there are. One that is
    /// going on is joined, whoever began it. Where steps are not possible they are rebuilt at once.
    fn begin_rebuild(&mut self, of: Backfill) -> Result<usize>;

    /// Whether the storage of the indexes can be brought up to date.
    fn is_outdated(&mut self) -> Result<bool>;

    /// Whether the indexes were found damaged and are not whole again yet.
    fn is_damaged(&mut self) -> Result<bool>;

    /// Sets an old layout of the indexes aside and begins the current one; says up to which id it is to be filled. Without
    /// `always` nothing is done where the layout is current or a rebuild is going on.
    fn replace_layout(&mut self, always: bool) -> Result<i64>;

    /// Makes the index of pairs if it can be kept here; one with gaps is begun anew.
    fn ensure_pairs(&mut self) -> Result<()>;

    /// Removes at most so many rows of what was set aside; says whether there may be more.
    fn clear_step(&mut self, rows: i64) -> Result<bool>;

    /// Notes down that the storage of the indexes is up to date.
    fn settle_layout(&mut self) -> Result<()>;

    /// The indexes that can be merged.
    fn mergeable(&mut self) -> Result<Vec<Index>>;

    /// Merges a bounded part of an index, about so many pages; says whether there is more. The `first` of several steps
    /// decides whether merging the index is worth while, and goes on with what another process has begun.
    fn merge_step(&mut self, index: Index, first: bool, pages: i32) -> Result<bool>;

    /// Whether a table of this name can be read.
    fn can_read_table(&mut self, name: &str) -> Result<bool>;
}
