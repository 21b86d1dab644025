//! Checks the entries of an import, one after the other, and turns those that pass into sessions to be written.

use std::collections::HashSet;

use super::fields::{TooLarge, content, double, integer, is_truthy, items, text_of, text_or_null, tool_calls};
use super::report::{ImportLimits, ImportProblem};
use crate::blank::trim;
use crate::clock;
use crate::error::{Error, Result};
use crate::json::{compact_length, normal_form};
use crate::message::NewMessage;
use crate::raw_json::{Members, RawJson};
use crate::value::Value;

/// One session of an import, as it was exported: an object with the columns of the session and `messages`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ImportEntry {
    /// JSON text, in the dialect of exports: `NaN`, infinities, integers of any size and lone surrogates are taken.
    Json(String),
    /// What stands for a value that could not be written as JSON: as much of it as could. It is refused like any other
    /// bad entry, for what is wrong with it first.
    Unserializable(String),
}

impl From<String> for ImportEntry {
    fn from(text: String) -> Self {
        ImportEntry::Json(text)
    }
}

impl From<&str> for ImportEntry {
    fn from(text: &str) -> Self {
        ImportEntry::Json(text.to_owned())
    }
}

impl From<&serde_json::Value> for ImportEntry {
    fn from(value: &serde_json::Value) -> Self {
        ImportEntry::Json(value.to_string())
    }
}

/// A session that passed, ready to be written.
pub(crate) struct ImportedSession {
    index: usize,
    pub(super) id: String,
    pub(super) columns: Vec<(&'static str, Value)>,
    pub(super) parent: Option<String>,
    pub(super) messages: Vec<NewMessage>,
}

impl ImportedSession {
    pub(super) fn title(&self) -> Option<&str> {
        self.columns.iter().find(|(column, _)| *column == "title")?.1.as_str()
    }

    pub(super) fn problem(&self, error: String) -> ImportProblem {
        ImportProblem { index: self.index, session_id: Some(self.id.clone()), error }
    }
}

/// Text columns that are taken over as they are.
const TEXTS: [&str; 14] = [
    "user_id",
    "model",
    "system_prompt",
    "end_reason",
    "cwd",
    "git_branch",
    "git_repo_root",
    "billing_provider",
    "billing_base_url",
    "billing_mode",
    "cost_status",
    "cost_source",
    "pricing_version",
    "title",
];

const DOUBLES: [&str; 3] = ["ended_at", "estimated_cost_usd", "actual_cost_usd"];

const COUNTS: [&str; 6] =
    ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "api_call_count"];

/// Texts of a message, in the order in which they are looked at.
const MESSAGE_TEXTS: [&str; 8] = [
    "tool_call_id",
    "tool_name",
    "effect_disposition",
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "platform_message_id",
    "message_id",
];

/// Checks all entries. Either side is empty: there is nothing to write if anything is wrong.
pub(crate) fn check(
    entries: &[ImportEntry],
    limits: &ImportLimits,
) -> Result<(Vec<ImportedSession>, Vec<ImportProblem>)> {
    if entries.len() > limits.sessions {
        return Err(Error::Invalid(format!("sessions must contain at most {} entries", limits.sessions)));
    }
    let mut checker = Checker { limits, ids: HashSet::new(), bytes: 0, messages: 0 };
    let (mut sessions, mut problems) = (Vec::new(), Vec::new());
    for (index, entry) in entries.iter().enumerate() {
        let mut session_id = None;
        match checker.entry(index, entry, &mut session_id) {
            // After the first bad entry the others are looked at, but will not be written.
            Ok(session) if problems.is_empty() => sessions.push(session),
            Ok(_) => {}
            Err(error) => {
                sessions.clear();
                problems.push(ImportProblem { index, session_id, error });
            }
        }
    }
    Ok((sessions, problems))
}

/// What is wrong, in words that callers match.
type Checked<T> = std::result::Result<T, String>;

struct Checker<'a> {
    limits: &'a ImportLimits,
    ids: HashSet<String>,
    bytes: usize,
    messages: usize,
}

impl Checker<'_> {
    fn entry(
        &mut self,
        index: usize,
        entry: &ImportEntry,
        session_id: &mut Option<String>,
    ) -> Checked<ImportedSession> {
        let (text, serializable) = match entry {
            ImportEntry::Json(text) => (text, true),
            ImportEntry::Unserializable(text) => (text, false),
        };
        let json = RawJson::parse(text).filter(|json| json.is_object()).ok_or("session must be an object")?;
        let fields = json.members();
        let id = fields.get("id").filter(|id| !id.is_falsy()).map(text_of).unwrap_or_default();
        let id = Some(trim(&id).to_owned()).filter(|id| !id.is_empty()).ok_or("session id is required")?;
        *session_id = Some(id.clone());
        if self.ids.contains(&id) {
            return Err("duplicate session id".to_owned());
        }
        let messages = self.message_objects(&fields)?;
        if !serializable {
            return Err("session must be JSON serializable".to_owned());
        }
        let bytes = compact_length(json);
        if bytes > self.limits.session_bytes {
            return Err("session exceeds the import size limit".to_owned());
        }
        self.bytes += bytes;
        if self.bytes > self.limits.total_bytes {
            return Err("import exceeds the total size limit".to_owned());
        }
        let columns = columns(&fields)?;
        let parent = text_field(&fields, "parent_session_id")?;
        let columns = with_texts(columns, &fields)?;
        let columns = with_numbers(columns, &fields)?;
        let messages = messages.iter().enumerate().map(|(number, fields)| message(number, fields));
        let messages = messages.collect::<Checked<Vec<_>>>()?;
        self.messages += messages.len();
        if self.messages > self.limits.total_messages {
            return Err("messages exceeds the total import limit".to_owned());
        }
        self.ids.insert(id.clone());
        let parent = parent.map(|parent| trim(&parent).to_owned()).filter(|parent| !parent.is_empty());
        Ok(ImportedSession { index, id, columns, parent, messages })
    }

    fn message_objects<'a>(&self, fields: &Members<'a>) -> Checked<Vec<Members<'a>>> {
        let Some(messages) = fields.get("messages").filter(|messages| !messages.is_falsy()) else {
            return Ok(Vec::new());
        };
        if !messages.is_list() {
            return Err("messages must be a list".to_owned());
        }
        let messages = messages.elements();
        if messages.len() > self.limits.messages_per_session {
            return Err("messages exceeds the per-session import limit".to_owned());
        }
        if !messages.iter().all(|message| message.is_object()) {
            return Err("messages must contain only objects".to_owned());
        }
        Ok(messages.into_iter().map(RawJson::members).collect())
    }
}

