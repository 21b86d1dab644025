//! What became of an append that the store could not take, and the spool that holds it.

use std::time::UNIX_EPOCH;

use hermes_state::Ticket;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::handle::{Store, duration};

/// The answer to an append that the store could not take for now: it is durable, in the spool, and has no id yet.
#[pyclass(frozen, eq, hash, from_py_object, module = "hermes_state")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Spooled {
    /// Its name in the spool.
    #[pyo3(get)]
    ticket: String,
}

impl Spooled {
    pub(crate) fn of(ticket: Ticket) -> Self {
        Self { ticket: ticket.to_string() }
    }
}

#[pymethods]
impl Spooled {
    fn __repr__(&self) -> String {
        format!("<spooled as {}>", self.ticket)
    }
}

#[pymethods]
impl Store {
    fn spool_status<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(status) = self.wait(py, hermes_state::SessionDb::spool_status)? else { return Ok(None) };
        let told = PyDict::new(py);
        told.set_item("folder", status.folder.into_os_string())?;
        told.set_item("waiting", status.writes)?;
        told.set_item("bytes", status.bytes)?;
        let seconds = |ticket: Ticket| ticket.time().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        told.set_item("oldest", status.oldest.map(seconds))?;
        told.set_item("refused", status.refused)?;
        told.set_item("damaged", status.damaged)?;
        Ok(Some(told))
    }

    fn replay_spool<'py>(
        &self,
        py: Python<'py>,
        refused: &Bound<'py, PyAny>,
        patience: f64,
    ) -> PyResult<Bound<'py, PyDict>> {
        let refused = refused.is_truthy()?;
        self.0.set_patience(hermes_state::Patience { routine: duration(patience), transcript: duration(patience) });
        let report = self.wait(py, |db| db.replay_spool(refused))?;
        let told = PyDict::new(py);
        told.set_item("stored", report.stored)?;
        told.set_item("found_stored", report.found_stored)?;
        let refused: Vec<_> = report.refused.into_iter().map(|(ticket, reason)| (ticket.to_string(), reason)).collect();
        told.set_item("refused", refused)?;
        Ok(told)
    }
}
