//! Listings, pages and searches of sessions.

use hermes_state::{PageQuery, SessionQuery};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyList};

use crate::error::raise;
use crate::handle::Store;
use crate::row;
use crate::value::{filter_text, row_number, values};

#[pymethods]
impl Store {
    #[expect(clippy::too_many_arguments, reason = "the keywords of session_count")]
    fn session_count(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        cwd_prefix: &Bound<'_, PyAny>,
        min_message_count: i64,
        include_archived: &Bound<'_, PyAny>,
        archived_only: &Bound<'_, PyAny>,
        exclude_children: &Bound<'_, PyAny>,
        exclude_sources: &Bound<'_, PyAny>,
    ) -> PyResult<i64> {
        let query = SessionQuery {
            source: filter_text(source)?,
            cwd_prefix: filter_text(cwd_prefix)?,
            min_message_count,
            include_archived: include_archived.is_truthy()?,
            archived_only: archived_only.is_truthy()?,
            include_children: !exclude_children.is_truthy()?,
            exclude_sources: values(exclude_sources)?,
            ..SessionQuery::default()
        };
        self.wait(py, |db| db.session_count(&query))
    }

    #[expect(clippy::too_many_arguments, reason = "the keywords of list_sessions_rich")]
    fn list_sessions<'py>(
        &self,
        py: Python<'py>,
        source: &Bound<'_, PyAny>,
        exclude_sources: &Bound<'_, PyAny>,
        cwd_prefix: &Bound<'_, PyAny>,
        limit: &Bound<'_, PyAny>,
        offset: &Bound<'_, PyAny>,
        include_children: &Bound<'_, PyAny>,
        min_message_count: i64,
        project_compression_tips: &Bound<'_, PyAny>,
        order_by_last_active: &Bound<'_, PyAny>,
        include_archived: &Bound<'_, PyAny>,
        archived_only: &Bound<'_, PyAny>,
        id_query: Option<String>,
        search_query: Option<String>,
        compact_rows: &Bound<'_, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let query = SessionQuery {
            source: filter_text(source)?,
            exclude_sources: values(exclude_sources)?,
            cwd_prefix: filter_text(cwd_prefix)?,
            limit: row_number(limit)?,
            offset: row_number(offset)?,
            include_children: include_children.is_truthy()?,
            min_message_count,
            project_compression_tips: project_compression_tips.is_truthy()?,
            order_by_last_active: order_by_last_active.is_truthy()?,
            include_archived: include_archived.is_truthy()?,
            archived_only: archived_only.is_truthy()?,
            id_query,
            search_query,
            compact_rows: compact_rows.is_truthy()?,
        };
        row::sessions(py, &self.wait(py, |db| db.list_sessions(&query))?)
    }

    /// One page, and the text of the next one's cursor.
    #[expect(clippy::too_many_arguments, reason = "the keywords of list_sessions_page")]
    fn list_sessions_page<'py>(
        &self,
        py: Python<'py>,
        limit: &Bound<'_, PyAny>,
        cursor: Option<&str>,
        titled: Option<&Bound<'_, PyAny>>,
        active_since: Option<f64>,
        source: &Bound<'_, PyAny>,
        exclude_sources: &Bound<'_, PyAny>,
        cwd_prefix: &Bound<'_, PyAny>,
        include_children: &Bound<'_, PyAny>,
        min_message_count: i64,
        project_compression_tips: &Bound<'_, PyAny>,
        order_by_last_active: &Bound<'_, PyAny>,
        include_archived: &Bound<'_, PyAny>,
        archived_only: &Bound<'_, PyAny>,
        id_query: Option<String>,
        search_query: Option<String>,
        compact_rows: &Bound<'_, PyAny>,
    ) -> PyResult<(Bound<'py, PyList>, Option<String>)> {
        let cursor = cursor.map(str::parse).transpose().map_err(|error| raise(py, &error))?;
        let query = PageQuery {
            cursor,
            titled: titled.map(PyAnyMethods::is_truthy).transpose()?,
            active_since,
            sessions: SessionQuery {
                source: filter_text(source)?,
                exclude_sources: values(exclude_sources)?,
                cwd_prefix: filter_text(cwd_prefix)?,
                limit: row_number(limit)?,
                offset: 0,
                include_children: include_children.is_truthy()?,
                min_message_count,
                project_compression_tips: project_compression_tips.is_truthy()?,
                order_by_last_active: order_by_last_active.is_truthy()?,
                include_archived: include_archived.is_truthy()?,
                archived_only: archived_only.is_truthy()?,
                id_query,
                search_query,
                compact_rows: compact_rows.is_truthy()?,
            },
        };
        let page = self.wait(py, |db| db.list_sessions_page(&query))?;
        Ok((row::sessions(py, &page.sessions)?, page.next.map(|next| next.to_string())))
    }

    fn list_cron_job_runs<'py>(
        &self,
        py: Python<'py>,
        job_id: &str,
        limit: &Bound<'_, PyAny>,
        offset: &Bound<'_, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (limit, offset) = (row_number(limit)?, row_number(offset)?);
        row::sessions(py, &self.wait(py, |db| db.list_cron_job_runs(job_id, limit, offset))?)
    }

    fn search_sessions_by_id<'py>(
        &self,
        py: Python<'py>,
        query: &str,
        limit: i64,
        include_archived: &Bound<'_, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let include_archived = include_archived.is_truthy()?;
        row::sessions(py, &self.wait(py, |db| db.search_sessions_by_id(query, limit, include_archived))?)
    }

    fn search_sessions<'py>(
        &self,
        py: Python<'py>,
        source: &Bound<'_, PyAny>,
        limit: &Bound<'_, PyAny>,
        offset: &Bound<'_, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let source = filter_text(source)?;
        let (limit, offset) = (row_number(limit)?, row_number(offset)?);
        row::sessions(py, &self.wait(py, |db| db.search_sessions(source.as_deref(), limit, offset))?)
    }
}
