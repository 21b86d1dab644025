//! Rows of the store as dictionaries.

use hermes_state::{
    AnchoredView, ConversationMessage, ConversationValue, Message, MessageWindow, Record, Rewound, SearchHit, Session,
    UserMessage, Value,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBool, PyBytes, PyDict, PyFloat, PyList, PyString};

use crate::json;
use crate::message::decoded;
use crate::value::to_python;

/// A session with every column as it is stored.
pub(crate) fn session<'py>(py: Python<'py>, session: &Session) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (column, value) in session.record().iter() {
        dict.set_item(PyString::intern(py, column), to_python(py, value)?)?;
    }
    Ok(dict)
}

/// Sessions, in order. Projected rows have a column more, so each brings its own names.
pub(crate) fn sessions<'py>(py: Python<'py>, rows: &[Session]) -> PyResult<Bound<'py, PyList>> {
    let dicts = rows.iter().map(|row| session(py, row)).collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, dicts)
}

/// Messages with every column, contents and calls decoded.
///
/// Most columns of most rows are empty, so each row starts as a copy of one where all are; and what a column repeats
/// from the row before, such as the session, is made once.
pub(crate) fn messages<'py>(py: Python<'py>, rows: &[Message]) -> PyResult<Bound<'py, PyList>> {
    let Some(first) = rows.first() else { return Ok(PyList::empty(py)) };
    let columns = first.record().columns();
    let keys: Vec<Bound<'py, PyString>> = columns.iter().map(|column| PyString::intern(py, column)).collect();
    let empty = PyDict::new(py);
    for key in &keys {
        empty.set_item(key, py.None())?;
    }
    let kinds: Vec<Kind> = columns.iter().map(|column| Kind::of(column)).collect();
    let mut before: Option<(&Record, Vec<Bound<'py, PyAny>>)> = None;
    let mut dicts = Vec::with_capacity(rows.len());
    for row in rows {
        let record = row.record();
        let dict = empty.copy()?;
        let mut made = Vec::with_capacity(keys.len());
        for (index, value) in record.values().iter().enumerate() {
            let repeated =
                before.as_ref().filter(|(record, _)| is_shareable(value) && record.values()[index] == *value);
            let object = match (repeated, kinds[index], value) {
                (Some((_, objects)), Kind::Plain, _) => objects[index].clone(),
                (_, Kind::Content, value) => decoded(py, value)?,
                (_, Kind::Calls, Value::Text(text)) if !text.is_empty() => calls(py, text)?,
                (_, _, value) => to_python(py, value)?,
            };
            if !value.is_null() {
                dict.set_item(&keys[index], &object)?;
            }
            made.push(object);
        }
        before = Some((record, made));
        dicts.push(dict);
    }
    PyList::new(py, dicts)
}

#[derive(Clone, Copy)]
enum Kind {
    Plain,
    Content,
    Calls,
}

impl Kind {
    fn of(column: &str) -> Self {
        match column {
            "content" => Kind::Content,
            "tool_calls" => Kind::Calls,
            _ => Kind::Plain,
        }
    }
}

/// Whether one object may stand for the equal value of the next row: short texts, and nothing that is dearer to compare
/// than to make.
fn is_shareable(value: &Value) -> bool {
    matches!(value, Value::Text(text) if text.len() <= 64)
}

/// Stored calls; an empty list where they are no JSON.
pub(crate) fn calls<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    match json::loads(py, text) {
        Err(error) if error.is_instance_of::<pyo3::exceptions::PyValueError>(py) => Ok(PyList::empty(py).into_any()),
        parsed => parsed,
    }
}

/// A message with its neighbours.
pub(crate) fn window<'py>(py: Python<'py>, window: &MessageWindow) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item(intern!(py, "window"), messages(py, &window.messages)?)?;
    dict.set_item(intern!(py, "messages_before"), window.before)?;
    dict.set_item(intern!(py, "messages_after"), window.after)?;
    Ok(dict)
}

/// The same, with the ends of the session.
pub(crate) fn view<'py>(py: Python<'py>, view: &AnchoredView) -> PyResult<Bound<'py, PyDict>> {
    let dict = window(py, &view.window)?;
    dict.set_item(intern!(py, "bookend_start"), messages(py, &view.start)?)?;
    dict.set_item(intern!(py, "bookend_end"), messages(py, &view.end)?)?;
    Ok(dict)
}

