//! The open store as Python's `SessionDB` holds it. Every call that may wait lets other threads of Python run.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use hermes_state::{
    ConversationOptions, Error, MessageQuery, NewSession, OpenOptions, Patience, SearchOptions, SearchSort, SessionDb,
    SessionQuery, is_url,
};
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyList};

use crate::error::raise;
use crate::interrupt::{is_interrupted, take};
use crate::message::{Keywords, from_mapping};
use crate::row;
use crate::value::{filter_text, query_text, row_number, texts, title_text, to_python, to_value, values};
use crate::write::{Job, Write};

/// How long an opening waits before it looks whether Ctrl-C was pressed.
const SLICE: Duration = Duration::from_millis(500);
/// The same where somebody else does the opening.
const LISTENING: Duration = Duration::from_millis(50);

/// A handle on an open store.
#[pyclass(frozen, module = "hermes_state._native")]
pub(crate) struct Store(SessionDb);

/// Seconds as callers give them: none or less means a single attempt.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

impl Store {
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&SessionDb) -> hermes_state::Result<T> + Send,
    ) -> PyResult<T> {
        let outcome = py.detach(|| call(&self.0));
        // What a signal handler raised during the wait is due now, as after any blocking call of Python; the write it
        // came too late for is stored.
        match take() {
            Some(interruption) => Err(interruption),
            None => outcome.map_err(|error| raise(py, &error)),
        }
    }

    fn set_patience(&self, routine: f64, transcript: f64) {
        self.0.set_patience(Patience { routine: duration(routine), transcript: duration(transcript) });
    }
}

fn open(py: Python<'_>, options: &OpenOptions, location: &PathBuf, patience: Duration) -> PyResult<SessionDb> {
    if is_url(location) {
        open_on_server(py, options, location.clone(), patience)
    } else {
        open_file(py, options, location, patience)
    }
}

/// Opens on a thread of its own, so that Ctrl-C is heard: one that is being opened on a server cannot be asked to stop.
/// What it still makes of it is closed again.
fn open_on_server(py: Python<'_>, options: &OpenOptions, location: PathBuf, patience: Duration) -> PyResult<SessionDb> {
    let options = options.clone().patience(Patience { routine: patience, ..Patience::default() });
    let (report, mut opened) = sync_channel(1);
    thread::Builder::new().name("hermes-opening".into()).spawn(move || drop(report.send(options.open(location))))?;
    loop {
        let opened = &mut opened;
        match py.detach(move || opened.recv_timeout(LISTENING)) {
            Ok(outcome) => return outcome.map_err(|error| raise(py, &error)),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => return Err(PyRuntimeError::new_err("the opening came to no end")),
        }
    }
}

/// Opens in slices of the patience, so that Ctrl-C is heard; each step of an opening may be repeated.
fn open_file(py: Python<'_>, options: &OpenOptions, path: &PathBuf, patience: Duration) -> PyResult<SessionDb> {
    let started = Instant::now();
    loop {
        let left = patience.saturating_sub(started.elapsed());
        let routine = left.min(SLICE);
        let options = options.clone().patience(Patience { routine, ..Patience::default() });
        match py.detach(|| options.open(path)) {
            Ok(db) => return Ok(db),
            Err(Error::Busy { .. }) if !left.is_zero() => py.check_signals()?,
            Err(Error::Busy { path, holder, .. }) => {
                return Err(raise(py, &Error::Busy { path, holder, waited: started.elapsed() }));
            }
            Err(error) => return Err(raise(py, &error)),
        }
    }
}

