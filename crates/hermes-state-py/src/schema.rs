//! Constants and helpers of the module that need no open store.

use std::path::PathBuf;

use hermes_state::{COMPACT_EXCLUDED, LockKind, MAX_TITLE_LENGTH};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet};

use crate::error::sqlite3_error;
use crate::message::JSON_PREFIX;

pub(crate) fn add_constants(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("SCHEMA_SQL", hermes_state::SCHEMA_SQL)?;
    module.add("SCHEMA_VERSION", hermes_state::SCHEMA_VERSION)?;
    module.add("FTS_STORAGE_VERSION", hermes_state::FTS_STORAGE_VERSION)?;
    module.add("MAX_FTS5_QUERY_CHARS", hermes_state::MAX_FTS5_QUERY_CHARS)?;
    module.add("CONTENT_JSON_PREFIX", JSON_PREFIX)?;
    module.add("MAX_TITLE_LENGTH", MAX_TITLE_LENGTH)?;
    module.add("COMPACT_EXCLUDED", PyFrozenSet::new(module.py(), COMPACT_EXCLUDED)?)
}

/// What a script of table definitions declares: for each table its columns, for each column its type text.
#[pyfunction]
pub(crate) fn parse_schema_columns<'py>(py: Python<'py>, schema_sql: &str) -> PyResult<Bound<'py, PyDict>> {
    let tables = hermes_state::parse_schema_columns(schema_sql)
        .map_err(|error| sqlite3_error(py, "OperationalError", &error.to_string()))?;
    let found = PyDict::new(py);
    for (table, columns) in tables {
        let dict = PyDict::new(py);
        for (column, declared) in columns {
            dict.set_item(column, declared)?;
        }
        found.set_item(table, dict)?;
    }
    Ok(found)
}

/// Whether a store's location is the URL of a server, well-formed or not, and not the path of a file.
#[pyfunction]
pub(crate) fn is_url(location: PathBuf) -> bool {
    hermes_state::is_url(location)
}

/// Asks for a kind of locks by its name, before the first store is opened; returns whether it is in force.
#[pyfunction]
pub(crate) fn require_lock_kind(name: &str) -> PyResult<bool> {
    match LockKind::from_name(name) {
        Some(kind) => Ok(hermes_state::require_lock_kind(kind).is_ok()),
        None => Err(PyValueError::new_err(format!("there is no kind of locks named '{name}'"))),
    }
}
