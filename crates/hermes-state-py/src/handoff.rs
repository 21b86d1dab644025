//! Handoffs of sessions.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyList, PyString};

use crate::handle::Store;
use crate::row;
use crate::value::{scrubbed, to_value};
use crate::write::Write;

#[pymethods]
impl Store {
    #[staticmethod]
    fn request_handoff(session_id: &Bound<'_, PyAny>, platform: &Bound<'_, PyAny>) -> PyResult<Write> {
        let (id, platform) = (to_value(session_id)?, to_value(platform)?);
        Ok(Write::new("request_handoff", move |db| db.request_handoff(id.clone(), platform.clone())))
    }

    #[staticmethod]
    fn claim_handoff(session_id: &Bound<'_, PyAny>) -> PyResult<Write> {
        let id = to_value(session_id)?;
        Ok(Write::new("claim_handoff", move |db| db.claim_handoff(id.clone())))
    }

    #[staticmethod]
    fn complete_handoff(session_id: &Bound<'_, PyAny>) -> PyResult<Write> {
        let id = to_value(session_id)?;
        Ok(Write::new("complete_handoff", move |db| db.complete_handoff(id.clone())))
    }

    /// A failure is noted whatever its text holds.
    #[staticmethod]
    fn fail_handoff(session_id: &Bound<'_, PyAny>, error: &Bound<'_, PyString>) -> PyResult<Write> {
        let (id, error) = (to_value(session_id)?, scrubbed(error)?);
        Ok(Write::new("fail_handoff", move |db| db.fail_handoff(id.clone(), &error)))
    }

    fn handoff_state<'py>(
        &self,
        py: Python<'py>,
        session_id: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let id = to_value(session_id)?;
        let Some(found) = self.wait(py, |db| db.handoff_state(id))? else { return Ok(None) };
        let dict = PyDict::new(py);
        dict.set_item(intern!(py, "state"), found.state)?;
        dict.set_item(intern!(py, "platform"), found.platform)?;
        dict.set_item(intern!(py, "error"), found.error)?;
        Ok(Some(dict))
    }

    fn pending_handoffs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        row::sessions(py, &self.wait(py, hermes_state::SessionDb::list_pending_handoffs)?)
    }
}
