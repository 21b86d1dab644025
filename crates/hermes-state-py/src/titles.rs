//! Titles: what Python's methods hand over.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict};

use crate::error::raise;
use crate::handle::Store;
use crate::row;
use crate::value::{lookup_text, title_text, to_value};
use crate::write::Write;

/// The title as it is stored, `None` if nothing is left of it. Writes clean theirs when they are made, so a bad title
/// raises whether or not the session exists.
#[pyfunction]
pub(crate) fn sanitize_title(title: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    match title_text(title)? {
        Some(text) => hermes_state::sanitize_title(&text).map_err(|error| raise(title.py(), &error)),
        None => Ok(None),
    }
}

#[pymethods]
impl Store {
    #[staticmethod]
    fn set_session_title(session_id: &Bound<'_, PyAny>, title: &Bound<'_, PyAny>) -> PyResult<Write> {
        let (title, id) = (sanitize_title(title)?, to_value(session_id)?);
        Ok(Write::new("set_session_title", move |db| db.set_session_title(id.clone(), title.as_deref())))
    }

    #[staticmethod]
    fn set_auto_title_if_empty(session_id: &Bound<'_, PyAny>, title: &Bound<'_, PyAny>) -> PyResult<Write> {
        let (title, id) = (sanitize_title(title)?, to_value(session_id)?);
        Ok(Write::new("set_auto_title_if_empty", move |db| db.set_auto_title_if_empty(id.clone(), title.as_deref())))
    }

    fn session_title(&self, py: Python<'_>, session_id: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
        let id = to_value(session_id)?;
        self.wait(py, |db| db.session_title(id))
    }

    fn session_by_title<'py>(
        &self,
        py: Python<'py>,
        title: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let title = to_value(title)?;
        let found = self.wait(py, |db| db.session_by_title(title))?;
        found.map(|found| row::session(py, &found)).transpose()
    }

    fn resolve_session_by_title(&self, py: Python<'_>, title: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
        let title = lookup_text(title)?;
        self.wait(py, |db| db.resolve_session_by_title(&title))
    }

    fn next_title_in_lineage(&self, py: Python<'_>, base_title: &Bound<'_, PyAny>) -> PyResult<String> {
        let hermes_state::Value::Text(base) = to_value(base_title)? else {
            return Err(PyTypeError::new_err(format!("a title is text, not {}", base_title.get_type().name()?)));
        };
        self.wait(py, |db| db.next_title_in_lineage(&base))
    }
}
