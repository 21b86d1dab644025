//! Writes as values: made by the methods of the store, handed to `_execute_write`, run there.

use hermes_state::{Appended, Rewound, SessionDb};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyAny;

use crate::row;
use crate::spool::Spooled;

/// A write that waits to be run by `_execute_write`. It may be run again after it failed.
#[pyclass(frozen, module = "hermes_state._native")]
pub(crate) struct Write {
    name: &'static str,
    transcript: bool,
    run: Box<Run>,
}

type Run = dyn Fn(&SessionDb) -> hermes_state::Result<Answer> + Send + Sync;

/// What a write answers.
pub(crate) enum Answer {
    Import(hermes_state::ImportReport),
    Lease(Option<hermes_state::Lease>),
    Nothing,
    Flag(bool),
    Integer(i64),
    Integers(Vec<i64>),
    Retention(Box<hermes_state::RetentionReport>),
    Rewound(Box<Rewound>),
    Spooled(Spooled),
}

impl Answer {
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(match self {
            Answer::Import(report) => crate::export::report(py, &report)?,
            Answer::Lease(lease) => lease.map(crate::lease::Lease).into_pyobject(py)?.into_any(),
            Answer::Nothing => py.None().into_bound(py),
            Answer::Flag(flag) => flag.into_pyobject(py)?.to_owned().into_any(),
            Answer::Integer(number) => number.into_pyobject(py)?.into_any(),
            Answer::Integers(numbers) => numbers.into_pyobject(py)?,
            Answer::Retention(report) => crate::retention::report(py, &report)?.into_any(),
            Answer::Spooled(spooled) => spooled.into_pyobject(py)?.into_any(),
            Answer::Rewound(rewound) => row::rewound(py, &rewound)?.into_any(),
        })
    }
}

impl From<hermes_state::ImportReport> for Answer {
    fn from(report: hermes_state::ImportReport) -> Self {
        Answer::Import(report)
    }
}

impl From<Option<hermes_state::Lease>> for Answer {
    fn from(lease: Option<hermes_state::Lease>) -> Self {
        Answer::Lease(lease)
    }
}

impl From<hermes_state::RetentionReport> for Answer {
    fn from(report: hermes_state::RetentionReport) -> Self {
        Answer::Retention(Box::new(report))
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

impl From<i64> for Answer {
    fn from(number: i64) -> Self {
        Answer::Integer(number)
    }
}

impl From<Vec<i64>> for Answer {
    fn from(numbers: Vec<i64>) -> Self {
        Answer::Integers(numbers)
    }
}

impl<T: Into<Answer>> From<Appended<T>> for Answer {
    fn from(appended: Appended<T>) -> Self {
        match appended {
            Appended::Stored(answer) => answer.into(),
            Appended::Spooled(ticket) => Answer::Spooled(Spooled::of(ticket)),
        }
    }
}

impl From<Rewound> for Answer {
    fn from(rewound: Rewound) -> Self {
        Answer::Rewound(Box::new(rewound))
    }
}

impl Write {
    /// One of the method with this name, with its arguments complete and checked.
    pub(crate) fn new<A: Into<Answer>>(
        name: &'static str,
        run: impl Fn(&SessionDb) -> hermes_state::Result<A> + Send + Sync + 'static,
    ) -> Self {
        Self { name, transcript: false, run: Box::new(move |db| run(db).map(Into::into)) }
    }

    /// The same for a write that a turn needs.
    pub(crate) fn of_a_turn<A: Into<Answer>>(
        name: &'static str,
        run: impl Fn(&SessionDb) -> hermes_state::Result<A> + Send + Sync + 'static,
    ) -> Self {
        Self { transcript: true, ..Self::new(name, run) }
    }

    pub(crate) fn run(&self, db: &SessionDb) -> hermes_state::Result<Answer> {
        (self.run)(db)
    }
}

#[pymethods]
impl Write {
    /// Whether a turn needs this write, so that it has the longer patience.
    #[getter]
    fn transcript(&self) -> bool {
        self.transcript
    }

    /// Not a callback on a connection, though it stands where one does: says so to whoever calls it.
    #[pyo3(signature = (*_arguments))]
    fn __call__(&self, _arguments: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyTypeError::new_err(format!("{} runs in the native store: pass it on to _execute_write", self.__repr__())))
    }

    fn __repr__(&self) -> String {
        format!("<write {}>", self.name)
    }
}
