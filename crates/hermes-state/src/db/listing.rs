//! Finding sessions: listings, pages, counts.

use super::SessionDb;
use crate::error::Result;
use crate::query::listing::{self, SessionQuery};
use crate::query::page::{self, PageQuery, SessionPage};
use crate::session::Session;

impl SessionDb {
    /// How many sessions a listing with these filters could page through.
    ///
    /// # Errors
    /// Those of every read.
    pub fn session_count(&self, query: &SessionQuery) -> Result<i64> {
        let query = query.clone();
        self.read(move |transaction| listing::count(transaction, &query))
    }

    /// A listing of sessions with their last activity and a preview.
    ///
    /// # Errors
    /// Those of every read.
    pub fn list_sessions(&self, query: &SessionQuery) -> Result<Vec<Session>> {
        let query = query.clone();
        self.read(move |transaction| listing::list(transaction, &query))
    }

    /// One page of a listing, and the cursor of the next. Turning pages gives each session that was there when the first
    /// was made exactly once, whatever is created, or goes on, meanwhile; what comes later is on the first page of another
    /// listing.
    ///
    /// ```
    /// use hermes_state::{NewSession, PageQuery, SessionDb, SessionQuery};
    /// let folder = tempfile::tempdir().unwrap();
    /// let db = SessionDb::open(folder.path().join("state.db"))?;
    /// for id in ["a", "b", "c"] {
    ///     db.create_session(NewSession::new(id, "cli"))?;
    /// }
    /// let sessions = SessionQuery { limit: 2, ..SessionQuery::default() };
    /// let mut query = PageQuery { sessions, ..PageQuery::default() };
    /// let first = db.list_sessions_page(&query)?;
    /// query.cursor = first.next;
    /// let second = db.list_sessions_page(&query)?;
    /// assert_eq!((first.sessions.len(), second.sessions[0].id(), second.next), (2, "a", None));
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a page of no rows, an offset, or the cursor of another order.
    pub fn list_sessions_page(&self, query: &PageQuery) -> Result<SessionPage> {
        page::check(query)?;
        let query = query.clone();
        self.read(move |transaction| page::page(transaction, &query))
    }

    /// The runs of a scheduled job, newest first: sessions from `cron` whose ids begin with `cron_`, the job's id and `_`.
    /// A negative limit asks for all.
    ///
    /// # Errors
    /// Those of every read.
    pub fn list_cron_job_runs(&self, job: &str, limit: i64, offset: i64) -> Result<Vec<Session>> {
        let job = job.to_owned();
        self.read(move |transaction| listing::cron_runs(transaction, &job, limit, offset))
    }

    /// The conversations one of whose ids contains a text, case ignored: first those with an id that is the text, then
    /// those with one that begins with it, then the rest; the most recently active first among each.
    ///
    /// # Errors
    /// Those of every read.
    pub fn search_sessions_by_id(&self, text: &str, limit: i64, include_archived: bool) -> Result<Vec<Session>> {
        if limit <= 0 {
            return Ok(Vec::new());
        }
        let id_query = Some(text.to_owned());
        let query = SessionQuery { limit, id_query, include_archived, ..SessionQuery::default() };
        self.read(move |transaction| listing::by_id(transaction, &query))
    }

    /// All sessions of whatever kind, or those from one source, the most recently active first. A negative limit asks for
    /// all.
    ///
    /// # Errors
    /// Those of every read.
    pub fn search_sessions(&self, source: Option<&str>, limit: i64, offset: i64) -> Result<Vec<Session>> {
        let source = source.map(str::to_owned);
        self.read(move |transaction| listing::search(transaction, source.as_deref(), limit, offset))
    }
}
