//! Telegram topics: what a caller hands over, and what the store gives back.

use crate::value::{Record, Value, value_setters};

/// What a chat is known to be able to do; `None` is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TopicCapabilities {
    /// The chat has topics.
    pub has_topics_enabled: Option<bool>,
    /// Its users may make topics.
    pub allows_users_to_create_topics: Option<bool>,
}

/// A session to be bound to a topic, which is a thread of a chat.
///
/// ```
/// use hermes_state::NewTopicBinding;
/// let binding = NewTopicBinding::new("-100", "7", "s1").user_id("42").session_key("agent:main:telegram:dm:42:7");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct NewTopicBinding {
    pub(crate) chat_id: Value,
    pub(crate) thread_id: Value,
    pub(crate) session_id: Value,
    pub(crate) user_id: Value,
    pub(crate) session_key: Value,
    pub(crate) managed_mode: Value,
}

impl NewTopicBinding {
    /// The topic and the session; user and routing key are required too.
    #[must_use]
    pub fn new(chat_id: impl Into<Value>, thread_id: impl Into<Value>, session_id: impl Into<Value>) -> Self {
        Self {
            chat_id: chat_id.into(),
            thread_id: thread_id.into(),
            session_id: session_id.into(),
            user_id: Value::Null,
            session_key: Value::Null,
            managed_mode: "auto".into(),
        }
    }

    value_setters! {
        /// The person whose topic it is.
        user_id
        /// The gateway's routing key.
        session_key
        /// Who manages the topic; `auto` unless said otherwise.
        managed_mode
    }
}

/// A binding of a topic to a session.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicBinding {
    /// The chat.
    pub chat_id: String,
    /// The thread in the chat.
    pub thread_id: String,
    /// The person whose topic it is.
    pub user_id: String,
    /// The gateway's routing key.
    pub session_key: String,
    /// The session.
    pub session_id: String,
    /// Who manages the topic.
    pub managed_mode: String,
    /// When the topic was first bound, in seconds since the epoch.
    pub linked_at: f64,
    /// When the binding was last renewed or changed.
    pub updated_at: f64,
}

impl TopicBinding {
    pub(crate) fn new(record: &Record) -> Self {
        let text = |column: &str| record.text(column).unwrap_or_default().to_owned();
        let time = |column: &str| record.real(column).unwrap_or_default();
        Self {
            chat_id: text("chat_id"),
            thread_id: text("thread_id"),
            user_id: text("user_id"),
            session_key: text("session_key"),
            session_id: text("session_id"),
            managed_mode: text("managed_mode"),
            linked_at: time("linked_at"),
            updated_at: time("updated_at"),
        }
    }
}
