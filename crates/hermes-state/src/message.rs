//! Messages: what a caller hands over, and what the store gives back.

use serde_json::Value as Json;

use crate::content::Content;
use crate::json::json_text;
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
}

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

/// A stored message: all columns of its row.
#[derive(Debug, Clone, PartialEq)]
pub struct Message(Record);

impl Message {
    pub(crate) fn new(record: Record) -> Self {
        Self(record)
    }

    /// Its id, which is also its place: ids ascend in the order of insertion and are never used again.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.0.integer("id").unwrap_or_default()
    }

    /// The session it belongs to.
    #[must_use]
    pub fn session_id(&self) -> &str {
        self.0.text("session_id").unwrap_or_default()
    }

    /// Who said it: `user`, `assistant`, `tool`, `system`, or whatever the caller wrote.
    #[must_use]
    pub fn role(&self) -> &str {
        self.0.text("role").unwrap_or_default()
    }

    /// Its body.
    #[must_use]
    pub fn content(&self) -> Content {
        Content::decode(self.0.get("content").cloned().unwrap_or_default())
    }

    /// When it was said, in seconds since the epoch.
    #[must_use]
    pub fn timestamp(&self) -> f64 {
        self.0.real("timestamp").unwrap_or_default()
    }

    /// The calls it makes; `None` if it makes none.
    #[must_use]
    pub fn tool_calls(&self) -> Option<serde_json::Result<Json>> {
        self.0.text("tool_calls").filter(|text| !text.is_empty()).map(serde_json::from_str)
    }

    /// The tool that produced it.
    #[must_use]
    pub fn tool_name(&self) -> Option<&str> {
        self.0.text("tool_name")
    }

    /// All columns, as the live table has them.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.0
    }
}
