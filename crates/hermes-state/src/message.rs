//! Messages: what a caller hands over, and what the store gives back.

use serde_json::Value as Json;

use crate::clock;
use crate::content::Content;
use crate::json::json_text;
use crate::raw_json::RawJson;
use crate::value::{Record, Value, value_setters};

/// The calls a message makes, ready for the column, with the number by which the session's counter grows.
///
/// ```
/// use hermes_state::ToolCalls;
/// let calls = ToolCalls::from(serde_json::json!([{"id": "k1"}, {"id": "k2"}]));
/// assert_eq!(calls.count(), 2);
/// assert_eq!(ToolCalls::from(serde_json::json!([])), ToolCalls::default());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCalls {
    text: Option<String>,
    count: i64,
}

impl ToolCalls {
    /// Calls given as the JSON text to keep and their number. For callers whose JSON goes beyond Rust's types.
    #[must_use]
    pub fn from_text(text: Option<String>, count: i64) -> Self {
        Self { text, count }
    }

    /// The JSON text of the calls, `None` if there are none.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// How many calls this counts as.
    #[must_use]
    pub fn count(&self) -> i64 {
        self.count
    }
}

/// How many calls the text of a stored row counts as.
pub(crate) fn stored_call_count(text: &str) -> i64 {
    match RawJson::parse(text) {
        Some(json) if json.is_list() => i64::try_from(json.elements().len()).unwrap_or(i64::MAX),
        Some(json) => (!json.is_falsy()).into(),
        None => 0,
    }
}

/// A list counts its elements and is kept unless it is empty; anything else that says something counts as one; text
/// is parsed first, so that calls which already are JSON are not encoded twice.
impl From<Json> for ToolCalls {
    fn from(value: Json) -> Self {
        match value {
            Json::String(text) => match serde_json::from_str::<Json>(&text) {
                Ok(Json::String(inner)) if !inner.is_empty() => {
                    Self { text: Some(json_text(&Json::String(inner))), count: 1 }
                }
                Ok(Json::String(_)) | Err(_) => Self::default(),
                Ok(parsed) => Self::from(parsed),
            },
            Json::Array(calls) if calls.is_empty() => Self::default(),
            Json::Array(calls) => {
                let count = i64::try_from(calls.len()).unwrap_or(i64::MAX);
                Self { text: Some(json_text(&Json::Array(calls))), count }
            }
            Json::Null | Json::Bool(false) => Self::default(),
            Json::Number(number) if number.as_f64() == Some(0.0) => Self::default(),
            Json::Object(members) if members.is_empty() => Self::default(),
            something => Self { text: Some(json_text(&something)), count: 1 },
        }
    }
}

/// A message to be appended. Only the role is required; scalars may be of any type that a column takes.
///
/// ```
/// use hermes_state::NewMessage;
/// let call = NewMessage::new("assistant", "I'll look").tool_calls(serde_json::json!([{"id": "k1"}])).token_count(12);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NewMessage {
    pub(crate) role: Value,
    pub(crate) content: Content,
    pub(crate) tool_name: Value,
    pub(crate) tool_calls: ToolCalls,
    pub(crate) tool_call_id: Value,
    pub(crate) token_count: Value,
    pub(crate) finish_reason: Value,
    pub(crate) reasoning: Value,
    pub(crate) reasoning_content: Value,
    pub(crate) reasoning_details: Value,
    pub(crate) codex_reasoning_items: Value,
    pub(crate) codex_message_items: Value,
    pub(crate) platform_message_id: Value,
    pub(crate) observed: bool,
    pub(crate) effect_disposition: Value,
    pub(crate) timestamp: Option<f64>,
    pub(crate) api_content: Value,
    pub(crate) client_key: Value,
}

/// The step by which rows without a time of their own follow each other, in seconds.
const TICK: f64 = 1e-6;

/// The longest key that a caller may call a message by, in characters.
pub const MAX_CLIENT_KEY_CHARS: usize = 255;

impl NewMessage {
    /// A message of this role with this content.
    #[must_use]
    pub fn new(role: impl Into<Value>, content: impl Into<Content>) -> Self {
        Self { role: role.into(), content: content.into(), ..Self::default() }
    }

    value_setters! {
        /// The tool that produced a result.
        tool_name
        /// Which call a tool's result answers.
        tool_call_id
        /// Tokens of the message.
        token_count
        /// Why the model stopped.
        finish_reason
        /// Readable reasoning.
        reasoning
        /// The provider's own form of reasoning; empty text differs from none.
        reasoning_content
        /// Structured reasoning, as JSON text.
        reasoning_details
        /// Opaque items for replay, as JSON text.
        codex_reasoning_items
        /// Opaque items for replay, as JSON text.
        codex_message_items
        /// The id given by the chat platform.
        platform_message_id
        /// What is known about a tool's side effect.
        effect_disposition
        /// The exact text sent to the model where it differed from the content.
        api_content
        /// What the caller calls the message by: text of 1 to 255 characters, its own within the session. A message that is
        /// appended again under its key is not stored twice.
        client_key
    }

