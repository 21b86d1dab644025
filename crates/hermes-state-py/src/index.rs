//! Keeping the search indexes in order: what Python's methods hand over, and how it went.

use std::time::Duration;

use hermes_state::{Error, OptimizeOptions, RebuildStatus, SessionDb, StepPace};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict};

use crate::error::raise;
use crate::handle::Store;
use crate::interrupt::take;

fn pace(rows: i64, duty_factor: f64, min_pause: f64) -> StepPace {
    StepPace { rows, duty_factor, min_pause: Duration::try_from_secs_f64(min_pause).unwrap_or_default() }
}

fn triple(status: Option<RebuildStatus>) -> Option<(i64, i64, i64)> {
    status.map(|status| (status.total, status.indexed, status.percent))
}

#[pymethods]
impl Store {
    /// Total, indexed and percent of a rebuild that is going on.
    fn rebuild_status(&self, py: Python<'_>, cjk: bool) -> PyResult<Option<(i64, i64, i64)>> {
        let status = |db: &SessionDb| if cjk { db.fts_cjk_rebuild_status() } else { db.fts_rebuild_status() };
        self.wait(py, status).map(triple)
    }

    fn rebuild_step(&self, py: Python<'_>, cjk: bool, rows: i64, patience: f64) -> PyResult<bool> {
        self.set_patience(patience, patience);
        self.wait(py, |db| if cjk { db.fts_cjk_rebuild_step(rows) } else { db.fts_rebuild_step(rows) })
    }

    fn optimize_available(&self, py: Python<'_>) -> PyResult<bool> {
        self.wait(py, SessionDb::fts_optimize_available)
    }

    /// Whether the file was rewritten. `progress` gets phase, percent, indexed and total after each step; what it raises
    /// ends the work and is raised.
    fn optimize_storage(
        &self,
        py: Python<'_>,
        vacuum: bool,
        steps: (i64, f64, f64),
        patience: f64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Option<bool>> {
        self.set_patience(patience, patience);
        let options = OptimizeOptions { vacuum, pace: pace(steps.0, steps.1, steps.2) };
        let mut raised: Option<PyErr> = None;
        let outcome = py.detach(|| {
            self.0.optimize_fts_storage(&options, &mut |now| {
                let told = Python::attach(|py| {
                    py.check_signals()?;
                    let Some(progress) = &progress else { return Ok(()) };
                    let (total, indexed, percent) = triple(now.rebuilding).unwrap_or((0, 0, 100));
                    let fields = PyDict::new(py);
                    fields.set_item("phase", now.phase.name())?;
                    fields.set_item("percent", percent)?;
                    fields.set_item("indexed", indexed)?;
                    fields.set_item("total", total)?;
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

    fn demote_legacy(&self, py: Python<'_>, patience: f64) -> PyResult<i64> {
        self.set_patience(patience, patience);
        self.wait(py, SessionDb::demote_legacy_fts_to_trash)
    }

    fn rebuild_indexes(&self, py: Python<'_>, steps: (i64, f64, f64), patience: f64) -> PyResult<usize> {
        self.set_patience(patience, patience);
        self.wait(py, |db| db.rebuild_fts(pace(steps.0, steps.1, steps.2)))
    }

    fn merge_indexes(&self, py: Python<'_>, patience: f64) -> PyResult<usize> {
        self.set_patience(patience, patience);
        self.wait(py, SessionDb::optimize_fts)
    }

    fn has_table(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.wait(py, |db| db.fts_table_exists(name))
    }
}
