//! Leases on compressing a session, as Python holds them.

use hermes_state::{Error, LeaseLost};
use pyo3::prelude::*;
use pyo3::types::PyAny;

use crate::handle::Store;
use crate::value::{to_python, to_value};
use crate::write::Write;

/// A lease on compressing a session.
#[pyclass(frozen, eq, from_py_object, module = "hermes_state._native")]
#[derive(Clone, PartialEq)]
pub(crate) struct Lease(pub(crate) hermes_state::Lease);

#[pymethods]
impl Lease {
    #[new]
    fn new(session_id: &Bound<'_, PyAny>, holder: String, fence: i64) -> PyResult<Self> {
        Ok(Self(hermes_state::Lease { session_id: to_value(session_id)?, holder, fence }))
    }

    #[getter]
    fn session_id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.0.session_id)
    }

    #[getter]
    fn holder(&self) -> &str {
        &self.0.holder
    }

    #[getter]
    fn fence(&self) -> i64 {
        self.0.fence
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (id, holder) = (self.session_id(py)?.repr()?, self.holder().into_pyobject(py)?.repr()?);
        Ok(format!("Lease({id}, {holder}, {})", self.0.fence))
    }
}

#[pymethods]
impl Store {
    #[staticmethod]
    fn acquire_compression_lease(session_id: &Bound<'_, PyAny>, holder: String, ttl: f64) -> PyResult<Write> {
        let id = to_value(session_id)?;
        Ok(Write::new("acquire_compression_lease", move |db| {
            db.acquire_compression_lease(id.clone(), holder.as_str(), ttl)
        }))
    }
}

/// The exception for a lease that is over.
pub(crate) fn lost(py: Python<'_>, error: &Error, lost: &LeaseLost) -> PyResult<PyErr> {
    let exception = py.import("hermes_state")?.getattr("LeaseLost")?.call1((error.to_string(),))?;
    exception.setattr("session_id", &lost.session)?;
    exception.setattr("holder", &lost.holder)?;
    exception.setattr("fence", lost.fence)?;
    exception.setattr("taken_by", &lost.taken_by)?;
    exception.setattr("newest_fence", lost.newest)?;
    exception.setattr("lapsed_seconds", lost.lapsed_for)?;
    Ok(PyErr::from_value(exception))
}