/// What users said, in short.
pub(crate) fn user_messages<'py>(py: Python<'py>, rows: &[UserMessage]) -> PyResult<Bound<'py, PyList>> {
    let mut dicts = Vec::with_capacity(rows.len());
    for row in rows {
        let dict = PyDict::new(py);
        dict.set_item(intern!(py, "id"), row.id)?;
        dict.set_item(intern!(py, "timestamp"), row.timestamp)?;
        dict.set_item(intern!(py, "preview"), &row.preview)?;
        dicts.push(dict);
    }
    PyList::new(py, dicts)
}

/// What a rewind did; the message that it went back to has its calls as they are stored.
pub(crate) fn rewound<'py>(py: Python<'py>, rewound: &Rewound) -> PyResult<Bound<'py, PyDict>> {
    let target = PyDict::new(py);
    for (column, value) in rewound.target.record().iter() {
        let value = if column == "content" { decoded(py, value)? } else { to_python(py, value)? };
        target.set_item(PyString::intern(py, column), value)?;
    }
    let dict = PyDict::new(py);
    dict.set_item(intern!(py, "rewound_count"), rewound.rewound_count)?;
    dict.set_item(intern!(py, "target_message"), target)?;
    dict.set_item(intern!(py, "new_head_id"), rewound.new_head_id)?;
    Ok(dict)
}

/// A conversation, each message with the names that say something.
pub(crate) fn conversation<'py>(py: Python<'py>, messages: &[ConversationMessage]) -> PyResult<Bound<'py, PyList>> {
    // The store names all messages' values with the same few words, so each is made once.
    let mut names: Vec<(&'static str, Bound<'py, PyString>)> = Vec::new();
    let mut dicts = Vec::with_capacity(messages.len());
    for message in messages {
        let dict = PyDict::new(py);
        for (name, value) in message.iter() {
            let known = names.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                names.push((name, PyString::intern(py, name)));
                names.len() - 1
            });
            let value = match value {
                ConversationValue::Text(text) if name == "role" => PyString::intern(py, text).into_any(),
                ConversationValue::Text(text) => PyString::new(py, text).into_any(),
                ConversationValue::Json(text) => json::loads(py, text)?,
                ConversationValue::Real(double) => PyFloat::new(py, *double).into_any(),
                ConversationValue::Integer(integer) => integer.into_pyobject(py)?.into_any(),
                ConversationValue::Bool(flag) => PyBool::new(py, *flag).to_owned().into_any(),
                ConversationValue::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
                _ => py.None().into_bound(py),
            };
            dict.set_item(&names[known].1, value)?;
        }
        dicts.push(dict);
    }
    PyList::new(py, dicts)
}

/// What a search found.
pub(crate) fn hits<'py>(py: Python<'py>, hits: &[SearchHit]) -> PyResult<Bound<'py, PyList>> {
    let mut dicts = Vec::with_capacity(hits.len());
    for hit in hits {
        let mut context = Vec::with_capacity(hit.context.len());
        for line in &hit.context {
            let dict = PyDict::new(py);
            dict.set_item(intern!(py, "role"), &line.role)?;
            dict.set_item(intern!(py, "content"), &line.content)?;
            context.push(dict);
        }
        let dict = PyDict::new(py);
        dict.set_item(intern!(py, "id"), hit.id)?;
        dict.set_item(intern!(py, "session_id"), &hit.session_id)?;
        dict.set_item(intern!(py, "role"), &hit.role)?;
        dict.set_item(intern!(py, "snippet"), hit.snippet.as_deref())?;
        dict.set_item(intern!(py, "timestamp"), hit.timestamp)?;
        dict.set_item(intern!(py, "tool_name"), hit.tool_name.as_deref())?;
        dict.set_item(intern!(py, "source"), &hit.source)?;
        dict.set_item(intern!(py, "model"), hit.model.as_deref())?;
        dict.set_item(intern!(py, "session_started"), hit.session_started)?;
        dict.set_item(intern!(py, "context"), PyList::new(py, context)?)?;
        dicts.push(dict);
    }
    PyList::new(py, dicts)
}
