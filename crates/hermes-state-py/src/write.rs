//! Routine writes as values: made by the methods of the store, handed to `_execute_write`, run there.

use hermes_state::{NewSession, SessionDb, Value};
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
}

/// What a write answers.
pub(crate) enum Answer {
    Nothing,
    Flag(bool),
}

impl Answer {
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(match self {
            Answer::Nothing => py.None().into_bound(py),
            Answer::Flag(flag) => flag.into_pyobject(py)?.to_owned().into_any(),
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
        }
    }

    fn run(self, db: &SessionDb) -> hermes_state::Result<Answer> {
        Ok(match self {
            Job::CreateSession(session) => db.create_session(*session)?.into(),
            Job::EndSession { id, reason } => db.end_session(id, reason)?.into(),
            Job::ReopenSession { id } => db.reopen_session(id)?.into(),
            Job::SetTitle { id, title } => db.set_session_title(id, title.as_deref())?.into(),
            Job::SetMeta { key, value } => db.set_meta(key, value)?.into(),
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
    fn __repr__(&self) -> String {
        format!("<write {}>", self.0.name())
    }
}
