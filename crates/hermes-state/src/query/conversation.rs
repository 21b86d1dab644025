//! The transcript as a conversation for replay: what was said, in order, without what is of no use to a model.

use std::collections::HashSet;

use serde_json::Value as Json;

use super::{alternation, lineage, recalled_memory};
use crate::blank::{is_blank, trim};
use crate::columns::MessageColumns;
use crate::content::Content;
use crate::error::Result;
use crate::raw_json::RawJson;
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::{Record, Value};

/// How a conversation is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConversationOptions {
    /// Also the messages of all sessions this one descends from, without user messages that were replayed on the way.
    pub include_ancestors: bool,
    /// Also messages that were rewound or archived by compaction.
    pub include_inactive: bool,
    /// Merge and remove messages so that the sides alternate, as providers demand.
    pub repair_alternation: bool,
    /// Only so many of the newest messages, counted as they are stored; all, if `None`.
    pub max_messages: Option<usize>,
}

/// How a session is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumeOptions {
    /// Only so many of the newest messages of the lineage, counted as they are stored; all, if `None`. What is left out
    /// is told as [`ResumeConversations::omitted`].
    pub max_messages: Option<usize>,
}

/// How many messages a resumed session has at most, unless its caller says otherwise: no model takes in more, and no
/// process should load hundreds of megabytes because a session grew old.
pub const MAX_RESUMED_MESSAGES: usize = 10_000;

impl Default for ResumeOptions {
    fn default() -> Self {
        Self { max_messages: Some(MAX_RESUMED_MESSAGES) }
    }
}

/// A value in a [`ConversationMessage`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ConversationValue {
    /// Nothing.
    Null,
    /// A flag.
    Bool(bool),
    /// A number.
    Integer(i64),
    /// A number.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A structured value as its JSON text, in the dialect of older releases: it may hold `NaN`, infinities, lone
    /// surrogates as escapes, and any depth. It always is well-formed.
    Json(String),
}

impl ConversationValue {
    /// The text, if this is text.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            ConversationValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether there is something: no null, false, zero, and nothing empty.
    #[must_use]
    pub fn is_truthy(&self) -> bool {
        match self {
            ConversationValue::Null => false,
            ConversationValue::Bool(flag) => *flag,
            ConversationValue::Integer(number) => *number != 0,
            ConversationValue::Real(number) => *number != 0.0,
            ConversationValue::Text(text) => !text.is_empty(),
            ConversationValue::Bytes(bytes) => !bytes.is_empty(),
            ConversationValue::Json(text) => RawJson::parse(text).is_some_and(|json| !json.is_falsy()),
        }
    }

    /// The value in Rust's JSON type: `NaN` and infinities become null, lone surrogates U+FFFD, bytes a list of
    /// numbers.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match self {
            ConversationValue::Null => Json::Null,
            ConversationValue::Bool(flag) => (*flag).into(),
            ConversationValue::Integer(number) => (*number).into(),
            ConversationValue::Real(number) => (*number).into(),
            ConversationValue::Text(text) => text.as_str().into(),
            ConversationValue::Bytes(bytes) => bytes.as_slice().into(),
            ConversationValue::Json(text) => RawJson::parse(text).map_or(Json::Null, RawJson::to_value),
        }
    }
}

impl From<Value> for ConversationValue {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => ConversationValue::Null,
            Value::Integer(number) => ConversationValue::Integer(number),
            Value::Real(number) => ConversationValue::Real(number),
            Value::Text(text) => ConversationValue::Text(text),
            Value::Blob(bytes) => ConversationValue::Bytes(bytes),
        }
    }
}

/// A message as a model is told it: names and values in order. `role` and `content` are always there, others where
/// they say something.
///
/// ```
/// use hermes_state::{NewMessage, NewSession, SessionDb};
/// let folder = tempfile::tempdir().unwrap();
/// let db = SessionDb::open(folder.path().join("state.db"))?;
/// db.create_session(NewSession::new("s1", "cli"))?;
/// let calls = serde_json::json!([{"id": "k1"}]);
/// db.append_message("s1", NewMessage::new("assistant", "I'll look").tool_calls(calls.clone()).timestamp(0.5))?;
/// let conversation = db.conversation("s1", &Default::default())?;
/// assert_eq!(conversation[0].text("content"), Some("I'll look"));
/// assert_eq!(
///     conversation[0].to_json(),
///     serde_json::json!({"role": "assistant", "content": "I'll look", "timestamp": 0.5, "tool_calls": calls})
/// );
/// # Ok::<(), hermes_state::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ConversationMessage(Vec<(&'static str, ConversationValue)>);

