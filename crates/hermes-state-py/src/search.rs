//! Search: what Python's methods hand over, and hits back.

use std::time::Duration;

use hermes_state::{SearchOptions, SearchSort, Value};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyList, PyString};

use crate::error::raise;
use crate::handle::Store;
use crate::row;
use crate::value::{query_text, row_number, scrubbed, texts, values};

#[pymethods]
impl Store {
    /// The hits of a search, whether it had to do without an index, and whether it ended early.
    #[expect(clippy::too_many_arguments, reason = "the keywords of search_messages")]
    fn search<'py>(
        &self,
        py: Python<'py>,
        query: &Bound<'py, PyAny>,
        source_filter: &Bound<'py, PyAny>,
        exclude_sources: &Bound<'py, PyAny>,
        role_filter: &Bound<'py, PyAny>,
        limit: &Bound<'py, PyAny>,
        offset: &Bound<'py, PyAny>,
        sort: &Bound<'py, PyAny>,
        include_inactive: &Bound<'py, PyAny>,
        timeout_ms: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyList>, bool, bool)> {
        let Some(query) = query_text(query)? else { return Ok((PyList::empty(py), false, false)) };
        if admits_nothing(role_filter, exclude_sources)? {
            return Ok((PyList::empty(py), false, false));
        }
        let sort = sort.extract::<String>().map(|text| text.trim().to_lowercase());
        let options = SearchOptions {
            source_filter: if source_filter.is_none() { None } else { Some(texts(source_filter)?) },
            exclude_sources: texts(exclude_sources)?,
            role_filter: texts(role_filter)?,
            limit: row_number(limit)?,
            offset: row_number(offset)?,
            sort: match sort.as_deref() {
                Ok("newest") => Some(SearchSort::Newest),
                Ok("oldest") => Some(SearchSort::Oldest),
                _ => None,
            },
            include_inactive: include_inactive.is_truthy()?,
            timeout: timeout(timeout_ms)?,
        };
        let found = self.wait(py, |db| db.search_messages(&query, &options))?;
        Ok((row::hits(py, &found)?, found.degraded, found.partial))
    }

    /// The hits of a cleaned query among rows that a rebuild has not reached.
    #[expect(clippy::too_many_arguments, reason = "the keywords of _search_unindexed_gap")]
    fn search_gap<'py>(
        &self,
        py: Python<'py>,
        fts_query: &Bound<'py, PyAny>,
        limit: &Bound<'py, PyAny>,
        include_inactive: &Bound<'py, PyAny>,
        source_filter: &Bound<'py, PyAny>,
        exclude_sources: &Bound<'py, PyAny>,
        role_filter: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let Some(query) = query_text(fts_query)? else { return Ok(PyList::empty(py)) };
        if admits_nothing(role_filter, exclude_sources)? {
            return Ok(PyList::empty(py));
        }
        let options = SearchOptions {
            source_filter: if source_filter.is_none() { None } else { Some(texts(source_filter)?) },
            exclude_sources: texts(exclude_sources)?,
            role_filter: texts(role_filter)?,
            limit: row_number(limit)?,
            include_inactive: include_inactive.is_truthy()?,
            ..SearchOptions::default()
        };
        let found = self.wait(py, |db| db.search_unindexed_gap(&query, &options))?;
        row::hits(py, &found)
    }

    /// Who would answer a query, for the log of slow searches.
    fn search_path(&self, py: Python<'_>, query: &Bound<'_, PyAny>) -> PyResult<&'static str> {
        let query = query_text(query)?.unwrap_or_default();
        self.0.describe_search_path(&query).map_err(|error| raise(py, &error))
    }
}

/// Whether the filters leave no row, as NULL in a list does in SQL: no role is it, and no source is known not to be it.
fn admits_nothing(role_filter: &Bound<'_, PyAny>, exclude_sources: &Bound<'_, PyAny>) -> PyResult<bool> {
    let roles = values(role_filter)?;
    let is_null = |value: &Value| *value == Value::Null;
    Ok((!roles.is_empty() && roles.iter().all(is_null)) || values(exclude_sources)?.iter().any(is_null))
}

/// Milliseconds as a time that is no less than nothing.
fn timeout(milliseconds: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    if milliseconds.is_none() {
        return Ok(None);
    }
    let number: f64 = milliseconds.extract()?;
    if number.is_nan() || number < 0.0 {
        return Err(PyValueError::new_err(format!("timeout_ms is a number of milliseconds, not {number}")));
    }
    Ok(Some(Duration::try_from_secs_f64(number / 1000.0).unwrap_or(Duration::MAX)))
}

/// A query as it is handed to the index of words.
#[pyfunction]
pub(crate) fn sanitize_fts5_query(query: &Bound<'_, PyString>) -> PyResult<String> {
    Ok(hermes_state::sanitize_fts5_query(&scrubbed(query)?))
}

/// Whether a text has Chinese, Japanese or Korean characters.
#[pyfunction]
pub(crate) fn contains_cjk(text: &Bound<'_, PyString>) -> PyResult<bool> {
    Ok(hermes_state::contains_cjk(&scrubbed(text)?))
}

/// How many of them it has.
#[pyfunction]
pub(crate) fn count_cjk(text: &Bound<'_, PyString>) -> PyResult<usize> {
    Ok(hermes_state::count_cjk(&scrubbed(text)?))
}

/// Whether one of them stands alone.
#[pyfunction]
pub(crate) fn has_lone_cjk_run(text: &Bound<'_, PyString>) -> PyResult<bool> {
    Ok(hermes_state::has_lone_cjk_run(&scrubbed(text)?))
}
