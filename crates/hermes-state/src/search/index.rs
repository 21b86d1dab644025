//! What a search asks of an engine's full-text index.

use super::expression::Expression;
use super::hit::SearchHit;
use super::rows::{Page, Rows};
use super::text::Condition;
use crate::error::Result;
use crate::statement::Statement;
use crate::transaction::Transaction;

/// An index over the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Index {
    /// Words, of all rows.
    Words,
    /// Parts of words of three characters and more, of all rows but those of tools.
    Trigrams,
    /// Words, and pairs of Chinese, Japanese and Korean characters, of all rows but those of tools.
    Pairs,
}

/// Which indexes can be asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Indexes {
    pub(crate) words: bool,
    pub(crate) trigrams: bool,
    pub(crate) pairs: bool,
}

impl Indexes {
    pub(crate) const NONE: Self = Self { words: false, trigrams: false, pairs: false };
}

/// What is looked for in an index.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    pub(crate) index: Index,
    pub(crate) expression: Expression,
    /// Texts that a row must also hold as they stand, case ignored for ASCII.
    pub(crate) holding: Vec<String>,
    /// Whether the newest are wanted in their order, and none is to be weighed against others.
    pub(crate) newest: bool,
}

/// What an index has to say.
pub(crate) enum Found {
    Hits(Vec<SearchHit>),
    /// It cannot answer this: there is no such index, or it cannot express the search.
    Unable,
    /// It is damaged, or has lost rows.
    Damaged,
}

/// The full-text index of an engine.
pub(crate) trait TextIndex: Sync {
    /// The rows on a page of the hits.
    fn find(&self, transaction: &mut dyn Transaction, search: &Search, rows: &Rows<'_>, page: Page) -> Result<Found>;

    /// How many hits there are in all.
    fn count(&self, transaction: &mut dyn Transaction, search: &Search, rows: &Rows<'_>) -> Result<i64>;

    /// The ids, above the first and up to the second, that a running rebuild has not reached yet.
    fn unindexed(&self, transaction: &mut dyn Transaction) -> Result<Option<(i64, i64)>>;

    /// Where a scan looks for rows that hold the texts of `condition`: everywhere, or where the index knows that all of
    /// them are. See [`Rows::push_hits`].
    fn narrow(&self, condition: &Condition, statement: &mut Statement) -> Result<Vec<String>>;
}
