//! Operations on titles.

use super::SessionDb;
use crate::error::Result;
use crate::op::title::{SetTitle, SetTitleIfEmpty};
use crate::query::title as titles;
use crate::session::Session;
use crate::title::sanitize_title;
use crate::value::Value;

impl SessionDb {
    /// Gives a session a title, cleaned by [`sanitize_title`]; `None` takes it away. Returns whether the session
    /// exists. A compressed conversation's title moves along to its continuation.
    ///
    /// # Errors
    /// [`Error::TitleTooLong`](crate::Error::TitleTooLong); [`Error::TitleInUse`](crate::Error::TitleInUse) if another
    /// session has it.
    pub fn set_session_title(&self, id: impl Into<Value>, title: Option<&str>) -> Result<bool> {
        let title = title.map(sanitize_title).transpose()?.flatten();
        self.routine(SetTitle { id: id.into(), title })
    }

    /// The same for a title that nobody asked for: a session that has one keeps it, and one that is taken gets the next
    /// number of its lineage, its text cut where both would be too long. Returns whether the session exists and had no
    /// title; of a title that is blank nothing is stored.
    ///
    /// ```
    /// # use hermes_state::{NewSession, SessionDb};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let db = SessionDb::open(folder.path().join("state.db"))?;
    /// for id in ["a", "b"] {
    ///     db.create_session(NewSession::new(id, "cli"))?;
    ///     assert!(db.set_auto_title_if_empty(id, Some("Harbour plan"))?);
    /// }
    /// assert_eq!(db.session_title("b")?.as_deref(), Some("Harbour plan #2"));
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TitleTooLong`](crate::Error::TitleTooLong).
    pub fn set_auto_title_if_empty(&self, id: impl Into<Value>, title: Option<&str>) -> Result<bool> {
        let title = title.map(sanitize_title).transpose()?.flatten();
        self.routine(SetTitleIfEmpty { id: id.into(), title })
    }

    /// The title of a session; `None` if it has none or does not exist.
    ///
    /// # Errors
    /// Those of every read.
    pub fn session_title(&self, id: impl Into<Value>) -> Result<Option<String>> {
        let id = id.into();
        self.read(move |transaction| titles::of(transaction, &id))
    }

    /// The session with exactly this title, archived or not.
    ///
    /// # Errors
    /// Those of every read.
    pub fn session_by_title(&self, title: impl Into<Value>) -> Result<Option<Session>> {
        let title = title.into();
        self.read(move |transaction| titles::holder(transaction, &title))
    }

    /// The id of the session that began last among those with this title and those with it, ` #` and a number.
    ///
    /// # Errors
    /// Those of every read.
    pub fn resolve_session_by_title(&self, title: &str) -> Result<Option<String>> {
        let title = title.to_owned();
        self.read(move |transaction| titles::resolve(transaction, &title))
    }

    /// The title that comes after those in use with the same base, which is the title without a number at its end: the
    /// base itself if none is in use. It may be longer than a title may be.
    ///
    /// # Errors
    /// [`Error::Engine`](crate::Error::Engine) for a title of more than some 50,000 bytes.
    pub fn next_title_in_lineage(&self, title: &str) -> Result<String> {
        let title = title.to_owned();
        self.read(move |transaction| titles::next_in_lineage(transaction, &title))
    }
}
