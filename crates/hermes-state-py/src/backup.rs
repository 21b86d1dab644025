//! Backups and restoring: reports as plain dictionaries, and progress to Python, which may end the work.

use std::path::PathBuf;

use hermes_state::{
    BackupOptions, BackupProgress, BackupReport, CheckDepth, Error, RestoreOptions, RestoreReport, restore,
};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict};

use crate::error::raise;
use crate::handle::Store;
use crate::interrupt::take;

#[pymethods]
impl Store {
    /// Copies the store into a file. `progress` gets a dictionary; what it raises ends the work and is raised.
    fn backup<'py>(
        &self,
        py: Python<'py>,
        target: PathBuf,
        full: bool,
        always: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let mut options = BackupOptions::default();
        options.check = depth(full);
        options.always_copy = always;
        let report = told(py, progress, |tell| self.0.backup(&target, &options, tell))?;
        backed_up(py, &report)
    }
}

/// Makes a backup the store at a path.
#[pyfunction]
pub(crate) fn restore_file<'py>(
    py: Python<'py>,
    backup: PathBuf,
    path: PathBuf,
    full: bool,
    stamp: String,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut options = RestoreOptions::default();
    options.check = depth(full);
    options.stamp = Some(stamp);
    let report = told(py, progress, |tell| restore(&backup, &path, &options, tell))?;
    restored(py, &report)
}

fn depth(full: bool) -> CheckDepth {
    if full { CheckDepth::Full } else { CheckDepth::Quick }
}

type Tell<'a> = &'a mut dyn FnMut(&BackupProgress) -> hermes_state::Result<()>;

/// Runs `work` while other threads of Python run, and passes on how far it is.
fn told<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(Tell<'_>) -> hermes_state::Result<T> + Send,
) -> PyResult<T> {
    let mut raised: Option<PyErr> = None;
    let outcome = py.detach(|| {
        work(&mut |now| {
            let told = Python::attach(|py| {
                py.check_signals()?;
                let Some(progress) = &progress else { return Ok(()) };
                let fields = PyDict::new(py);
                fields.set_item("phase", now.phase.name())?;
                fields.set_item("done", now.done)?;
                fields.set_item("total", now.total)?;
                progress.call1(py, (fields,)).map(drop)
            });
            told.map_err(|error| {
                raised = Some(error);
                Error::Interrupted { perhaps_stored: false }
            })
        })
    });
    match raised.or_else(take) {
        Some(error) => Err(error),
        None => outcome.map_err(|error| raise(py, &error)),
    }
}

fn backed_up<'py>(py: Python<'py>, report: &BackupReport) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("backup", report.target.to_string_lossy())?;
    dict.set_item("copied", report.copied)?;
    dict.set_item("bytes", report.bytes)?;
    dict.set_item("sessions", report.sessions)?;
    dict.set_item("messages", report.messages)?;
    dict.set_item("problems", &report.health.problems)?;
    Ok(dict)
}

fn restored<'py>(py: Python<'py>, report: &RestoreReport) -> PyResult<Bound<'py, PyDict>> {
    let path = |path: &Option<PathBuf>| path.as_deref().map(|path| path.to_string_lossy().into_owned());
    let dict = PyDict::new(py);
    dict.set_item("store", report.path.to_string_lossy())?;
    dict.set_item("backup", report.backup.to_string_lossy())?;
    dict.set_item("kept", path(&report.kept))?;
    dict.set_item("kept_log", path(&report.kept_log))?;
    dict.set_item("bytes", report.bytes)?;
    dict.set_item("sessions", report.sessions)?;
    dict.set_item("messages", report.messages)?;
    dict.set_item("problems", &report.health.problems)?;
    Ok(dict)
}
