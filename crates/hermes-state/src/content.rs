//! What a message can hold, and how that is kept in one text column.

use serde_json::Value as Json;

use crate::json::json_text;
use crate::value::Value;

/// Before structured content in the column: no text that people write begins with a NUL.
pub(crate) const JSON_PREFIX: &str = "\0json:";

/// The body of a message.
///
/// ```
/// use hermes_state::Content;
/// let parts = serde_json::json!([{"type": "text", "text": "look"}]);
/// assert_eq!(Content::from(parts.clone()).json().unwrap().unwrap(), parts);
/// assert_eq!(Content::from("plain").text(), Some("plain"));
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub enum Content {
    /// No content, which differs from empty text.
    #[default]
    None,
    /// Text, kept as it is.
    Text(String),
    /// A list or an object, as JSON text in the store's form.
    Json(String),
    /// Bytes, kept as they are.
    Bytes(Vec<u8>),
    /// A number, which the column turns into its text.
    Number(Value),
}

impl Content {
    /// The text, if this is text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The parsed value, if this is structured. The error is for JSON that Rust cannot hold (`NaN`, lone surrogates).
    #[must_use]
    pub fn json(&self) -> Option<serde_json::Result<Json>> {
        match self {
            Content::Json(text) => Some(serde_json::from_str(text)),
            _ => None,
        }
    }

    /// What is kept in the column.
    pub(crate) fn encode(&self) -> Value {
        match self {
            Content::None => Value::Null,
            Content::Text(text) => Value::Text(text.clone()),
            Content::Json(text) => Value::Text(format!("{JSON_PREFIX}{text}")),
            Content::Bytes(bytes) => Value::Blob(bytes.clone()),
            Content::Number(number) => number.clone(),
        }
    }

    /// What the column holds.
    pub(crate) fn decode(column: Value) -> Self {
        match column {
            Value::Null => Content::None,
            Value::Text(text) => match text.strip_prefix(JSON_PREFIX) {
                Some(json) => Content::Json(json.to_owned()),
                None => Content::Text(text),
            },
            Value::Blob(bytes) => Content::Bytes(bytes),
            number => Content::Number(number),
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Content::Text(text.to_owned())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Content::Text(text)
    }
}

/// Lists and objects stay structured; a string is text; numbers and booleans become the column's text of them.
impl From<Json> for Content {
    fn from(value: Json) -> Self {
        match value {
            Json::Null => Content::None,
            Json::String(text) => Content::Text(text),
            Json::Bool(flag) => Content::Number(flag.into()),
            Json::Number(number) => Content::Number(match (number.as_i64(), number.as_f64()) {
                (Some(integer), _) => Value::Integer(integer),
                (None, Some(double)) => Value::Real(double),
                (None, None) => Value::Text(number.to_string()),
            }),
            structured => Content::Json(json_text(&structured)),
        }
    }
}
