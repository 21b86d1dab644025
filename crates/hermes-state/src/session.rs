//! Sessions: what a caller hands over, and what the store gives back.

use crate::error::{Error, Result};
use crate::value::{Record, Value, value_setters};

/// Reasons that nobody chose: a session that ended for one of them may be taken up again, or be given a better reason.
pub(crate) const ACCIDENTAL_ENDS: [&str; 2] = ["agent_close", "ws_orphan_reap"];

/// A session to be created. Only id and source are required.
///
/// ```
/// use hermes_state::NewSession;
/// let session = NewSession::new("20260704_101500_ab12cd", "cli").model("large-1").cwd("/home/ada/harbour");
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NewSession {
    pub(crate) id: Value,
    pub(crate) source: Value,
    pub(crate) model: Value,
    pub(crate) model_config: Value,
    pub(crate) system_prompt: Value,
    pub(crate) user_id: Value,
    pub(crate) session_key: Value,
    pub(crate) chat_id: Value,
    pub(crate) chat_type: Value,
    pub(crate) thread_id: Value,
    pub(crate) parent_session_id: Value,
    pub(crate) cwd: Value,
    pub(crate) profile_name: Value,
    pub(crate) git_repo_root: Value,
}

impl NewSession {
    /// A session with this id, from this source (`cli`, `telegram`, `cron`, …).
    #[must_use]
    pub fn new(id: impl Into<Value>, source: impl Into<Value>) -> Self {
        Self { id: id.into(), source: source.into(), ..Self::default() }
    }

    pub(crate) fn checked(self) -> Result<Self> {
        match self.id.is_null() || self.id.as_str() == Some("") {
            true => Err(Error::Invalid("a session needs an id".into())),
            false => Ok(self),
        }
    }

    value_setters! {
        /// The model it runs on.
        model
        /// The model's configuration: the text of a JSON object.
        model_config
        /// The assembled system prompt.
        system_prompt
        /// The person it belongs to.
        user_id
        /// The gateway's routing key.
        session_key
        /// The chat it takes place in.
        chat_id
        /// What kind of chat that is.
        chat_type
        /// The thread within the chat.
        thread_id
        /// The session it continues, branches from or works for; it must exist.
        parent_session_id
        /// The working folder.
        cwd
        /// The profile it belongs to.
        profile_name
        /// The root of the repository it works in.
        git_repo_root
    }
}

/// A stored session: all columns of its row, and in listings what was computed beside them.
#[derive(Debug, Clone, PartialEq)]
pub struct Session(Record);

impl Session {
    pub(crate) fn new(record: Record) -> Self {
        Self(record)
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        self.0.text("id").unwrap_or_default()
    }

    /// Where it comes from.
    #[must_use]
    pub fn source(&self) -> &str {
        self.0.text("source").unwrap_or_default()
    }

    /// Its title, if it has one.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.0.text("title")
    }

    /// Its model, if it is known.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.0.text("model")
    }

    /// The session it descends from.
    #[must_use]
    pub fn parent_session_id(&self) -> Option<&str> {
        self.0.text("parent_session_id")
    }

    /// When it began, in seconds since the epoch.
    #[must_use]
    pub fn started_at(&self) -> f64 {
        self.0.real("started_at").unwrap_or_default()
    }

    /// When it ended; `None` while it is live.
    #[must_use]
    pub fn ended_at(&self) -> Option<f64> {
        self.0.real("ended_at")
    }

    /// Why it ended.
    #[must_use]
    pub fn end_reason(&self) -> Option<&str> {
        self.0.text("end_reason")
    }

    /// Its active messages, as counted by the writes.
    #[must_use]
    pub fn message_count(&self) -> i64 {
        self.0.integer("message_count").unwrap_or_default()
    }

    /// In listings: when its newest message was said, or when it began.
    #[must_use]
    pub fn last_active(&self) -> Option<f64> {
        self.0.real("last_active")
    }

    /// In listings: the beginning of its first user message.
    #[must_use]
    pub fn preview(&self) -> Option<&str> {
        self.0.text("preview")
    }

    /// All columns, as the live table has them.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.0
    }
}

/// A working folder, and what the sessions in it amount to.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WorkingFolder {
    /// The folder, as the sessions have it.
    pub cwd: String,
    /// How many sessions have just this folder.
    pub sessions: i64,
    /// When the latest of them ended, or began if it has not ended, in seconds since the epoch.
    pub last_active: f64,
}
