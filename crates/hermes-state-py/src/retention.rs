//! Policies of retention.

use std::path::PathBuf;

use hermes_state::{RetentionPlan, RetentionPolicy, RetentionReport, Session};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::raise;
use crate::handle::Store;
use crate::row;
use crate::write::Write;

fn policy(py: Python<'_>, json: &str) -> PyResult<RetentionPolicy> {
    RetentionPolicy::from_json(json).map_err(|error| raise(py, &error))
}

fn plan<'py>(py: Python<'py>, plan: &RetentionPlan) -> PyResult<Bound<'py, PyDict>> {
    let sessions = PyList::empty(py);
    for session in &plan.sessions {
        let dict = PyDict::new(py);
        dict.set_item("id", &session.id)?;
        dict.set_item("source", &session.source)?;
        dict.set_item("title", &session.title)?;
        dict.set_item("started_at", session.started_at)?;
        dict.set_item("ended_at", session.ended_at)?;
        dict.set_item("archived", session.archived)?;
        dict.set_item("messages", session.messages)?;
        dict.set_item("bytes", session.bytes)?;
        dict.set_item("delegated_by", &session.delegated_by)?;
        sessions.append(dict)?;
    }
    let left = |sessions: &[Session]| row::sessions(py, sessions);
    let dict = PyDict::new(py);
    dict.set_item("sessions", sessions)?;
    dict.set_item("chosen", plan.chosen())?;
    dict.set_item("messages", plan.messages())?;
    dict.set_item("bytes", plan.bytes())?;
    dict.set_item("owner_gone", left(&plan.owner_gone)?)?;
    dict.set_item("open", left(&plan.open)?)?;
    Ok(dict)
}

pub(crate) fn report<'py>(py: Python<'py>, report: &RetentionReport) -> PyResult<Bound<'py, PyDict>> {
    let dict = plan(py, &report.plan)?;
    dict.set_item("deleted", report.deleted)?;
    Ok(dict)
}

#[pymethods]
impl Store {
    fn plan_retention<'py>(&self, py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyDict>> {
        let policy = policy(py, json)?;
        plan(py, &self.wait(py, |db| db.plan_retention(&policy))?)
    }

    #[staticmethod]
    fn apply_retention(py: Python<'_>, json: &str, files: Option<PathBuf>) -> PyResult<Write> {
        let policy = policy(py, json)?;
        Ok(Write::new("apply_retention", move |db| db.apply_retention(&policy, files.as_deref())))
    }
}
