//! Messages as callers hand them over: keywords of `append_message` as values of the store.

use hermes_state::{Content, MAX_CLIENT_KEY_CHARS, NewMessage, ToolCalls, Value};
use pyo3::exceptions::{PyOverflowError, PyRecursionError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::json;
use crate::value::{scrubbed, to_python, to_scrubbed_value, to_value};

/// Before structured content in the column.
pub(crate) const JSON_PREFIX: &str = "\0json:";

/// The keywords of a message, in the order of `append_message`.
pub(crate) struct Keywords<'a, 'py> {
    pub(crate) role: &'a Bound<'py, PyAny>,
    pub(crate) content: Option<&'a Bound<'py, PyAny>>,
    pub(crate) tool_name: Option<&'a Bound<'py, PyAny>>,
    pub(crate) tool_calls: Option<&'a Bound<'py, PyAny>>,
    pub(crate) tool_call_id: Option<&'a Bound<'py, PyAny>>,
    pub(crate) token_count: Option<&'a Bound<'py, PyAny>>,
    pub(crate) finish_reason: Option<&'a Bound<'py, PyAny>>,
    pub(crate) reasoning: Option<&'a Bound<'py, PyAny>>,
    pub(crate) reasoning_content: Option<&'a Bound<'py, PyAny>>,
    pub(crate) reasoning_details: Option<&'a Bound<'py, PyAny>>,
    pub(crate) codex_reasoning_items: Option<&'a Bound<'py, PyAny>>,
    pub(crate) codex_message_items: Option<&'a Bound<'py, PyAny>>,
    pub(crate) platform_message_id: Option<&'a Bound<'py, PyAny>>,
    pub(crate) observed: Option<&'a Bound<'py, PyAny>>,
    pub(crate) effect_disposition: Option<&'a Bound<'py, PyAny>>,
    pub(crate) timestamp: Option<&'a Bound<'py, PyAny>>,
    pub(crate) api_content: Option<&'a Bound<'py, PyAny>>,
    pub(crate) client_key: Option<&'a Bound<'py, PyAny>>,
}

impl Keywords<'_, '_> {
    /// The message they describe. Everything that can be refused is refused here, before any lock is taken.
    pub(crate) fn message(&self) -> PyResult<NewMessage> {
        let mut message = NewMessage::new(to_value(self.role)?, given(self.content, content)?);
        if let Some(value) = self.tool_name {
            message = message.tool_name(to_scrubbed_value(value)?);
        }
        if let Some(value) = self.tool_calls {
            message = message.tool_calls(tool_calls(value)?);
        }
        if let Some(value) = self.tool_call_id {
            message = message.tool_call_id(to_scrubbed_value(value)?);
        }
        if let Some(value) = self.token_count {
            message = message.token_count(to_value(value)?);
        }
        if let Some(value) = self.finish_reason {
            message = message.finish_reason(to_scrubbed_value(value)?);
        }
        if let Some(value) = self.reasoning {
            message = message.reasoning(to_scrubbed_value(value)?);
        }
        if let Some(value) = self.reasoning_content {
            message = message.reasoning_content(to_scrubbed_value(value)?);
        }
        if let Some(value) = self.reasoning_details {
            message = message.reasoning_details(json::dumps_truthy(value)?);
        }
        if let Some(value) = self.codex_reasoning_items {
            message = message.codex_reasoning_items(json::dumps_truthy(value)?);
        }
        if let Some(value) = self.codex_message_items {
            message = message.codex_message_items(json::dumps_truthy(value)?);
        }
        if let Some(value) = self.platform_message_id {
            message = message.platform_message_id(to_scrubbed_value(value)?);
        }
        if let Some(value) = self.observed {
            message = message.observed(value.is_truthy()?);
        }
        if let Some(value) = self.effect_disposition {
            message = message.effect_disposition(to_scrubbed_value(value)?);
        }
        if let Some(value) = self.timestamp {
            message = message.timestamp(timestamp(value)?);
        }
        if let Some(text) = self.api_content.and_then(|value| value.cast::<PyString>().ok()) {
            message = message.api_content(scrubbed(text)?);
        }
        if let Some(value) = self.client_key {
            message = message.client_key(to_value(value)?);
        }
        Ok(message)
    }
}

fn given<'py, T: Default>(
    value: Option<&Bound<'py, PyAny>>,
    convert: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<T> {
    value.map_or_else(|| Ok(T::default()), convert)
}

/// The values of the known keys of a mapping, by the place of the key.
type Found<'py> = [Option<Bound<'py, PyAny>>; KEYS.len()];

