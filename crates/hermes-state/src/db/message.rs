//! Operations on messages.

use super::{Appended, SessionDb};
use crate::content::Content;
use crate::error::{Error, Result};
use crate::message::{Message, NewMessage};
use crate::op::compaction::ArchiveAndCompact;
use crate::op::message::{AppendMessages, ClearMessages, ReplaceMessages, SetLatestUserApiContent};
use crate::op::rewind::{RestoreRewound, RewindToMessage, Rewound};
use crate::query::message::{self as messages, MessageQuery, UserMessage};
use crate::query::window::{self, AnchoredView, AnchoredViewOptions, MessageWindow};
use crate::value::Value;

impl SessionDb {
    /// Appends a message and returns its id once it is durable.
    ///
    /// What the store cannot take for now, because it is busy beyond the patience, damaged, full or not to be reached, is
    /// [spooled](crate::OpenOptions::spool) instead, which is durable too, and stored before whatever is appended next.
    ///
    /// A message with a [client key](NewMessage::client_key) is stored once, however often it is appended and by
    /// whichever process: the same id comes back, in whatever state the message is by then. It is the same message if all
    /// that was said of it is the same, but for its time and what was sent to the model for it.
    ///
    /// ```
    /// # use hermes_state::{NewMessage, NewSession, SessionDb};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let db = SessionDb::open(folder.path().join("state.db"))?;
    /// # db.create_session(NewSession::new("s1", "cli"))?;
    /// let message = NewMessage::new("user", "Where is the harbour?").client_key("turn-7/question");
    /// let id = db.append_message("s1", message.clone())?;
    /// assert_eq!(db.append_message("s1", message)?, id);
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Constraint`] for a missing session or role; without a spool [`Error::Busy`] when the transcript patience is
    /// over; [`Error::SpoolFull`] or [`Error::Spool`] if neither the store nor the spool could take it;
    /// [`Error::ClientKeyInUse`] if the key is that of another message, [`Error::Invalid`] if it is none.
    pub fn append_message(&self, session_id: impl Into<Value>, message: NewMessage) -> Result<Appended> {
        self.append_messages(session_id, vec![message])?.map(|ids| {
            ids.first().copied().ok_or_else(|| Error::Invalid("the store returned no id for the message".into()))
        })
    }

    /// Appends messages in one transaction, all or none, and returns their ids in order.
    ///
    /// # Errors
    /// As [`append_message`](SessionDb::append_message).
    pub fn append_messages(
        &self,
        session_id: impl Into<Value>,
        messages: Vec<NewMessage>,
    ) -> Result<Appended<Vec<i64>>> {
        self.append(AppendMessages::new(session_id.into(), messages)?)
    }

    /// Puts these messages in the place of a session's: of all of them, or with `active_only` of the active ones, so that
    /// rewound and archived ones stay. They get new ids, and keep their client keys unless other messages of the session
    /// have those.
    ///
    /// # Errors
    /// [`Error::Constraint`] for a missing role, or a missing session unless there is nothing to store; then nothing has
    /// changed.
    pub fn replace_messages(
        &self,
        session_id: impl Into<Value>,
        messages: Vec<NewMessage>,
        active_only: bool,
    ) -> Result<()> {
        self.transcript(ReplaceMessages::new(session_id.into(), messages, active_only))
    }

    /// Archives a session's active messages, which search still finds, and puts these in their place; returns how many
    /// these are. Of archived messages that come again, as those do that are kept, [`distinct_message_count`] counts
    /// one. They are told by role, content, calls and time; one that comes without a time, and with none behind it that
    /// has one, gets that of the message it repeats.
    ///
    /// # Errors
    /// As [`replace_messages`](SessionDb::replace_messages).
    ///
    /// [`distinct_message_count`]: SessionDb::distinct_message_count
    pub fn archive_and_compact(&self, session_id: impl Into<Value>, messages: Vec<NewMessage>) -> Result<i64> {
        self.transcript(ArchiveAndCompact::new(session_id.into(), messages))
    }

    /// Removes all messages of a session, in whatever state.
    ///
    /// # Errors
    /// Those of every write.
    pub fn clear_messages(&self, session_id: impl Into<Value>) -> Result<()> {
        self.routine(ClearMessages { session_id: session_id.into() })
    }

    /// Whether a session has messages that are not active: archived by compaction, or rewound.
    ///
    /// # Errors
    /// Those of every read.
    pub fn has_archived_messages(&self, session_id: impl Into<Value>) -> Result<bool> {
        let session_id = session_id.into();
        self.read(move |transaction| messages::has_inactive(transaction, &session_id))
    }

    /// Notes the text that was really sent to the model for the newest active message of the user, if that has this
    /// content; returns whether it has.
    ///
    /// # Errors
    /// Those of every write.
    pub fn set_latest_user_api_content(
        &self,
        session_id: impl Into<Value>,
        content: impl Into<Content>,
        api_content: impl Into<Value>,
    ) -> Result<bool> {
        let content = content.into().encode();
        self.routine(SetLatestUserApiContent {
            session_id: session_id.into(),
            content,
            api_content: api_content.into(),
        })
    }

    /// Takes a message of the user, and all that followed it, out of the conversation. The messages stay stored.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the message is not one of the session, or not one of the user; then nothing has changed.
    pub fn rewind_to_message(
        &self,
        session_id: impl Into<Value>,
        target_message_id: impl Into<Value>,
    ) -> Result<Rewound> {
        self.routine(RewindToMessage { session_id: session_id.into(), message_id: target_message_id.into() })
    }

    /// Puts the rewound messages from this id on back into the conversation; returns how many. Archived ones stay
    /// archived.
    ///
    /// # Errors
    /// Those of every write.
    pub fn restore_rewound(&self, session_id: impl Into<Value>, since_message_id: impl Into<Value>) -> Result<i64> {
        self.routine(RestoreRewound { session_id: session_id.into(), since_message_id: since_message_id.into() })
    }

    /// The messages of a session in the order of insertion, whatever their clocks said.
    ///
    /// # Errors
    /// Those of every read.
    pub fn messages(&self, session_id: impl Into<Value>, query: &MessageQuery) -> Result<Vec<Message>> {
        let (session_id, query) = (session_id.into(), query.clone());
        self.read(move |transaction| messages::list(transaction, &session_id, &query))
    }

    /// The newest `limit` (negative: all) active messages of a session, oldest of them first. Costs memory for those only.
    ///
    /// # Errors
    /// Those of every read.
    pub fn recent_messages(&self, session_id: impl Into<Value>, limit: i64) -> Result<Vec<Message>> {
        let session_id = session_id.into();
        self.read(move |transaction| messages::recent(transaction, &session_id, limit))
    }

    /// The newest `limit` (negative: all) messages of the user, newest first, each as a line.
    ///
    /// # Errors
    /// Those of every read.
    pub fn recent_user_messages(
        &self,
        session_id: impl Into<Value>,
        limit: i64,
        include_inactive: bool,
    ) -> Result<Vec<UserMessage>> {
        let session_id = session_id.into();
        self.read(move |transaction| messages::recent_of_user(transaction, &session_id, limit, include_inactive))
    }

    /// A message of a session with up to `window` others on either side. Archived ones are among them, rewound ones are
    /// not.
    ///
    /// # Errors
    /// Those of every read.
    pub fn messages_around(
        &self,
        session_id: impl Into<Value>,
        message_id: impl Into<Value>,
        window: i64,
    ) -> Result<MessageWindow> {
        let (session_id, message_id) = (session_id.into(), message_id.into());
        self.read(move |transaction| window::around(transaction, &session_id, &message_id, window))
    }

    /// A message of a session with its neighbours, and how the session begins and ends.
    ///
    /// # Errors
    /// Those of every read.
    pub fn anchored_view(
        &self,
        session_id: impl Into<Value>,
        message_id: impl Into<Value>,
        options: &AnchoredViewOptions,
    ) -> Result<AnchoredView> {
        let (session_id, message_id, options) = (session_id.into(), message_id.into(), options.clone());
        self.read(move |transaction| window::anchored(transaction, &session_id, &message_id, &options))
    }

    /// Whether a session has a message with this id of the chat platform, in any state.
    ///
    /// # Errors
    /// Those of every read.
    pub fn has_platform_message_id(
        &self,
        session_id: impl Into<Value>,
        platform_message_id: impl Into<Value>,
    ) -> Result<bool> {
        let (session_id, id) = (session_id.into(), platform_message_id.into());
        self.read(move |transaction| messages::has_platform_id(transaction, &session_id, &id))
    }

    /// How many different messages a session has had, in any state. What compactions kept, and so stored again, counts
    /// once: messages of one time that are alike in role, content, calls, and name and call of a tool, if one of them is
    /// archived.
    ///
    /// # Errors
    /// Those of every read.
    pub fn distinct_message_count(&self, session_id: impl Into<Value>) -> Result<i64> {
        let session_id = session_id.into();
        self.read(move |transaction| messages::distinct_count(transaction, &session_id))
    }

    /// How many messages are stored, in any state, for one session or (`None`) for all.
    ///
    /// # Errors
    /// Those of every read.
    pub fn message_count(&self, session_id: Option<&str>) -> Result<i64> {
        let session_id = Value::from(session_id);
        self.read(move |transaction| messages::count(transaction, &session_id))
    }
}
