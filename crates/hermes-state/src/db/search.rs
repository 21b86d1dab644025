//! Search, and which indexes serve it.

use std::time::Instant;

use super::SessionDb;
use crate::error::Result;
use crate::query::search;
use crate::search::hit::{SearchHit, SearchOptions, SearchResults};
use crate::search::index::Indexes;

/// Which search indexes of a store serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SearchIndexes {
    /// The index of words.
    pub words: bool,
    /// The index of trigrams, for parts of words.
    pub trigrams: bool,
    /// The index of Chinese, Japanese and Korean words.
    pub cjk: bool,
    /// They were found damaged and are not whole again yet: the transcript is intact, and searches read rows instead. A
    /// rebuild mends them ([`SessionDb::rebuild_fts`]).
    pub damaged: bool,
}

impl SessionDb {
    /// Which search indexes of the store serve at this moment; other processes may make, drop and mark them.
    ///
    /// # Errors
    /// Those of every read.
    pub fn search_indexes(&self) -> Result<SearchIndexes> {
        self.read(|transaction| {
            let Indexes { words, trigrams, pairs } = transaction.indexes()?;
            Ok(SearchIndexes { words, trigrams, cjk: pairs, damaged: transaction.is_damaged()? })
        })
    }

    /// Searches all messages. Words are all required; `OR`, `NOT` and `AND` in upper case join them, `"…"` is a phrase
    /// and `word*` a beginning. A query that is no such expression (a path, an address, a price) is looked for as it
    /// stands. Chinese, Japanese and Korean text is found anywhere within a message.
    ///
    /// ```
    /// use hermes_state::{NewMessage, NewSession, SessionDb};
    /// let folder = tempfile::tempdir().unwrap();
    /// let db = SessionDb::open(folder.path().join("state.db"))?;
    /// db.create_session(NewSession::new("s1", "cli"))?;
    /// db.append_message("s1", NewMessage::new("user", "Where is the harbour?"))?;
    /// let hits = db.search_messages("harbour", &Default::default())?;
    /// assert_eq!(hits[0].snippet.as_deref(), Some("Where is the >>>harbour<<<?"));
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of every read. Hardly any query is an error by itself; one that can neither be read as an expression nor
    /// looked for as it stands is [`Error::InvalidQuery`](crate::Error::InvalidQuery).
    pub fn search_messages(&self, query: &str, options: &SearchOptions) -> Result<SearchResults> {
        let deadline = options.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let (query, options) = (query.to_owned(), options.clone());
        self.read(move |transaction| search::search(transaction, &query, &options, deadline))
    }

    /// The hits of a cleaned query among messages that a running rebuild of the search indexes has not reached yet,
    /// newest first, without context. Every term is looked for as it stands.
    ///
    /// # Errors
    /// Those of every read.
    pub fn search_unindexed_gap(&self, cleaned: &str, options: &SearchOptions) -> Result<Vec<SearchHit>> {
        let (cleaned, options) = (cleaned.to_owned(), options.clone());
        self.read(move |transaction| search::search_gap(transaction, &cleaned, &options))
    }

    /// Who would answer a query, for diagnostics: `empty` (nothing is left of it but what is searched literally),
    /// `fts5`, `fts_cjk`, `trigram` or `like_scan`. Filters are not considered.
    ///
    /// # Errors
    /// Those of every read.
    pub fn describe_search_path(&self, query: &str) -> Result<&'static str> {
        let indexes = self.read(|transaction| transaction.indexes())?;
        Ok(search::describe_path(query, indexes))
    }
}