/// The message that a mapping with these keywords describes.
pub(crate) fn from_mapping(mapping: &Bound<'_, PyAny>) -> PyResult<NewMessage> {
    let found = look_up(mapping, |key, _| Err(PyTypeError::new_err(format!("a message has no key {}", key.repr()?))))?;
    match &found[ROLE] {
        Some(role) => keywords(role, &found).message(),
        None => Err(PyTypeError::new_err("a message needs the key 'role'")),
    }
}

/// The message that a row of a transcript describes, as it was read or put together: other keys are none of ours.
pub(crate) fn from_row(mapping: &Bound<'_, PyAny>) -> PyResult<NewMessage> {
    let mut replayed_id = None;
    let mut found = look_up(mapping, |key, value| {
        if key.eq("message_id")? {
            replayed_id = Some(value);
        }
        Ok(())
    })?;
    let platform_id = &mut found[PLATFORM_MESSAGE_ID];
    if !platform_id.as_ref().map_or(Ok(false), |id| id.is_truthy())? {
        *platform_id = replayed_id;
    }
    if !found[CLIENT_KEY].as_ref().map_or(Ok(true), is_client_key)? {
        found[CLIENT_KEY] = None;
    }
    let unknown = PyString::intern(mapping.py(), "unknown").into_any();
    keywords(found[ROLE].as_ref().unwrap_or(&unknown), &found).message()
}

fn is_client_key(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Ok(text) = value.cast::<PyString>() else { return Ok(false) };
    Ok(text.to_cow().is_ok() && (1..=MAX_CLIENT_KEY_CHARS).contains(&text.len()?))
}

/// Messages that are rows of a transcript.
pub(crate) fn batch(messages: &Bound<'_, PyAny>) -> PyResult<Vec<NewMessage>> {
    messages.try_iter()?.map(|message| from_row(&message?)).collect()
}

/// The rows that a batch is stored as, each with the values of the columns from `role` to `api_content`, and the number
/// of calls.
#[pyfunction]
pub(crate) fn batch_rows<'py>(messages: &Bound<'py, PyAny>) -> PyResult<(Vec<Bound<'py, PyTuple>>, i64)> {
    let py = messages.py();
    let messages = NewMessage::batch(batch(messages)?);
    let calls = messages.iter().map(NewMessage::tool_call_count).sum();
    let row = |message: &NewMessage| {
        let values = message.columns().iter().map(|(_, value)| to_python(py, value)).collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, values)
    };
    Ok((messages.iter().map(row).collect::<PyResult<_>>()?, calls))
}

/// Looks the known keys of a mapping up; `other` is told of the rest.
fn look_up<'py>(
    mapping: &Bound<'py, PyAny>,
    mut other: impl FnMut(&Bound<'py, PyAny>, Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<Found<'py>> {
    let mapping = json::as_dict(mapping)?;
    let mut found = [const { None }; KEYS.len()];
    for (key, value) in mapping.iter() {
        let name = key.cast::<PyString>().ok().and_then(|key| key.to_cow().ok());
        match name.as_deref().and_then(|name| KEYS.iter().position(|known| *known == name)) {
            Some(index) if value.is_none() && index != ROLE => {}
            Some(index) => found[index] = Some(value),
            None => other(&key, value)?,
        }
    }
    Ok(found)
}

fn keywords<'a, 'py>(role: &'a Bound<'py, PyAny>, found: &'a Found<'py>) -> Keywords<'a, 'py> {
    let [
        _,
        content,
        tool_name,
        tool_calls,
        tool_call_id,
        token_count,
        finish_reason,
        reasoning,
        reasoning_content,
        reasoning_details,
        codex_reasoning_items,
        codex_message_items,
        platform_message_id,
        observed,
        effect_disposition,
        timestamp,
        api_content,
        client_key,
    ] = found;
    Keywords {
        role,
        content: content.as_ref(),
        tool_name: tool_name.as_ref(),
        tool_calls: tool_calls.as_ref(),
        tool_call_id: tool_call_id.as_ref(),
        token_count: token_count.as_ref(),
        finish_reason: finish_reason.as_ref(),
        reasoning: reasoning.as_ref(),
        reasoning_content: reasoning_content.as_ref(),
        reasoning_details: reasoning_details.as_ref(),
        codex_reasoning_items: codex_reasoning_items.as_ref(),
        codex_message_items: codex_message_items.as_ref(),
        platform_message_id: platform_message_id.as_ref(),
        observed: observed.as_ref(),
        effect_disposition: effect_disposition.as_ref(),
        timestamp: timestamp.as_ref(),
        api_content: api_content.as_ref(),
        client_key: client_key.as_ref(),
    }
}

/// The places of some of [`KEYS`].
const ROLE: usize = 0;
const PLATFORM_MESSAGE_ID: usize = 12;
const CLIENT_KEY: usize = 17;

const KEYS: [&str; 18] = [
    "role",
    "content",
    "tool_name",
    "tool_calls",
    "tool_call_id",
    "token_count",
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
    "platform_message_id",
    "observed",
    "effect_disposition",
    "timestamp",
    "api_content",
    "client_key",
];

/// Lists and objects become JSON, scalars stay what they are, anything else becomes its text: a message is stored
/// whatever its content is.
pub(crate) fn content(value: &Bound<'_, PyAny>) -> PyResult<Content> {
    let py = value.py();
    if value.is_none() {
        return Ok(Content::None);
    }
    if let Ok(text) = value.cast::<PyString>() {
        return scrubbed(text).map(Content::Text);
    }
    if value.is_instance_of::<PyDict>() || value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        match json::dumps(value) {
            Ok(text) => return Ok(Content::Json(text)),
            Err(error) if error.is_instance_of::<PyRecursionError>(py) => return Err(error),
            Err(_) => return scrubbed(&value.str()?).map(Content::Text),
        }
    }
    match to_value(value) {
        Ok(Value::Blob(bytes)) => Ok(Content::Bytes(bytes)),
        Ok(number) => Ok(Content::Number(number)),
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => Err(error),
        Err(_) => scrubbed(&value.str()?).map(Content::Text),
    }
}

