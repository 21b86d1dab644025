//! Deleting, pruning and archiving sessions.

use std::path::PathBuf;

use hermes_state::{PruneFilter as Filter, SessionDb};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyBool, PyInt, PyList, PyString};

use crate::error::raise;
use crate::handle::Store;
use crate::row;
use crate::value::{filter_text, row_number, session_id, to_python};
use crate::write::Write;

/// The filters of a prune, complete and checked.
#[pyclass(frozen, module = "hermes_state._native")]
pub(crate) struct PruneFilter(Filter);

#[pymethods]
impl PruneFilter {
    #[new]
    #[pyo3(signature = (*, started_before=None, started_after=None, source=None, end_reason=None, user_id=None,
        chat_id=None, chat_type=None, provider=None, title_like=None, model_like=None, branch_like=None, cwd_prefix=None,
        min_messages=None, max_messages=None, min_tokens=None, max_tokens=None, min_cost=None, max_cost=None,
        min_tool_calls=None, max_tool_calls=None, archived=None))]
    #[expect(clippy::too_many_arguments, reason = "the filters of a prune")]
    fn new(
        started_before: Option<f64>,
        started_after: Option<f64>,
        source: Option<&Bound<'_, PyAny>>,
        end_reason: Option<&Bound<'_, PyAny>>,
        user_id: Option<&Bound<'_, PyAny>>,
        chat_id: Option<&Bound<'_, PyAny>>,
        chat_type: Option<&Bound<'_, PyAny>>,
        provider: Option<&Bound<'_, PyAny>>,
        title_like: Option<&Bound<'_, PyAny>>,
        model_like: Option<&Bound<'_, PyAny>>,
        branch_like: Option<&Bound<'_, PyAny>>,
        cwd_prefix: Option<&Bound<'_, PyAny>>,
        min_messages: Option<&Bound<'_, PyAny>>,
        max_messages: Option<&Bound<'_, PyAny>>,
        min_tokens: Option<&Bound<'_, PyAny>>,
        max_tokens: Option<&Bound<'_, PyAny>>,
        min_cost: Option<f64>,
        max_cost: Option<f64>,
        min_tool_calls: Option<&Bound<'_, PyAny>>,
        max_tool_calls: Option<&Bound<'_, PyAny>>,
        archived: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let text = |value: Option<&Bound<'_, PyAny>>| value.map_or(Ok(None), filter_text);
        let number = |value: Option<&Bound<'_, PyAny>>| value.map(row_number).transpose();
        Ok(Self(Filter {
            started_before,
            started_after,
            source: text(source)?,
            end_reason: text(end_reason)?,
            user_id: text(user_id)?,
            chat_id: text(chat_id)?,
            chat_type: text(chat_type)?,
            provider: text(provider)?,
            title_like: text(title_like)?,
            model_like: text(model_like)?,
            branch_like: text(branch_like)?,
            cwd_prefix: text(cwd_prefix)?,
            min_messages: number(min_messages)?,
            max_messages: number(max_messages)?,
            min_tokens: number(min_tokens)?,
            max_tokens: number(max_tokens)?,
            min_cost,
            max_cost,
            min_tool_calls: number(min_tool_calls)?,
            max_tool_calls: number(max_tool_calls)?,
            archived: archived.map(flag).transpose()?,
            abandoned: false,
        }))
    }

    /// The conditions with a `?` for each parameter, and the parameters.
    fn where_clause<'py>(&self, py: Python<'py>) -> PyResult<(String, Bound<'py, PyList>)> {
        let (clause, parameters) = self.0.where_clause().map_err(|error| raise(py, &error))?;
        let parameters = parameters.iter().map(|value| to_python(py, value)).collect::<PyResult<Vec<_>>>()?;
        Ok((clause, PyList::new(py, parameters)?))
    }
}