impl ConversationMessage {
    /// Who said it.
    #[must_use]
    pub fn role(&self) -> &str {
        self.text("role").unwrap_or_default()
    }

    /// A value by its name; `None` if the message does not have it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ConversationValue> {
        self.0.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// A value by its name, if it is text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &ConversationValue)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }

    /// The message as an object, as far as Rust's JSON goes; see [`ConversationValue::to_json`].
    #[must_use]
    pub fn to_json(&self) -> Json {
        Json::Object(self.iter().map(|(name, value)| (name.to_owned(), value.to_json())).collect())
    }

    pub(super) fn is_truthy(&self, name: &str) -> bool {
        self.get(name).is_some_and(ConversationValue::is_truthy)
    }

    /// The calls it makes; a single one may stand without a list around it.
    pub(super) fn calls(&self) -> Vec<RawJson<'_>> {
        match self.get("tool_calls") {
            Some(ConversationValue::Json(text)) => match RawJson::parse(text) {
                Some(json) if json.is_list() => json.elements(),
                Some(json) if !json.is_falsy() => vec![json],
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Sets a value in its place, or adds it at the end.
    pub(super) fn set(&mut self, name: &'static str, value: ConversationValue) {
        match self.0.iter_mut().find(|(key, _)| *key == name) {
            Some((_, present)) => *present = value,
            None => self.0.push((name, value)),
        }
    }

    /// Takes a value out.
    pub(super) fn take(&mut self, name: &str) -> Option<ConversationValue> {
        let index = self.0.iter().position(|(key, _)| *key == name)?;
        Some(self.0.remove(index).1)
    }

    fn add_if_truthy(&mut self, name: &'static str, value: Value) {
        if !value.is_falsy() {
            self.0.push((name, value.into()));
        }
    }

    /// From the columns of [`COLUMNS`], the session left out.
    fn read(columns: impl IntoIterator<Item = Value>) -> Self {
        let mut columns = columns.into_iter();
        let mut next = || columns.next().unwrap_or_default();
        let role = next();
        let assistant = role.as_str() == Some("assistant");
        let spoken = assistant || role.as_str() == Some("user");
        let mut content = content(next());
        if let (true, ConversationValue::Text(text)) = (spoken, &content) {
            content = ConversationValue::Text(trim(&recalled_memory::remove(text)).to_owned());
        }
        let mut message = Self(Vec::with_capacity(8));
        message.0.push(("role", role.into()));
        message.0.push(("content", content));
        for name in ["api_content", "timestamp", "tool_call_id", "tool_name", "effect_disposition"] {
            message.add_if_truthy(name, next());
        }
        let calls = next();
        if !calls.is_falsy() {
            message.0.push(("tool_calls", structured(calls).unwrap_or_else(|| ConversationValue::Json("[]".into()))));
        }
        message.add_if_truthy("message_id", next());
        if !next().is_falsy() {
            message.0.push(("observed", ConversationValue::Bool(true)));
        }
        if assistant {
            for name in ["finish_reason", "reasoning"] {
                message.add_if_truthy(name, next());
            }
            let reasoning = next();
            if !reasoning.is_null() {
                message.0.push(("reasoning_content", reasoning.into()));
            }
            for name in ["reasoning_details", "codex_reasoning_items", "codex_message_items"] {
                let items = next();
                if !items.is_falsy() {
                    message.0.push((name, structured(items).unwrap_or(ConversationValue::Null)));
                }
            }
        }
        message
    }
}

/// The columns of a message in the order in which [`ConversationMessage::read`] takes them.
const COLUMNS: [&str; 16] = [
    "role",
    "content",
    "api_content",
    "timestamp",
    "tool_call_id",
    "tool_name",
    "effect_disposition",
    "tool_calls",
    "platform_message_id",
    "observed",
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
];

/// A column's body. Structured content that does not parse is the text it is stored as.
fn content(column: Value) -> ConversationValue {
    match Content::decode(column) {
        Content::None => ConversationValue::Null,
        Content::Text(text) => ConversationValue::Text(text),
        Content::Bytes(bytes) => ConversationValue::Bytes(bytes),
        Content::Number(number) => number.into(),
        Content::Json(text) => match RawJson::parse(&text) {
            None => ConversationValue::Text(format!("{}{text}", crate::content::JSON_PREFIX)),
            Some(json) if json.is_null() => ConversationValue::Null,
            Some(json) => json.string().map_or(ConversationValue::Json(text), ConversationValue::Text),
        },
    }
}

/// A column of JSON text; `None` if it is not that.
fn structured(column: Value) -> Option<ConversationValue> {
    let Value::Text(text) = column else { return None };
    let json = RawJson::parse(&text)?;
    Some(if json.is_null() { ConversationValue::Null } else { ConversationValue::Json(text) })
}

/// A session's conversation.
pub(crate) fn read(
    transaction: &mut dyn Transaction,
    session_id: &str,
    options: ConversationOptions,
) -> Result<Vec<ConversationMessage>> {
    let sessions = if options.include_ancestors {
        lineage::root_to_tip(transaction, session_id)?
    } else {
        vec![session_id.to_owned()]
    };
    let part = Part { include_inactive: options.include_inactive, newest: options.max_messages };
    let messages = rows(transaction, &sessions, session_id, part)?;
    Ok(arranged(messages.into_iter().map(|(_, message)| message), options))
}

/// Messages as a conversation: without what was said twice, what only a review asked for, and, on request, repaired.
fn arranged(
    messages: impl Iterator<Item = ConversationMessage>,
    options: ConversationOptions,
) -> Vec<ConversationMessage> {
    let messages = if options.include_ancestors { without_replayed(messages) } else { messages.collect() };
    let messages = without_review_harness(messages);
    if options.repair_alternation { alternation::repair(messages) } else { messages }
}

/// Rows of the table of messages, in order, as a conversation. For callers that read the rows themselves; which of
/// them are there is their business, so only two of the options count: with `include_ancestors` user messages that
/// were replayed on the way are left out, with `repair_alternation` the sides alternate.
///
/// ```
/// use hermes_state::{ConversationOptions, Record, Value, conversation_of_rows};
/// let columns = ["role", "content"].map(Box::from);
/// let row = Record::new(columns.to_vec().into(), vec!["user".into(), " hello ".into()]);
/// let told = conversation_of_rows(&[row], &ConversationOptions::default());
/// assert_eq!(told[0].text("content"), Some("hello"));
/// ```
#[must_use]
pub fn conversation_of_rows(rows: &[Record], options: &ConversationOptions) -> Vec<ConversationMessage> {
    let columns = |row: &Record| COLUMNS.map(|name| row.get(name).cloned().unwrap_or_default());
    arranged(rows.iter().map(|row| ConversationMessage::read(columns(row))), *options)
}

/// What a resumed session tells the model and what it shows to people: its own conversation repaired, and that of its
/// whole lineage.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResumeConversations {
    /// For the model.
    pub model_history: Vec<ConversationMessage>,
    /// For people.
    pub display_history: Vec<ConversationMessage>,
    /// How many messages of the lineage, the oldest, are in neither: more than [`ResumeOptions::max_messages`].
    pub omitted: u64,
}

/// Both conversations of a resumed session, from one read.
pub(crate) fn resume(
    transaction: &mut dyn Transaction,
    session_id: &str,
    options: ResumeOptions,
) -> Result<ResumeConversations> {
    let sessions = lineage::root_to_tip(transaction, session_id)?;
    let part = Part { include_inactive: false, newest: options.max_messages };
    let messages = rows(transaction, &sessions, session_id, part)?;
    let omitted = match options.max_messages {
        Some(most) if messages.len() >= most => count(transaction, &sessions)? - messages.len() as u64,
        _ => 0,
    };
    let own = messages.iter().filter(|(own, _)| *own).map(|(_, message)| message.clone());
    let model_history = alternation::repair(without_review_harness(own.collect()));
    let all = messages.into_iter().map(|(_, message)| message);
    let display_history = without_review_harness(without_replayed(all));
    Ok(ResumeConversations { model_history, display_history, omitted })
}

/// The conversation of the sessions that this one descends from.
pub(crate) fn ancestors(transaction: &mut dyn Transaction, session_id: &str) -> Result<Vec<ConversationMessage>> {
    let mut sessions = lineage::root_to_tip(transaction, session_id)?;
    sessions.retain(|session| session != session_id);
    if sessions.is_empty() {
        return Ok(Vec::new());
    }
    let messages = rows(transaction, &sessions, session_id, Part { include_inactive: false, newest: None })?;
    Ok(without_review_harness(without_replayed(messages.into_iter().map(|(_, message)| message))))
}

/// Which rows of sessions are read.
#[derive(Clone, Copy)]
struct Part {
    include_inactive: bool,
    newest: Option<usize>,
}

/// How many active messages these sessions have.
fn count(transaction: &mut dyn Transaction, sessions: &[String]) -> Result<u64> {
    let columns = MessageColumns::read(transaction)?;
    let mut statement = Statement::default();
    let among = statement.bind_all(sessions);
    let state = columns.is_active();
    statement.push(&format!("SELECT COUNT(*) FROM messages m WHERE m.session_id IN ({among}) AND {state}"));
    let found = transaction.scalar(&statement.sql, &statement.parameters)?;
    Ok(found.as_i64().and_then(|count| u64::try_from(count).ok()).unwrap_or_default())
}

/// The messages of these sessions in the order of insertion, each with whether it is of the session `own`.
fn rows(
    transaction: &mut dyn Transaction,
    sessions: &[String],
    own: &str,
    part: Part,
) -> Result<Vec<(bool, ConversationMessage)>> {
    let columns = MessageColumns::read(transaction)?;
    let mut statement = Statement::default();
    let names = COLUMNS.map(|name| columns.of("x", name)).join(", ");
    let (own, among) = (statement.bind(own), statement.bind_all(sessions));
    let state = if part.include_inactive { "1 = 1" } else { columns.is_active() };
    // First the ids, from the sessions' index alone: sorting whole rows would cost more than reading them.
    statement.push(&format!(
        "SELECT CASE WHEN x.session_id = {own} THEN 1 ELSE 0 END, {names} FROM messages x WHERE x.id IN \
         (SELECT m.id FROM messages m WHERE m.session_id IN ({among}) AND {state}"
    ));
    if let Some(newest) = part.newest {
        statement.push(" ORDER BY m.id DESC");
        statement.push_page(i64::try_from(newest).unwrap_or(i64::MAX), 0);
    }
    statement.push(") ORDER BY x.id");
    let mut messages = Vec::new();
    transaction.query(&statement.sql, &statement.parameters, &mut |values| {
        let mut values = values.into_iter();
        let own = values.next() == Some(Value::Integer(1));
        messages.push((own, ConversationMessage::read(values)));
        Ok(())
    })?;
    Ok(messages)
}

/// A continued session begins with messages of the one before it: a user message that was said already, with no answer
/// in between, is left out.
fn without_replayed(messages: impl Iterator<Item = ConversationMessage>) -> Vec<ConversationMessage> {
    let mut unanswered: HashSet<String> = HashSet::new();
    let mut kept = Vec::new();
    for message in messages {
        match message.role() {
            "user" => {
                if let Some(text) = message.text("content").filter(|text| !text.is_empty())
                    && !unanswered.insert(text.to_owned())
                {
                    continue;
                }
            }
            "assistant" if message.is_truthy("content") || message.is_truthy("tool_calls") => unanswered.clear(),
            _ => {}
        }
        kept.push(message);
    }
    kept
}

/// How the instructions begin that a review in the background puts into the conversation it looks at.
const REVIEW_HARNESS: [&str; 2] = [
    "Review the conversation above and update the skill library",
    "Review the conversation above and consider saving to memory",
];

/// Whether a message is the instruction of a review in the background, which is no part of the conversation.
///
/// ```
/// use hermes_state::is_background_review_harness;
/// assert!(is_background_review_harness("user", " Review the conversation above and consider saving to memory."));
/// assert!(!is_background_review_harness("tool", "Review the conversation above and consider saving to memory."));
/// ```
#[must_use]
pub fn is_background_review_harness(role: &str, text: &str) -> bool {
    matches!(role, "user" | "system") && {
        let text = text.trim_start_matches(is_blank);
        REVIEW_HARNESS.iter().any(|beginning| text.starts_with(beginning))
    }
}

fn is_review_harness(message: &ConversationMessage) -> bool {
    message.text("content").is_some_and(|text| is_background_review_harness(message.role(), text))
}

/// Without such instructions, and without the assistant's answer right after them.
fn without_review_harness(mut messages: Vec<ConversationMessage>) -> Vec<ConversationMessage> {
    let mut answer_follows = false;
    messages.retain(|message| {
        if is_review_harness(message) {
            answer_follows = true;
            return false;
        }
        !(std::mem::take(&mut answer_follows) && message.role() == "assistant")
    });
    messages
}
