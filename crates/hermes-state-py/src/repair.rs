//! The health of a file, its repair, and kinds of trouble: what needs no open store.

use std::path::PathBuf;

use hermes_state::{ErrorKind, RepairOptions, SessionDb};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyList};

use crate::error::raise;

/// What is wrong with the file of a store; `None` if nothing is.
#[pyfunction]
pub(crate) fn file_ailment(py: Python<'_>, path: PathBuf) -> PyResult<Option<String>> {
    py.detach(|| SessionDb::file_ailment(path)).map_err(|error| raise(py, &error))
}

/// The strategy, the backup's path, the tables with their counts, and what else was seen.
type Repaired<'py> = (&'static str, Option<String>, Bound<'py, PyList>, Vec<String>);

/// Repairs the file of a store.
#[pyfunction]
pub(crate) fn repair_file<'py>(py: Python<'py>, path: PathBuf, backup: bool, stamp: String) -> PyResult<Repaired<'py>> {
    let mut options = RepairOptions::default();
    options.backup = backup;
    options.thorough = false;
    options.stamp = Some(stamp);
    let report = py.detach(|| SessionDb::repair_file(path, &options)).map_err(|error| raise(py, &error))?;
    let tables = report.tables.iter().map(|table| {
        let dict = PyDict::new(py);
        dict.set_item("name", &table.name)?;
        dict.set_item("before", table.before)?;
        dict.set_item("rows", table.rows)?;
        dict.set_item("lost", table.lost)?;
        dict.set_item("mended", table.mended)?;
        dict.set_item("made", table.made)?;
        dict.set_item("incomplete", table.incomplete)?;
        Ok(dict)
    });
    let tables = PyList::new(py, tables.collect::<PyResult<Vec<_>>>()?)?;
    let backup = report.backup.map(|path| path.to_string_lossy().into_owned());
    Ok((report.strategy.name(), backup, tables, report.notes))
}

/// The name of the kind of trouble that a number of SQLite's or of the system's stands for.
#[pyfunction]
pub(crate) fn trouble_of_number(sqlite_code: Option<i32>, errno: Option<i32>) -> &'static str {
    let by_code = sqlite_code.map_or(ErrorKind::Unknown, ErrorKind::of_sqlite);
    let kind = if by_code == ErrorKind::Unknown { errno.map_or(by_code, ErrorKind::of_errno) } else { by_code };
    kind.name()
}

/// For each kind of trouble its sentence for people.
#[pyfunction]
pub(crate) fn trouble_sentences(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let dict = PyDict::new(py);
    for kind in ErrorKind::ALL {
        dict.set_item(kind.name(), kind.sentence())?;
    }
    Ok(dict.into_any())
}