    /// The calls this message makes.
    #[must_use]
    pub fn tool_calls(mut self, calls: impl Into<ToolCalls>) -> Self {
        self.tool_calls = calls.into();
        self
    }

    /// Seen, but not addressed to the agent.
    #[must_use]
    pub fn observed(mut self, observed: bool) -> Self {
        self.observed = observed;
        self
    }

    /// When it was said, in seconds since the epoch; now, if not given.
    #[must_use]
    pub fn timestamp(mut self, seconds: impl Into<Option<f64>>) -> Self {
        self.timestamp = seconds.into();
        self
    }
}

impl NewMessage {
    /// The columns of the row that this is stored as, in order, without its session, its key and its state. For callers
    /// who insert rows through a connection of their own.
    #[must_use]
    pub fn columns(&self) -> [(&'static str, Value); 17] {
        [
            ("role", self.role.clone()),
            ("content", self.content.encode()),
            ("tool_call_id", self.tool_call_id.clone()),
            ("tool_calls", self.tool_calls.text().into()),
            ("tool_name", self.tool_name.clone()),
            ("effect_disposition", self.effect_disposition.clone()),
            ("timestamp", self.timestamp.into()),
            ("token_count", self.token_count.clone()),
            ("finish_reason", self.finish_reason.clone()),
            ("reasoning", self.reasoning.clone()),
            ("reasoning_content", self.reasoning_content.clone()),
            ("reasoning_details", self.reasoning_details.clone()),
            ("codex_reasoning_items", self.codex_reasoning_items.clone()),
            ("codex_message_items", self.codex_message_items.clone()),
            ("platform_message_id", self.platform_message_id.clone()),
            ("observed", self.observed.into()),
            ("api_content", self.api_content.clone()),
        ]
    }

    /// How many tool calls it counts as.
    #[must_use]
    pub fn tool_call_count(&self) -> i64 {
        self.tool_calls.count()
    }

    /// Messages as a transcript that is written anew has them: what a model thought is kept for the role `assistant`
    /// only, and whatever has no time gets one, later than those before it.
    #[must_use]
    pub fn batch(mut messages: Vec<Self>) -> Vec<Self> {
        for message in messages.iter_mut().filter(|message| message.role.as_str() != Some("assistant")) {
            message.reasoning = Value::Null;
            message.reasoning_content = Value::Null;
            message.reasoning_details = Value::Null;
            message.codex_reasoning_items = Value::Null;
            message.codex_message_items = Value::Null;
        }
        timed(&mut messages);
        messages
    }
}

/// Gives messages without a time one: now, before any lock is waited for, is when they were said. In a batch these times
/// ascend; a later time given for a message pushes them on, an earlier one never pulls them back.
pub(crate) fn timed(messages: &mut [NewMessage]) {
    let mut clock = clock::now();
    for message in messages {
        let time = *message.timestamp.get_or_insert(clock);
        clock = clock.max(time) + TICK;
    }
}

/// A stored message: all columns of its row.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    record: Record,
    client_key: Value,
}

impl Message {
    /// Those of these rows. What their callers call them by stands beside the row, which is what older releases know of
    /// it.
    pub(crate) fn all(rows: Vec<Record>) -> Vec<Self> {
        let (records, keys) = Record::split_off("client_key", rows);
        records.into_iter().zip(keys).map(|(record, client_key)| Self { record, client_key }).collect()
    }

    /// What its caller called it by.
    #[must_use]
    pub fn client_key(&self) -> Option<&str> {
        self.client_key.as_str()
    }

    /// Its id, which is also its place: ids ascend in the order of insertion and are never used again.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.record.integer("id").unwrap_or_default()
    }

    /// The session it belongs to.
    #[must_use]
    pub fn session_id(&self) -> &str {
        self.record.text("session_id").unwrap_or_default()
    }

    /// Who said it: `user`, `assistant`, `tool`, `system`, or whatever the caller wrote.
    #[must_use]
    pub fn role(&self) -> &str {
        self.record.text("role").unwrap_or_default()
    }

    /// Its body.
    #[must_use]
    pub fn content(&self) -> Content {
        Content::decode(self.record.get("content").cloned().unwrap_or_default())
    }

    /// When it was said, in seconds since the epoch.
    #[must_use]
    pub fn timestamp(&self) -> f64 {
        self.record.real("timestamp").unwrap_or_default()
    }

    /// The calls it makes; `None` if it makes none.
    #[must_use]
    pub fn tool_calls(&self) -> Option<serde_json::Result<Json>> {
        self.record.text("tool_calls").filter(|text| !text.is_empty()).map(serde_json::from_str)
    }

    /// The tool that produced it.
    #[must_use]
    pub fn tool_name(&self) -> Option<&str> {
        self.record.text("tool_name")
    }

    /// All columns, as the live table has them.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }
}