/// The value of a field that is there and not null.
fn given<'a>(fields: &Members<'a>, name: &str) -> Option<RawJson<'a>> {
    fields.get(name).filter(|value| !value.is_null())
}

/// The text of a field, `None` if it is absent or null.
fn text_field(fields: &Members<'_>, name: &str) -> Checked<Option<String>> {
    match given(fields, name) {
        None => Ok(None),
        Some(value) => value.string().map(Some).ok_or_else(|| format!("{name} must be a string")),
    }
}

fn too_large(name: &str) -> impl Fn(TooLarge) -> String {
    move |TooLarge| format!("{name} is too large")
}

type Columns = Vec<(&'static str, Value)>;

fn columns(fields: &Members<'_>) -> Checked<Columns> {
    let config = match given(fields, "model_config") {
        None => Value::Null,
        Some(config) if config.is_object() => normal_form(config).into(),
        Some(config) => match config.string() {
            None => return Err("model_config must be a JSON object".to_owned()),
            Some(text) => {
                let parsed = RawJson::parse(&text).ok_or("model_config must be valid JSON")?;
                if !parsed.is_object() {
                    return Err("model_config must be a JSON object".to_owned());
                }
                text.into()
            }
        },
    };
    Ok(vec![("model_config", config)])
}

fn with_texts(mut columns: Columns, fields: &Members<'_>) -> Checked<Columns> {
    let source = text_field(fields, "source")?.filter(|source| !source.is_empty());
    columns.push(("source", source.unwrap_or_else(|| "import".to_owned()).into()));
    for name in TEXTS {
        columns.push((name, text_field(fields, name)?.into()));
    }
    Ok(columns)
}

fn with_numbers(mut columns: Columns, fields: &Members<'_>) -> Checked<Columns> {
    let real = |name: &'static str| match given(fields, name) {
        Some(value) => double(value).map_err(too_large(name)),
        None => Ok(None),
    };
    let started = real("started_at")?.unwrap_or_else(clock::now);
    if started.is_nan() {
        return Err("started_at must be a number".to_owned());
    }
    columns.push(("started_at", started.into()));
    for name in DOUBLES {
        columns.push((name, real(name)?.filter(|number| !number.is_nan()).into()));
    }
    for name in COUNTS {
        let count = match given(fields, name) {
            Some(value) => integer(value).map_err(too_large(name))?.unwrap_or_default(),
            None => 0,
        };
        columns.push((name, count.into()));
    }
    columns.push(("archived", is_truthy(fields.get("archived")).into()));
    Ok(columns)
}

fn message(number: usize, fields: &Members<'_>) -> Checked<NewMessage> {
    let role = fields.get("role").and_then(RawJson::string).filter(|role| !role.is_empty());
    let role = role.ok_or_else(|| format!("messages[{number}].role must be a non-empty string"))?;
    for name in MESSAGE_TEXTS {
        if given(fields, name).is_some_and(|value| !value.is_string()) {
            return Err(format!("{name} must be a string"));
        }
    }
    let tokens = match given(fields, "token_count") {
        None => Value::Null,
        Some(count) => match integer(count) {
            Ok(Some(count)) => count.into(),
            _ => return Err("token_count must be an integer".to_owned()),
        },
    };
    let timestamp = match given(fields, "timestamp").map(double) {
        None => None,
        Some(Ok(time)) if time.is_some_and(f64::is_nan) => {
            return Err(format!("messages[{number}].timestamp must be a number"));
        }
        Some(Ok(time)) => time,
        Some(Err(TooLarge)) => return Err(format!("messages[{number}].timestamp is too large")),
    };
    let text = |name: &str| text_or_null(fields.get(name));
    let platform_id = Some(text("platform_message_id")).filter(|id| !id.is_falsy());
    let message = NewMessage::new(role.as_str(), content(fields.get("content")))
        .tool_calls(tool_calls(fields.get("tool_calls")))
        .tool_call_id(text("tool_call_id"))
        .tool_name(text("tool_name"))
        .effect_disposition(text("effect_disposition"))
        .token_count(tokens)
        .finish_reason(text("finish_reason"))
        .platform_message_id(platform_id.unwrap_or_else(|| text("message_id")))
        .observed(is_truthy(fields.get("observed")))
        .api_content(text("api_content"))
        .timestamp(timestamp);
    if role != "assistant" {
        return Ok(message);
    }
    Ok(message
        .reasoning(text("reasoning"))
        .reasoning_content(text("reasoning_content"))
        .reasoning_details(items(fields.get("reasoning_details")))
        .codex_reasoning_items(items(fields.get("codex_reasoning_items")))
        .codex_message_items(items(fields.get("codex_message_items"))))
}
