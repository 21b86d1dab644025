//! What a search takes and gives: options, hits, results.

use std::ops::Deref;
use std::time::Duration;

use crate::value::Value;

/// An order of hits by the time they were said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchSort {
    /// The newest first.
    Newest,
    /// The oldest first.
    Oldest,
}

/// Which messages a search considers, in which order, and which part of the hits it gives.
///
/// ```
/// use hermes_state::{SearchOptions, SearchSort};
/// let options = SearchOptions { sort: Some(SearchSort::Newest), ..SearchOptions::default() };
/// assert_eq!((options.limit, options.offset), (20, 0));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SearchOptions {
    /// Only sessions from these sources; an empty list admits none.
    pub source_filter: Option<Vec<String>>,
    /// No sessions from these sources.
    pub exclude_sources: Vec<String>,
    /// Only messages of these roles; empty: of all.
    pub role_filter: Vec<String>,
    /// At most so many hits; negative: all.
    pub limit: i64,
    /// Leave out so many of the first; negative: none.
    pub offset: i64,
    /// The order; `None`: the best match first.
    pub sort: Option<SearchSort>,
    /// Also messages that were rewound, for audits.
    pub include_inactive: bool,
    /// At most so long; what was found by then is the answer, and says that it is partial. `None`: as long as it takes.
    pub timeout: Option<Duration>,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            source_filter: None,
            exclude_sources: Vec::new(),
            role_filter: Vec::new(),
            limit: 20,
            offset: 0,
            sort: None,
            include_inactive: false,
            timeout: None,
        }
    }
}

/// A message beside a hit, or the hit itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextLine {
    /// Who said it.
    pub role: String,
    /// The first 200 characters of its text; empty if it has none.
    pub content: String,
}

/// A message that a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchHit {
    /// The message.
    pub id: i64,
    /// The session it belongs to.
    pub session_id: String,
    /// Who said it.
    pub role: String,
    /// Where it matches, `>>>` and `<<<` around each match if an index found it.
    pub snippet: Option<String>,
    /// When it was said, in seconds since the epoch.
    pub timestamp: f64,
    /// The tool that produced it.
    pub tool_name: Option<String>,
    /// Where its session comes from.
    pub source: String,
    /// The model of its session.
    pub model: Option<String>,
    /// When its session began, in seconds since the epoch.
    pub session_started: f64,
    /// The message before it in its session, itself, and the one after.
    pub context: Vec<ContextLine>,
}

impl SearchHit {
    /// A hit from a row of [`Rows::columns`].
    pub(crate) fn read(row: Vec<Value>, snippet: impl FnOnce(Value) -> Option<String>) -> Self {
        let mut values = row.into_iter();
        let mut next = || values.next().unwrap_or_default();
        let text = |value: Value| match value {
            Value::Text(text) => Some(text),
            _ => None,
        };
        Self {
            id: next().as_i64().unwrap_or_default(),
            session_id: text(next()).unwrap_or_default(),
            role: text(next()).unwrap_or_default(),
            snippet: snippet(next()),
            timestamp: next().as_f64().unwrap_or_default(),
            tool_name: text(next()),
            source: text(next()).unwrap_or_default(),
            model: text(next()),
            session_started: next().as_f64().unwrap_or_default(),
            context: Vec::new(),
        }
    }
}

/// The hits of a search, and how far they can be trusted to be all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SearchResults {
    /// The hits of the page asked for, in order.
    pub hits: Vec<SearchHit>,
    /// The index is missing or damaged: every row was read instead, which finds words also within longer ones.
    pub degraded: bool,
    /// The search was ended before it had seen every row, so that more may match.
    pub partial: bool,
}

impl Deref for SearchResults {
    type Target = [SearchHit];
    fn deref(&self) -> &[SearchHit] {
        &self.hits
    }
}

impl IntoIterator for SearchResults {
    type Item = SearchHit;
    type IntoIter = std::vec::IntoIter<SearchHit>;
    fn into_iter(self) -> Self::IntoIter {
        self.hits.into_iter()
    }
}

impl<'a> IntoIterator for &'a SearchResults {
    type Item = &'a SearchHit;
    type IntoIter = std::slice::Iter<'a, SearchHit>;
    fn into_iter(self) -> Self::IntoIter {
        self.hits.iter()
    }
}
