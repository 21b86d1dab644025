//! Writes as values: made by the methods of the store, handed to `_execute_write`, run there.

use hermes_state::{NewMessage, NewSession, SessionDb, Value};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyAny;

/// A write that waits to be run by `_execute_write`. It may be run again after it failed.
#[pyclass(frozen, module = "hermes_state._native")]
pub(crate) struct Write(Job);

/// What to change, complete and checked.
#[derive(Clone)]
pub(crate) enum Job {
    CreateSession(Box<NewSession>),
    EndSession { id: Value, reason: Value },
    ReopenSession { id: Value },
    SetTitle { id: Value, title: Option<String> },
    SetMeta { key: Value, value: Value },
    AppendMessage { session_id: Value, message: Box<NewMessage> },
    AppendMessages { session_id: Value, messages: Vec<NewMessage> },
}

/// What a write answers.
pub(crate) enum Answer {
    Nothing,
    Flag(bool),
    Id(i64),
    Ids(Vec<i64>),
}

impl Answer {
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(match self {
            Answer::Nothing => py.None().into_bound(py),
            Answer::Flag(flag) => flag.into_pyobject(py)?.to_owned().into_any(),
            Answer::Id(id) => id.into_pyobject(py)?.into_any(),
            Answer::Ids(ids) => ids.into_pyobject(py)?,
        })
    }
}

impl From<()> for Answer {
    fn from((): ()) -> Self {
        Answer::Nothing
    }
}

impl From<bool> for Answer {
    fn from(flag: bool) -> Self {
        Answer::Flag(flag)
    }
}

impl Job {
    fn name(&self) -> &'static str {
        match self {
            Job::CreateSession(_) => "create_session",
            Job::EndSession { .. } => "end_session",
            Job::ReopenSession { .. } => "reopen_session",
            Job::SetTitle { .. } => "set_session_title",
            Job::SetMeta { .. } => "set_meta",
            Job::AppendMessage { .. } => "append_message",
            Job::AppendMessages { .. } => "append_messages",
        }
    }

    fn run(self, db: &SessionDb) -> hermes_state::Result<Answer> {
        Ok(match self {
            Job::CreateSession(session) => db.create_session(*session)?.into(),
            Job::EndSession { id, reason } => db.end_session(id, reason)?.into(),
            Job::ReopenSession { id } => db.reopen_session(id)?.into(),
            Job::SetTitle { id, title } => db.set_session_title(id, title.as_deref())?.into(),
            Job::SetMeta { key, value } => db.set_meta(key, value)?.into(),
            Job::AppendMessage { session_id, message } => Answer::Id(db.append_message(session_id, *message)?),
            Job::AppendMessages { session_id, messages } => Answer::Ids(db.append_messages(session_id, messages)?),
        })
    }
}

impl Write {
    pub(crate) fn new(job: Job) -> Self {
        Self(job)
    }

    pub(crate) fn run(&self, db: &SessionDb) -> hermes_state::Result<Answer> {
        self.0.clone().run(db)
    }
}

#[pymethods]
impl Write {
    /// Whether a turn needs this write, so that it has the longer patience.
    #[getter]
    fn transcript(&self) -> bool {
        matches!(self.0, Job::AppendMessage { .. } | Job::AppendMessages { .. })
    }

    /// Not a callback on a connection, though it stands where one does: says so to whoever calls it.
    #[pyo3(signature = (*_arguments))]
    fn __call__(&self, _arguments: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyTypeError::new_err(format!("{} runs in the native store: pass it on to _execute_write", self.__repr__())))
    }

    fn __repr__(&self) -> String {
        format!("<write {}>", self.0.name())
    }
}