/// A truth value; zero and one are taken for it, so that no filter of a deletion is passed over silently.
fn flag(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(flag.is_true());
    }
    match value.cast::<PyInt>().ok().and_then(|number| number.extract::<i64>().ok()) {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        _ => Err(PyValueError::new_err(format!("archived is True, False or None, not {}", value.repr()?))),
    }
}

/// A write that answers how many sessions it concerned.
fn counting(
    name: &'static str,
    run: impl Fn(&SessionDb) -> hermes_state::Result<usize> + Send + Sync + 'static,
) -> Write {
    Write::new(name, move |db| run(db).map(|count| i64::try_from(count).unwrap_or(i64::MAX)))
}

#[pymethods]
impl Store {
    #[staticmethod]
    fn delete_session(id: &Bound<'_, PyAny>, files: Option<PathBuf>) -> PyResult<Write> {
        let id = session_id(id)?;
        Ok(Write::new("delete_session", move |db| match &id {
            Some(id) => db.delete_session(id, files.as_deref()),
            None => Ok(false),
        }))
    }

    /// `None` where there is nothing to delete.
    #[staticmethod]
    fn delete_sessions(ids: &Bound<'_, PyAny>, files: Option<PathBuf>) -> PyResult<Option<Write>> {
        let mut listed: Vec<String> = Vec::new();
        for id in ids.try_iter()? {
            if let Ok(id) = id?.cast::<PyString>() {
                listed.push(id.to_cow()?.into_owned());
            }
        }
        listed.retain(|id| !id.is_empty());
        if listed.is_empty() {
            return Ok(None);
        }
        let run = move |db: &SessionDb| db.delete_sessions(listed.iter().map(String::as_str), files.as_deref());
        Ok(Some(counting("delete_sessions", run)))
    }

    #[staticmethod]
    fn delete_session_if_empty(id: &Bound<'_, PyAny>, files: Option<PathBuf>) -> PyResult<Write> {
        let id = session_id(id)?;
        Ok(Write::new("delete_session_if_empty", move |db| match &id {
            Some(id) => db.delete_session_if_empty(id, files.as_deref()),
            None => Ok(false),
        }))
    }

    fn count_empty_sessions(&self, py: Python<'_>) -> PyResult<i64> {
        self.wait(py, SessionDb::count_empty_sessions)
    }

    #[staticmethod]
    fn delete_empty_sessions(files: Option<PathBuf>) -> Write {
        counting("delete_empty_sessions", move |db| db.delete_empty_sessions(files.as_deref()))
    }

    fn list_prune_candidates<'py>(&self, py: Python<'py>, filter: &PruneFilter) -> PyResult<Bound<'py, PyList>> {
        row::sessions(py, &self.wait(py, |db| db.list_prune_candidates(&filter.0))?)
    }

    #[staticmethod]
    fn prune_sessions(filter: &PruneFilter, files: Option<PathBuf>) -> Write {
        let filter = filter.0.clone();
        counting("prune_sessions", move |db| db.prune_sessions(&filter, files.as_deref()))
    }

    #[staticmethod]
    fn archive_sessions(filter: &PruneFilter) -> Write {
        let filter = filter.0.clone();
        counting("archive_sessions", move |db| db.archive_sessions(&filter))
    }

    #[staticmethod]
    fn prune_empty_ghost_sessions(files: Option<PathBuf>) -> Write {
        counting("prune_empty_ghost_sessions", move |db| db.prune_empty_ghost_sessions(files.as_deref()))
    }

    #[staticmethod]
    fn finalize_orphaned_compression_sessions() -> Write {
        counting("finalize_orphaned_compression_sessions", SessionDb::finalize_orphaned_compression_sessions)
    }
}

/// Removes the files of a session from a folder.
#[pyfunction]
pub(crate) fn remove_session_files(py: Python<'_>, folder: PathBuf, id: &str) {
    py.detach(|| hermes_state::remove_session_files(&folder, id));
}