/// What is kept in the content column for a content.
#[pyfunction]
pub(crate) fn encode_content<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    match content(value)? {
        Content::Text(text) => Ok(PyString::new(py, &text).into_any()),
        Content::Json(text) => Ok(PyString::new(py, &format!("{JSON_PREFIX}{text}")).into_any()),
        _ => Ok(value.clone()),
    }
}

/// The content that a column's value stands for.
#[pyfunction]
pub(crate) fn decode_content<'py>(value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let json = match value.cast::<PyString>().map(|text| text.to_cow()) {
        Ok(Ok(text)) => text.strip_prefix(JSON_PREFIX).map(str::to_owned),
        _ => None,
    };
    match json {
        Some(json) => parsed_or(value.py(), &json, value),
        None => Ok(value),
    }
}

/// The content of a stored row.
pub(crate) fn decoded<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    let stored = to_python(py, value)?;
    match value.as_str().and_then(|text| text.strip_prefix(JSON_PREFIX)) {
        Some(json) => parsed_or(py, json, stored),
        None => Ok(stored),
    }
}

/// The value of a JSON text, or what was stored if it is none.
fn parsed_or<'py>(py: Python<'py>, json: &str, stored: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match json::loads(py, json) {
        Err(error) if error.is_instance_of::<PyValueError>(py) => Ok(stored),
        parsed => parsed,
    }
}

/// Calls in their normal form: text is parsed first, so that what already is JSON is not encoded twice.
fn tool_calls(value: &Bound<'_, PyAny>) -> PyResult<ToolCalls> {
    let Ok(text) = value.cast::<PyString>() else { return encoded_calls(value) };
    match json::loads_str(text) {
        Ok(parsed) => encoded_calls(&parsed),
        Err(error) if error.is_instance_of::<PyValueError>(value.py()) => Ok(ToolCalls::default()),
        Err(error) => Err(error),
    }
}

/// A list counts its elements, anything else that says something counts as one, and what says nothing is no call.
fn encoded_calls(value: &Bound<'_, PyAny>) -> PyResult<ToolCalls> {
    let Some(text) = json::dumps_truthy(value)? else { return Ok(ToolCalls::default()) };
    let count = value.cast::<PyList>().map_or(1, |list| i64::try_from(list.len()).unwrap_or(i64::MAX));
    Ok(ToolCalls::from_text(Some(text), count))
}

/// Seconds since the epoch of a number, a date-time, or the text of a number; `None`, which means now, for the rest.
fn timestamp(value: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    let py = value.py();
    if value.is_none() {
        return Ok(None);
    }
    if let Ok(double) = value.cast::<PyFloat>() {
        return Ok(Some(double.value()));
    }
    let is_plain = value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>();
    let number = match value.getattr_opt(intern!(py, "timestamp"))? {
        Some(method) if !is_plain && method.is_callable() => match method.call0() {
            Ok(seconds) => seconds,
            // A date that has no such number, as one of the year 1 in this time zone.
            Err(error) if error.is_instance_of::<PyValueError>(py) => return Ok(None),
            Err(error) => return Err(error),
        },
        _ => value.clone(),
    };
    match py.get_type::<PyFloat>().call1((number,)) {
        Ok(double) => Ok(Some(double.extract()?)),
        Err(error) if error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyValueError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}
