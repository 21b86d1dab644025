//! Operations on Telegram topics: chats whose threads are bound to a session each.
//!
//! A file has the tables for this only once topic mode was enabled, a topic bound, or the migration asked for; until then
//! nothing is enabled and nothing bound.

use super::SessionDb;
use crate::error::Result;
use crate::op::topic::{BindTopic, DeleteTopicBinding, DisableTopicMode, EnableTopicMode, MigrateTopics};
use crate::query::topic as topics;
use crate::session::Session;
use crate::topic::{NewTopicBinding, TopicBinding, TopicCapabilities};
use crate::value::Value;

impl SessionDb {
    /// Makes the tables of topics, or brings those of an older release to their present shape: in one transaction, with
    /// every binding whose session exists. May be repeated; what a newer release has made is left as it is.
    ///
    /// # Errors
    /// Those of every write.
    pub fn apply_telegram_topic_migration(&self) -> Result<()> {
        self.routine(MigrateTopics)
    }

    /// Switches topic mode on for a chat, and notes what is known of it now.
    ///
    /// # Errors
    /// Those of every write.
    pub fn enable_telegram_topic_mode(
        &self,
        chat_id: impl Into<Value>,
        user_id: impl Into<Value>,
        capabilities: TopicCapabilities,
    ) -> Result<()> {
        self.routine(EnableTopicMode { chat_id: chat_id.into(), user_id: user_id.into(), capabilities })
    }

    /// Switches topic mode off for a chat that has it, and on request removes the chat's bindings.
    ///
    /// # Errors
    /// Those of every write.
    pub fn disable_telegram_topic_mode(&self, chat_id: impl Into<Value>, clear_bindings: bool) -> Result<()> {
        self.routine(DisableTopicMode { chat_id: chat_id.into(), clear_bindings })
    }

    /// Whether a chat of this user is in topic mode.
    ///
    /// # Errors
    /// Those of every read.
    pub fn is_telegram_topic_mode_enabled(&self, chat_id: impl Into<Value>, user_id: impl Into<Value>) -> Result<bool> {
        let (chat_id, user_id) = (chat_id.into(), user_id.into());
        self.read(move |transaction| topics::is_enabled(transaction, &chat_id, &user_id))
    }

    /// Binds a topic to a session; one that was bound to another session is repointed. Topic mode stays as it is.
    ///
    /// ```
    /// # use hermes_state::{Error, NewSession, NewTopicBinding, SessionDb};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let db = SessionDb::open(folder.path().join("state.db"))?;
    /// db.create_session(NewSession::new("s1", "telegram"))?;
    /// db.bind_telegram_topic(NewTopicBinding::new("-100", "7", "s1").user_id("42").session_key("k"))?;
    /// assert_eq!(db.telegram_topic_binding("-100", "7")?.unwrap().session_id, "s1");
    /// let second = db.bind_telegram_topic(NewTopicBinding::new("-100", "8", "s1").user_id("42").session_key("k"));
    /// assert!(matches!(second, Err(Error::SessionHasTopic { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SessionHasTopic`](crate::Error::SessionHasTopic) if the session is bound to another topic;
    /// [`Error::Constraint`](crate::Error::Constraint) for a session that does not exist.
    pub fn bind_telegram_topic(&self, binding: NewTopicBinding) -> Result<()> {
        self.routine(BindTopic(binding))
    }

    /// Removes the binding of a topic; returns how many there were, one or none. With the last one of a chat its topic
    /// mode goes off.
    ///
    /// # Errors
    /// Those of every write.
    pub fn delete_telegram_topic_binding(&self, chat_id: impl Into<Value>, thread_id: impl Into<Value>) -> Result<i64> {
        self.routine(DeleteTopicBinding { chat_id: chat_id.into(), thread_id: thread_id.into() })
    }

    /// The binding of a topic.
    ///
    /// # Errors
    /// Those of every read.
    pub fn telegram_topic_binding(
        &self,
        chat_id: impl Into<Value>,
        thread_id: impl Into<Value>,
    ) -> Result<Option<TopicBinding>> {
        let (chat_id, thread_id) = (chat_id.into(), thread_id.into());
        self.read(move |transaction| topics::of_topic(transaction, &chat_id, &thread_id))
    }

    /// The bindings of a chat, the one that was changed last first.
    ///
    /// # Errors
    /// Those of every read.
    pub fn list_telegram_topic_bindings_for_chat(&self, chat_id: impl Into<Value>) -> Result<Vec<TopicBinding>> {
        let chat_id = chat_id.into();
        self.read(move |transaction| topics::of_chat(transaction, &chat_id))
    }

    /// The binding of a session.
    ///
    /// # Errors
    /// Those of every read.
    pub fn telegram_topic_binding_by_session(&self, session_id: impl Into<Value>) -> Result<Option<TopicBinding>> {
        let session_id = session_id.into();
        self.read(move |transaction| topics::of_session(transaction, &session_id))
    }

    /// Whether a session is bound to a topic.
    ///
    /// # Errors
    /// Those of every read.
    pub fn is_telegram_session_linked_to_topic(&self, session_id: impl Into<Value>) -> Result<bool> {
        Ok(self.telegram_topic_binding_by_session(session_id)?.is_some())
    }

    /// The Telegram sessions of a user that no topic of any chat is bound to, most active first, at most `limit`
    /// (negative: all), each with its last activity and a preview.
    ///
    /// # Errors
    /// Those of every read.
    pub fn list_unlinked_telegram_sessions_for_user(
        &self,
        user_id: impl Into<Value>,
        limit: i64,
    ) -> Result<Vec<Session>> {
        let user_id = user_id.into();
        self.read(move |transaction| topics::unlinked(transaction, &user_id, limit))
    }
}
