//! Operations that find sessions: by the beginning of an id, by folder, along a conversation.

use super::SessionDb;
use crate::error::Result;
use crate::query::{lineage, lookup};
use crate::session::{Session, WorkingFolder};

impl SessionDb {
    /// The full id of the session that has this id or, if none has, the only one whose id begins with it, case ignored
    /// for ASCII. `None` if there is none or several, and for the empty text.
    ///
    /// # Errors
    /// [`Error::Engine`](crate::Error::Engine) for a text of more than some 50,000 bytes.
    pub fn resolve_session_id(&self, id_or_prefix: &str) -> Result<Option<String>> {
        let text = id_or_prefix.to_owned();
        self.read(move |transaction| lookup::resolve_id(transaction, &text))
    }

    /// One session as listings show it: with its last activity and a preview, without its system prompt if `compact`.
    ///
    /// # Errors
    /// Those of every read.
    pub fn rich_session(&self, id: &str, compact: bool) -> Result<Option<Session>> {
        let id = id.to_owned();
        self.read(move |transaction| lookup::rich(transaction, &id, compact))
    }

    /// The folders that sessions work in, each as it is written; archived sessions are left out unless asked for.
    ///
    /// # Errors
    /// Those of every read.
    pub fn working_folders(&self, include_archived: bool) -> Result<Vec<WorkingFolder>> {
        self.read(move |transaction| lookup::working_folders(transaction, include_archived))
    }

    /// Follows a compressed conversation to the session that now goes on with it, at most a hundred steps. A session
    /// that nothing continues, known or not, is its own.
    ///
    /// # Errors
    /// Those of every read.
    pub fn compression_tip(&self, id: &str) -> Result<String> {
        let id = id.to_owned();
        self.read(move |transaction| lineage::compression_tip(transaction, &id))
    }
}