#[pymethods]
impl Store {
    #[new]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        read_only: bool,
        patience: f64,
        sessions_json: Option<PathBuf>,
        cjk: bool,
        password: Option<String>,
    ) -> PyResult<Self> {
        let options = OpenOptions::new()
            .read_only(read_only)
            .sessions_json(sessions_json)
            .cjk(cjk)
            .password(password)
            .interrupt(is_interrupted);
        open(py, &options, &path, duration(patience)).map(Self)
    }

    /// Where the store is: the path of the file, or the text of the server's URL without its password.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let path = self.0.path();
        // A path of Python's would take one of the URL's slashes away.
        if is_url(path) { Ok(path.as_os_str().into_pyobject(py)?.into_any()) } else { path.into_bound_py_any(py) }
    }

    /// Which search indexes serve: words, trigrams, cjk.
    fn indexes(&self, py: Python<'_>) -> PyResult<(bool, bool, bool)> {
        let found = self.0.search_indexes().map_err(|error| raise(py, &error))?;
        Ok((found.words, found.trigrams, found.cjk))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.wait(py, SessionDb::close)
    }

    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        self.wait(py, SessionDb::checkpoint)
    }

    /// Raises if the store takes no writes.
    fn check_writable(&self, py: Python<'_>) -> PyResult<()> {
        self.0.check_writable().map_err(|error| raise(py, &error))
    }

    /// The error for a write on another connection that has waited so many seconds for the lock.
    fn busy_error<'py>(&self, py: Python<'py>, waited: f64) -> Bound<'py, PyAny> {
        let holder = py.detach(|| self.0.write_lock_holder());
        let error = Error::Busy { path: self.0.path().to_owned(), waited: duration(waited), holder };
        raise(py, &error).into_value(py).into_bound(py).into_any()
    }

    /// Runs a write.
    fn run<'py>(&self, py: Python<'py>, write: &Write, patience: f64) -> PyResult<Bound<'py, PyAny>> {
        self.set_patience(patience, patience);
        self.wait(py, |db| write.run(db))?.into_python(py)
    }

    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "the keywords of create_session")]
    fn create_session(
        session_id: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        model: &Bound<'_, PyAny>,
        model_config: Option<&Bound<'_, PyAny>>,
        system_prompt: &Bound<'_, PyAny>,
        user_id: &Bound<'_, PyAny>,
        session_key: &Bound<'_, PyAny>,
        chat_id: &Bound<'_, PyAny>,
        chat_type: &Bound<'_, PyAny>,
        thread_id: &Bound<'_, PyAny>,
        parent_session_id: &Bound<'_, PyAny>,
        cwd: &Bound<'_, PyAny>,
        profile_name: &Bound<'_, PyAny>,
        git_repo_root: &Bound<'_, PyAny>,
    ) -> PyResult<Write> {
        let model_config = model_config.map(crate::json::dumps_truthy).transpose()?.flatten();
        Ok(Write::new(Job::CreateSession(Box::new(
            NewSession::new(to_value(session_id)?, to_value(source)?)
                .model(to_value(model)?)
                .model_config(model_config)
                .system_prompt(to_value(system_prompt)?)
                .user_id(to_value(user_id)?)
                .session_key(to_value(session_key)?)
                .chat_id(to_value(chat_id)?)
                .chat_type(to_value(chat_type)?)
                .thread_id(to_value(thread_id)?)
                .parent_session_id(to_value(parent_session_id)?)
                .cwd(to_value(cwd)?)
                .profile_name(to_value(profile_name)?)
                .git_repo_root(to_value(git_repo_root)?),
        ))))
    }

    #[staticmethod]
    fn end_session(session_id: &Bound<'_, PyAny>, end_reason: &Bound<'_, PyAny>) -> PyResult<Write> {
        Ok(Write::new(Job::EndSession { id: to_value(session_id)?, reason: to_value(end_reason)? }))
    }

    #[staticmethod]
    fn reopen_session(session_id: &Bound<'_, PyAny>) -> PyResult<Write> {
        Ok(Write::new(Job::ReopenSession { id: to_value(session_id)? }))
    }

    /// The title is checked here, so a bad one raises whether or not the session exists.
    #[staticmethod]
    fn set_session_title(py: Python<'_>, session_id: &Bound<'_, PyAny>, title: &Bound<'_, PyAny>) -> PyResult<Write> {
        let title = match title_text(title)? {
            Some(text) => hermes_state::sanitize_title(&text).map_err(|error| raise(py, &error))?,
            None => None,
        };
        Ok(Write::new(Job::SetTitle { id: to_value(session_id)?, title }))
    }

    #[staticmethod]
    fn set_meta(key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<Write> {
        Ok(Write::new(Job::SetMeta { key: to_value(key)?, value: to_value(value)? }))
    }

    fn meta<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let key = to_value(key)?;
        to_python(py, &self.wait(py, |db| db.meta_value(key))?)
    }

    fn session<'py>(&self, py: Python<'py>, session_id: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let id = to_value(session_id)?;
        let found = self.wait(py, |db| db.session(id))?;
        found.map(|found| row::session(py, &found)).transpose()
    }

    fn session_title(&self, py: Python<'_>, session_id: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
        let id = to_value(session_id)?;
        self.wait(py, |db| db.session_title(id))
    }

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

    #[staticmethod]
    #[pyo3(signature = (session_id, role, content=None, tool_name=None, tool_calls=None, tool_call_id=None,
        token_count=None, finish_reason=None, reasoning=None, reasoning_content=None, reasoning_details=None,
        codex_reasoning_items=None, codex_message_items=None, platform_message_id=None, observed=None,
        effect_disposition=None, timestamp=None, api_content=None))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of append_message")]
    fn append_message(
        session_id: &Bound<'_, PyAny>,
        role: &Bound<'_, PyAny>,
        content: Option<&Bound<'_, PyAny>>,
        tool_name: Option<&Bound<'_, PyAny>>,
        tool_calls: Option<&Bound<'_, PyAny>>,
        tool_call_id: Option<&Bound<'_, PyAny>>,
        token_count: Option<&Bound<'_, PyAny>>,
        finish_reason: Option<&Bound<'_, PyAny>>,
        reasoning: Option<&Bound<'_, PyAny>>,
        reasoning_content: Option<&Bound<'_, PyAny>>,
        reasoning_details: Option<&Bound<'_, PyAny>>,
        codex_reasoning_items: Option<&Bound<'_, PyAny>>,
        codex_message_items: Option<&Bound<'_, PyAny>>,
        platform_message_id: Option<&Bound<'_, PyAny>>,
        observed: Option<&Bound<'_, PyAny>>,
        effect_disposition: Option<&Bound<'_, PyAny>>,
        timestamp: Option<&Bound<'_, PyAny>>,
        api_content: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Write> {
        let keywords = Keywords {
            role,
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
        };
        let message = Box::new(keywords.message()?);
        Ok(Write::new(Job::AppendMessage { session_id: to_value(session_id)?, message }))
    }

    #[staticmethod]
    fn append_messages(session_id: &Bound<'_, PyAny>, messages: &Bound<'_, PyAny>) -> PyResult<Write> {
        let session_id = to_value(session_id)?;
        let messages = messages.try_iter()?.map(|message| from_mapping(&message?)).collect::<PyResult<Vec<_>>>()?;
        Ok(Write::new(Job::AppendMessages { session_id, messages }))
    }

    fn messages<'py>(
        &self,
        py: Python<'py>,
        session_id: &Bound<'py, PyAny>,
        include_inactive: &Bound<'py, PyAny>,
        limit: &Bound<'py, PyAny>,
        offset: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let id = to_value(session_id)?;
        let limit = if limit.is_none() { None } else { Some(row_number(limit)?) };
        let offset = if limit.is_some() || offset.is_truthy()? { row_number(offset)? } else { 0 };
        let query = MessageQuery { include_inactive: include_inactive.is_truthy()?, limit, offset };
        row::messages(py, &self.wait(py, |db| db.messages(id, &query))?)
    }

    fn message_count(&self, py: Python<'_>, session_id: &Bound<'_, PyAny>) -> PyResult<i64> {
        let id = filter_text(session_id)?;
        self.wait(py, |db| db.message_count(id.as_deref()))
    }

    fn conversation<'py>(
        &self,
        py: Python<'py>,
        session_id: &Bound<'py, PyAny>,
        include_ancestors: &Bound<'py, PyAny>,
        include_inactive: &Bound<'py, PyAny>,
        repair_alternation: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let Some(id) = filter_text(session_id)? else { return Ok(PyList::empty(py)) };
        let options = ConversationOptions {
            include_ancestors: include_ancestors.is_truthy()?,
            include_inactive: include_inactive.is_truthy()?,
            repair_alternation: repair_alternation.is_truthy()?,
        };
        row::conversation(py, &self.wait(py, |db| db.conversation(id, &options))?)
    }

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
    ) -> PyResult<(Bound<'py, PyList>, bool, bool)> {
        let Some(query) = query_text(query)? else { return Ok((PyList::empty(py), false, false)) };
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
        };
        let found = self.wait(py, |db| db.search_messages(&query, &options))?;
        Ok((row::hits(py, &found)?, found.degraded, found.partial))
    }

    /// Who would answer a query, for the log of slow searches.
    fn search_path(&self, py: Python<'_>, query: &Bound<'_, PyAny>) -> PyResult<&'static str> {
        let query = query_text(query)?.unwrap_or_default();
        self.0.describe_search_path(&query).map_err(|error| raise(py, &error))
    }
}
