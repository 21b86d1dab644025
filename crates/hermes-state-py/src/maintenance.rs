//! Upkeep and looking at a store: what Python's methods hand over, and plain dictionaries back.

use std::time::{Duration, UNIX_EPOCH};

use hermes_state::{EngineStatus, Status, User};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyList};

use crate::handle::Store;
use crate::value::to_value;
use crate::write::Write;

#[pymethods]
impl Store {
    /// Sets a key if it holds what was seen; `None` stands for one that is not there.
    #[staticmethod]
    fn replace_meta(key: &Bound<'_, PyAny>, seen: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<Write> {
        let (key, seen, value) = (to_value(key)?, to_value(seen)?, to_value(value)?);
        Ok(Write::new("replace_meta", move |db| db.replace_meta(key.clone(), seen.clone(), value.clone())))
    }

    /// Rewrites the file; returns its bytes before and after.
    fn vacuum(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let report = self.wait(py, |db| db.vacuum())?;
        Ok((report.before, report.after))
    }

    /// Gives free space back in steps, each of which waits so long for its turn; returns the bytes before and after.
    fn release_space(&self, py: Python<'_>, patience: f64) -> PyResult<(u64, u64)> {
        self.set_patience(patience, patience);
        let report = self.wait(py, |db| db.release_space())?;
        Ok((report.before, report.after))
    }

    fn who<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        users(py, &self.wait(py, |db| db.who())?)
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        status(py, &self.wait(py, |db| db.status())?)
    }
}

fn status<'py>(py: Python<'py>, status: &Status) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("store", status.path.to_string_lossy())?;
    dict.set_item("read_only", status.read_only)?;
    match &status.engine {
        EngineStatus::File { main_bytes, wal_bytes, shm_bytes, journal_mode, lock_kind, .. } => {
            dict.set_item("engine", "sqlite")?;
            dict.set_item("main_bytes", main_bytes)?;
            dict.set_item("wal_bytes", wal_bytes)?;
            dict.set_item("shm_bytes", shm_bytes)?;
            dict.set_item("journal_mode", journal_mode)?;
            dict.set_item("lock_kind", lock_kind.name())?;
        }
        EngineStatus::Server { version, schema, bytes, encrypted, .. } => {
            dict.set_item("engine", "postgresql")?;
            dict.set_item("server_version", version)?;
            dict.set_item("schema", schema)?;
            dict.set_item("bytes", bytes)?;
            dict.set_item("encrypted", encrypted)?;
        }
        _ => {}
    }
    dict.set_item("schema_version", status.schema_version)?;
    dict.set_item("sessions", status.sessions)?;
    dict.set_item("messages", status.messages)?;
    dict.set_item("open_by", users(py, &status.open_by)?)?;
    Ok(dict)
}

fn users<'py>(py: Python<'py>, users: &[User]) -> PyResult<Bound<'py, PyList>> {
    let since = |user: &User| user.open_since.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let dicts = users.iter().map(|user| {
        let dict = PyDict::new(py);
        dict.set_item("pid", user.pid)?;
        dict.set_item("host", &user.host)?;
        dict.set_item("program", &user.program)?;
        dict.set_item("since", seconds(since(user)))?;
        dict.set_item("takes_turns", user.takes_turns)?;
        dict.set_item("operation", &user.operation)?;
        dict.set_item("waiting_seconds", seconds(user.waiting))?;
        dict.set_item("holds_write_lock", user.holds_write_lock)?;
        dict.set_item("holding_seconds", seconds(user.holding))?;
        Ok(dict)
    });
    PyList::new(py, dicts.collect::<PyResult<Vec<_>>>()?)
}
