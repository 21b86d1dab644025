//! Python values as column values and back, by the rules that Python's `sqlite3` has for binding.

use hermes_state::Value;
use pyo3::exceptions::{PyAttributeError, PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyString};

use crate::error::sqlite3_error;

/// A value for a column; text with a lone surrogate raises `UnicodeEncodeError`, what no column takes raises
/// `sqlite3.ProgrammingError`.
pub(crate) fn to_value(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if value.is_none() {
        Ok(Value::Null)
    } else if let Ok(text) = value.cast::<PyString>() {
        Ok(Value::Text(text.to_cow()?.into_owned()))
    } else {
        not_text(value)
    }
}

/// A value for a column whose text is mended where it cannot be stored, so that no message is lost for it.
pub(crate) fn to_scrubbed_value(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    match value.cast::<PyString>() {
        Ok(text) => scrubbed(text).map(Value::Text),
        Err(_) => to_value(value),
    }
}

fn not_text(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(Value::Integer(flag.is_true().into()));
    }
    if value.is_instance_of::<PyInt>() {
        return match value.extract::<i64>() {
            Ok(integer) => Ok(Value::Integer(integer)),
            Err(_) => Err(PyOverflowError::new_err("Python int too large to convert to SQLite INTEGER")),
        };
    }
    if let Ok(double) = value.cast::<PyFloat>() {
        return Ok(Value::Real(double.value()));
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Value::Blob(bytes.as_bytes().to_vec()));
    }
    if let Ok(bytes) = value.cast::<PyByteArray>() {
        return Ok(Value::Blob(bytes.to_vec()));
    }
    let name = value.get_type().name()?;
    Err(sqlite3_error(
        value.py(),
        "ProgrammingError",
        &format!("Error binding parameter: type '{name}' is not supported"),
    ))
}

/// A column's value for Python.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Integer(integer) => integer.into_pyobject(py)?.into_any(),
        Value::Real(double) => PyFloat::new(py, *double).into_any(),
        Value::Text(text) => PyString::new(py, text).into_any(),
        Value::Blob(bytes) => PyBytes::new(py, bytes).into_any(),
    })
}

/// Text with each lone surrogate replaced by U+FFFD.
pub(crate) fn scrubbed(text: &Bound<'_, PyString>) -> PyResult<String> {
    if let Ok(text) = text.to_cow() {
        return Ok(text.into_owned());
    }
    let py = text.py();
    let units = text.call_method1(intern!(py, "encode"), (intern!(py, "utf-32-le"), intern!(py, "surrogatepass")))?;
    let units = units.cast::<PyBytes>()?;
    Ok(units
        .as_bytes()
        .chunks_exact(4)
        .map(|unit| char::from_u32(u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]])).unwrap_or('\u{fffd}'))
        .collect())
}

/// Text with each lone surrogate replaced by U+FFFD; anything else as it is.
#[pyfunction]
pub(crate) fn scrub_surrogates<'py>(value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match value.cast::<PyString>() {
        Ok(text) if text.to_cow().is_err() => Ok(PyString::new(value.py(), &scrubbed(text)?).into_any()),
        _ => Ok(value),
    }
}

/// A title that says something, still to be cleaned.
pub(crate) fn title_text(title: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if !title.is_truthy()? {
        return Ok(None);
    }
    match title.cast::<PyString>() {
        Ok(text) => scrubbed(text).map(Some),
        Err(_) => Err(PyTypeError::new_err(format!("a title is text, not {}", title.get_type().name()?))),
    }
}

/// The text of a filter, `None` where it is falsy and so filters nothing. Numbers are compared by their text.
pub(crate) fn filter_text(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if !value.is_truthy()? {
        return Ok(None);
    }
    match to_value(value)? {
        Value::Text(text) => Ok(Some(text)),
        _ => Ok(Some(value.str()?.to_cow()?.into_owned())),
    }
}

/// The text to look for, numbers by their text; what has none, such as `None`, raises `AttributeError`.
pub(crate) fn lookup_text(value: &Bound<'_, PyAny>) -> PyResult<String> {
    match to_value(value)? {
        Value::Text(text) => Ok(text),
        Value::Integer(_) | Value::Real(_) => Ok(value.str()?.to_cow()?.into_owned()),
        Value::Null | Value::Blob(_) => {
            Err(PyAttributeError::new_err(format!("text is needed to look for, not {}", value.get_type().name()?)))
        }
    }
}

/// The id of a session that may be there: text, or a number by its text. `None` for what no id can be.
pub(crate) fn session_id(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    Ok(match to_value(value)? {
        Value::Text(text) => Some(text),
        Value::Integer(integer) => Some(integer.to_string()),
        Value::Null | Value::Real(_) | Value::Blob(_) => None,
    })
}

/// A query, whatever surrogates it holds; `None` where there is nothing to look for.
pub(crate) fn query_text(query: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    match query.cast::<PyString>() {
        Ok(text) => scrubbed(text).map(Some),
        Err(_) if query.is_truthy()? => {
            Err(PyTypeError::new_err(format!("a query is text, not {}", query.get_type().name()?)))
        }
        Err(_) => Ok(None),
    }
}

/// A number of rows, as SQLite takes it in LIMIT and OFFSET: integers, and what is one by its value.
pub(crate) fn row_number(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    let found = match to_value(value)? {
        Value::Integer(integer) => Some(integer),
        Value::Real(double) => whole(double),
        Value::Text(text) => {
            let text = text.trim();
            text.parse().ok().or_else(|| text.parse().ok().and_then(whole))
        }
        Value::Null | Value::Blob(_) => None,
    };
    found.ok_or_else(|| sqlite3_error(value.py(), "IntegrityError", "datatype mismatch"))
}

fn whole(double: f64) -> Option<i64> {
    // Beyond 2^53 a double names no single integer, and no store has so many rows.
    (double.fract() == 0.0 && double.abs() <= 9_007_199_254_740_992.0).then_some(double as i64)
}

/// The elements of a list of filters; none for `None`.
pub(crate) fn values(value: &Bound<'_, PyAny>) -> PyResult<Vec<Value>> {
    if value.is_none() {
        return Ok(Vec::new());
    }
    value.try_iter()?.map(|item| to_value(&item?)).collect()
}

/// The texts of a list of filters; none for `None`.
pub(crate) fn texts(value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    Ok(values(value)?
        .into_iter()
        .filter_map(|value| match value {
            Value::Text(text) => Some(text),
            Value::Integer(integer) => Some(integer.to_string()),
            Value::Null | Value::Real(_) | Value::Blob(_) => None,
        })
        .collect())
}
