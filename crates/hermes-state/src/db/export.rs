//! Sessions as they leave the store: one, a compressed conversation, or all, a bounded part of it in memory at a time.

mod json;

use std::vec::IntoIter;

use super::SessionDb;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::query::export;
use crate::session::Session;
use crate::value::Value;

/// A session on its way out: its row, and, as an iterator, its active messages in order. They are read in pages of about
/// a megabyte, so that a session of any length takes little memory.
///
/// Which messages these are is settled when the export begins. An iterator ends after an error.
///
/// ```
/// use hermes_state::{NewMessage, NewSession, SessionDb};
/// let folder = tempfile::tempdir().unwrap();
/// let db = SessionDb::open(folder.path().join("state.db"))?;
/// db.create_session(NewSession::new("s1", "cli"))?;
/// db.append_message("s1", NewMessage::new("user", "Where is the harbour?"))?;
/// let export = db.export_session("s1")?.expect("it is there");
/// assert_eq!((export.session().id(), export.message_count()), ("s1", 1));
/// let text = export.into_json().collect::<Result<String, _>>()?;
/// assert!(text.starts_with(r#"{"id": "s1", "source": "cli", "#) && text.contains(r#""messages": [{"id": 1, "#));
/// # Ok::<(), hermes_state::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SessionExport<'db> {
    db: &'db SessionDb,
    session: Session,
    ids: Vec<i64>,
    /// How many of the ids have been read.
    read: usize,
    page: IntoIter<Message>,
    /// How many bytes a message has, by those read so far.
    expected: usize,
}

impl<'db> SessionExport<'db> {
    fn new(db: &'db SessionDb, session: Session, ids: Vec<i64>) -> Self {
        Self { db, session, ids, read: 0, page: Vec::new().into_iter(), expected: 16 << 10 }
    }

    /// The session's row. From [`SessionDb::export_all`] it also has the column `last_active`.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// How many messages there are to export.
    #[must_use]
    pub fn message_count(&self) -> usize {
        self.ids.len()
    }

    fn next_page(&mut self) -> Result<()> {
        let ids: Vec<i64> = self.ids[self.read..].iter().take(export::MOST_ROWS).copied().collect();
        let expected = self.expected;
        let (page, covered) = self.db.read(move |transaction| export::page(transaction, &ids, expected))?;
        let bytes = |message: &Message| message.record().values().iter().map(Value::size).sum::<usize>();
        if !page.is_empty() {
            self.expected = page.iter().map(bytes).sum::<usize>() / page.len();
        }
        self.read += covered;
        self.page = page.into_iter();
        Ok(())
    }
}

impl Iterator for SessionExport<'_> {
    type Item = Result<Message>;

    fn next(&mut self) -> Option<Result<Message>> {
        loop {
            if let Some(message) = self.page.next() {
                return Some(Ok(message));
            }
            if self.read >= self.ids.len() {
                return None;
            }
            if let Err(error) = self.next_page() {
                self.read = self.ids.len();
                return Some(Err(error));
            }
        }
    }
}

/// A compressed conversation on its way out: the sessions it consists of, in order.
#[derive(Debug, Clone)]
pub struct LineageExport<'db> {
    segments: Vec<SessionExport<'db>>,
    session: Session,
}

impl<'db> LineageExport<'db> {
    /// `None` if there is no session.
    fn new(segments: Vec<SessionExport<'db>>) -> Option<Self> {
        let last = segments.last()?;
        let messages = segments.iter().map(SessionExport::message_count).sum::<usize>();
        let count = Value::Integer(i64::try_from(messages).unwrap_or(i64::MAX));
        let session = Session::new(last.session.record().clone().with("message_count", count));
        Some(Self { segments, session })
    }

    /// The last session's row, with the number of messages of all.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The sessions, in order.
    #[must_use]
    pub fn segments(&self) -> &[SessionExport<'db>] {
        &self.segments
    }

    /// The sessions, in order, to read them.
    #[must_use]
    pub fn into_segments(self) -> Vec<SessionExport<'db>> {
        self.segments
    }
}

/// All sessions on their way out, one after the other.
#[derive(Debug)]
pub struct ExportAll<'db> {
    db: &'db SessionDb,
    sessions: IntoIter<(Value, Value)>,
}

impl<'db> Iterator for ExportAll<'db> {
    type Item = Result<SessionExport<'db>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (id, last_active) = self.sessions.next()?;
            match self.db.export_session(id) {
                Ok(Some(mut export)) => {
                    let record = export.session.record().clone();
                    export.session = Session::new(record.with("last_active", last_active));
                    return Some(Ok(export));
                }
                // Deleted since the sessions were listed.
                Ok(None) => {}
                Err(error) => {
                    if is_final(&error) {
                        self.sessions = Vec::new().into_iter();
                    }
                    return Some(Err(error));
                }
            }
        }
    }
}

/// Whether no later read can do better.
fn is_final(error: &Error) -> bool {
    !matches!(error, Error::Engine { .. })
}

impl SessionDb {
    /// A session with its active messages, to be read from the iterator it is; `None` if there is no such session.
    ///
    /// # Errors
    /// Those of every read, here and from the iterator.
    pub fn export_session(&self, id: impl Into<Value>) -> Result<Option<SessionExport<'_>>> {
        let id = id.into();
        let found = self.read(move |transaction| export::session(transaction, &id))?;
        Ok(found.map(|(session, ids)| SessionExport::new(self, session, ids)))
    }

    /// The whole compressed conversation that a session is part of; see
    /// [`compression_lineage`](SessionDb::compression_lineage). `None` if there is no such session.
    ///
    /// # Errors
    /// As [`export_session`](SessionDb::export_session).
    pub fn export_session_lineage(&self, id: impl Into<String>) -> Result<Option<LineageExport<'_>>> {
        let mut segments = Vec::new();
        for id in self.compression_lineage(id)? {
            segments.extend(self.export_session(id)?);
        }
        Ok(LineageExport::new(segments))
    }

    /// All sessions, or those from a source, the latest active first, children and archived ones included; a hundred
    /// thousand at most. One after the other is read, when it is asked for.
    ///
    /// # Errors
    /// As [`export_session`](SessionDb::export_session); a session that cannot be read does not end the iterator.
    pub fn export_all(&self, source: Option<&str>) -> Result<ExportAll<'_>> {
        let source = source.filter(|source| !source.is_empty()).map(str::to_owned);
        let sessions = self.read(move |transaction| export::all(transaction, source.as_deref()))?;
        Ok(ExportAll { db: self, sessions: sessions.into_iter() })
    }
}
