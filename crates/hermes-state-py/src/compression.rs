//! What compressing a conversation keeps: what Python's methods hand over, and answers back.

use hermes_state::Error;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict};

use crate::handle::Store;
use crate::value::to_value;
use crate::write::Write;

#[pymethods]
impl Store {
    #[staticmethod]
    fn try_acquire_compression_lock(session_id: &Bound<'_, PyAny>, holder: String, ttl: f64) -> PyResult<Write> {
        let id = to_value(session_id)?;
        Ok(Write::new("try_acquire_compression_lock", move |db| {
            db.try_acquire_compression_lock(id.clone(), holder.as_str(), ttl)
        }))
    }

    #[staticmethod]
    fn refresh_compression_lock(session_id: &Bound<'_, PyAny>, holder: String, ttl: f64) -> PyResult<Write> {
        let id = to_value(session_id)?;
        Ok(Write::new("refresh_compression_lock", move |db| {
            db.refresh_compression_lock(id.clone(), holder.as_str(), ttl)
        }))
    }

    #[staticmethod]
    fn release_compression_lock(session_id: &Bound<'_, PyAny>, holder: String) -> PyResult<Write> {
        let id = to_value(session_id)?;
        Ok(Write::new("release_compression_lock", move |db| db.release_compression_lock(id.clone(), holder.as_str())))
    }

    fn compression_lock_holder(&self, py: Python<'_>, session_id: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
        let id = to_value(session_id)?;
        self.wait(py, |db| db.compression_lock_holder(id))
    }

    #[staticmethod]
    fn record_compression_failure_cooldown(
        session_id: &Bound<'_, PyAny>,
        until: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
    ) -> PyResult<Write> {
        let (id, until, error) = (to_value(session_id)?, to_value(until)?, to_value(error)?);
        Ok(Write::new("record_compression_failure_cooldown", move |db| {
            db.record_compression_failure_cooldown(id.clone(), until.clone(), error.clone())
        }))
    }

    #[staticmethod]
    fn clear_compression_failure_cooldown(session_id: &Bound<'_, PyAny>) -> PyResult<Write> {
        let id = to_value(session_id)?;
        Ok(Write::new("clear_compression_failure_cooldown", move |db| {
            db.clear_compression_failure_cooldown(id.clone())
        }))
    }

    fn compression_failure_cooldown<'py>(
        &self,
        py: Python<'py>,
        session_id: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let id = to_value(session_id)?;
        let Some(found) = self.wait(py, |db| db.compression_failure_cooldown(id))? else { return Ok(None) };
        let dict = PyDict::new(py);
        dict.set_item("cooldown_until", found.until)?;
        dict.set_item("remaining_seconds", found.remaining)?;
        dict.set_item("error", found.error)?;
        Ok(Some(dict))
    }

    #[staticmethod]
    fn set_compression_fallback_streak(session_id: &Bound<'_, PyAny>, streak: i64) -> PyResult<Write> {
        let id = to_value(session_id)?;
        Ok(Write::new("set_compression_fallback_streak", move |db| {
            db.set_compression_fallback_streak(id.clone(), streak)
        }))
    }

    fn compression_fallback_streak(&self, py: Python<'_>, session_id: &Bound<'_, PyAny>) -> PyResult<i64> {
        let id = to_value(session_id)?;
        self.wait(py, |db| match db.compression_fallback_streak(id) {
            Err(Error::Closed { .. }) => Ok(0),
            answer => answer,
        })
    }
}
