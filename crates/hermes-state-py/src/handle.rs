//! The open store as Python's `SessionDB` holds it. Every call that may wait lets other threads of Python run.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use hermes_state::{Error, OpenOptions, Patience, SessionDb, is_url};
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyAny;

use crate::error::raise;
use crate::interrupt::{is_interrupted, take};
use crate::write::Write;

/// How long an opening waits before it looks whether Ctrl-C was pressed.
const SLICE: Duration = Duration::from_millis(500);
/// The same where somebody else does the opening.
const LISTENING: Duration = Duration::from_millis(50);

/// A handle on an open store.
#[pyclass(frozen, module = "hermes_state._native")]
pub(crate) struct Store(pub(crate) SessionDb);

/// Seconds as callers give them: none or less means a single attempt.
pub(crate) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

impl Store {
    pub(crate) fn wait<T: Send>(
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

    pub(crate) fn set_patience(&self, routine: f64, transcript: f64) {
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
    #[expect(clippy::too_many_arguments, reason = "what an opening takes")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        read_only: bool,
        patience: f64,
        sessions_json: Option<PathBuf>,
        cjk: bool,
        password: Option<String>,
        spool: bool,
        spool_folder: Option<PathBuf>,
    ) -> PyResult<Self> {
        let options = OpenOptions::new()
            .read_only(read_only)
            .sessions_json(sessions_json)
            .cjk(cjk)
            .password(password)
            .spool(spool)
            .spool_folder(spool_folder)
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
}
