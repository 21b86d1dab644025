//! Conversations for replay, and how the sessions of one hang together.

use super::SessionDb;
use crate::error::{Error, Result};
use crate::query::conversation::{self, ConversationMessage, ConversationOptions, ResumeConversations, ResumeOptions};
use crate::query::lineage;

impl SessionDb {
    /// A session as a conversation for replay, in the order of insertion; empty for a session that does not exist.
    ///
    /// # Errors
    /// Those of every read.
    pub fn conversation(
        &self,
        session_id: impl Into<String>,
        options: &ConversationOptions,
    ) -> Result<Vec<ConversationMessage>> {
        let (session_id, options) = (session_id.into(), *options);
        self.read(move |transaction| conversation::read(transaction, &session_id, options))
    }

    /// What a resumed session tells the model and what it shows to people, from one read. Of a huge lineage it is the
    /// newest part, [`MAX_RESUMED_MESSAGES`](crate::MAX_RESUMED_MESSAGES) unless the options say otherwise, and how
    /// many messages are left out.
    ///
    /// ```
    /// use hermes_state::{NewMessage, NewSession, ResumeOptions, SessionDb};
    /// let folder = tempfile::tempdir().unwrap();
    /// let db = SessionDb::open(folder.path().join("state.db"))?;
    /// db.create_session(NewSession::new("s1", "cli"))?;
    /// db.append_messages("s1", ["one", "two", "three"].map(|text| NewMessage::new("user", text)).into())?;
    /// let resumed = db.resume_conversations("s1", &ResumeOptions { max_messages: Some(2) })?;
    /// assert_eq!(resumed.display_history[0].text("content"), Some("two"));
    /// assert_eq!(resumed.omitted, 1);
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of every read.
    pub fn resume_conversations(
        &self,
        session_id: impl Into<String>,
        options: &ResumeOptions,
    ) -> Result<ResumeConversations> {
        let (session_id, options) = (session_id.into(), *options);
        self.read(move |transaction| conversation::resume(transaction, &session_id, options))
    }

    /// The conversation of all sessions that this one descends from, to be shown before its own.
    ///
    /// # Errors
    /// Those of every read.
    pub fn ancestor_display_prefix(&self, session_id: impl Into<String>) -> Result<Vec<ConversationMessage>> {
        let session_id = session_id.into();
        self.read(move |transaction| conversation::ancestors(transaction, &session_id))
    }

    /// The session and all it descends from by links of any kind (continuation, branch, delegate), the root first; the
    /// nearest hundred at most. A link may lead to a session that is gone, whose id then comes first.
    ///
    /// # Errors
    /// Those of every read.
    pub fn session_lineage(&self, session_id: impl Into<String>) -> Result<Vec<String>> {
        let session_id = session_id.into();
        self.read(move |transaction| lineage::root_to_tip(transaction, &session_id))
    }

    /// The session in which the conversation of this one began: the first of
    /// [`session_lineage`](SessionDb::session_lineage).
    ///
    /// # Errors
    /// Those of every read.
    pub fn conversation_root(&self, session_id: impl Into<String>) -> Result<String> {
        let session_id = session_id.into();
        let lineage = self.session_lineage(session_id.clone())?;
        Ok(lineage.into_iter().next().unwrap_or(session_id))
    }

    /// The sessions of the compressed conversation that this one is part of, in order: from the first one through all
    /// its continuations, also those that came after this one. Only the session itself if it is a branch or beside the
    /// line, and none if it does not exist.
    ///
    /// # Errors
    /// Those of every read.
    pub fn compression_lineage(&self, session_id: impl Into<String>) -> Result<Vec<String>> {
        let session_id = session_id.into();
        self.read(move |transaction| lineage::compression_lineage(transaction, &session_id))
    }

    /// Which session to open when somebody resumes this one: the last continuation of a compressed conversation, and
    /// from there the latest child that has messages. Unknown ids come back as they are.
    ///
    /// # Errors
    /// Those of every read, except that where the rows do not let themselves be read the session found so far is the
    /// answer: resuming must not fail for a damaged relative.
    pub fn resolve_resume_session_id(&self, session_id: impl Into<String>) -> Result<String> {
        let session_id: String = session_id.into();
        if session_id.is_empty() {
            return Ok(session_id);
        }
        let asked = session_id.clone();
        let tip = self.read(move |transaction| lineage::compression_tip(transaction, &session_id));
        let tip = or_if_unreadable(tip, asked)?;
        let start = tip.clone();
        let deepest = self.read(move |transaction| lineage::deepest_with_messages(transaction, &start));
        Ok(or_if_unreadable(deepest, None)?.unwrap_or(tip))
    }
}

/// The answer, or what is to do where the rows for one cannot be read.
fn or_if_unreadable<T>(answer: Result<T>, instead: T) -> Result<T> {
    match answer {
        Err(Error::Engine { .. } | Error::Corrupt { .. }) => Ok(instead),
        answer => answer,
    }
}
