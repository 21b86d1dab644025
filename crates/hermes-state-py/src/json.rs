//! JSON by Python's own `json` module, which knows what Rust's JSON types do not: `NaN`, integers of any size, lone
//! surrogates.

use std::borrow::Cow;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyAny, PyDict, PyString};

static ENCODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static DECODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static SCAN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The JSON text of a value, in the store's form, which is the default form of Python.
pub(crate) fn dumps(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = value.py();
    let encode = ENCODE.import(py, "json", "dumps")?;
    let text = encode.call1((value,)).map_err(|error| {
        // A cycle, too: what cannot be written as JSON has the wrong type.
        if error.is_instance_of::<PyValueError>(py) { PyTypeError::new_err(error.value(py).to_string()) } else { error }
    })?;
    text.cast::<PyString>()?.to_cow().map(Cow::into_owned)
}

/// The value of a stored JSON text.
///
/// The scanner at the heart of Python's decoder is asked first, for it costs no Python call; where it does not take the
/// text as a whole, the decoder itself knows whether that is an error.
pub(crate) fn loads<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let string = PyString::new(py, text);
    let scan = SCAN.get_or_try_init(py, || {
        let decoder = py.import("json")?.getattr("JSONDecoder")?.call0()?;
        decoder.getattr("scan_once").map(Bound::unbind)
    })?;
    if let Ok(found) = scan.bind(py).call1((&string, 0)) {
        let (value, end) = found.extract::<(Bound<'py, PyAny>, usize)>()?;
        if end == string.len()? {
            return Ok(value);
        }
    }
    loads_str(&string)
}

/// The value of a JSON text; text that is no JSON raises `ValueError`, also where the text has a lone surrogate.
pub(crate) fn loads_str<'py>(text: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    DECODE.import(text.py(), "json", "loads")?.call1((text,))
}

/// `json.dumps(value)` for a truthy value, nothing for a falsy one.
pub(crate) fn dumps_truthy(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if value.is_truthy()? { dumps(value).map(Some) } else { Ok(None) }
}

/// A value whose keys are those of a mapping, as a dictionary.
pub(crate) fn as_dict<'py>(mapping: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    if let Ok(dict) = mapping.cast::<PyDict>() {
        return Ok(dict.clone());
    }
    let py = mapping.py();
    mapping.getattr(intern!(py, "keys"))?;
    Ok(py.get_type::<PyDict>().call1((mapping,))?.cast_into::<PyDict>()?)
}
