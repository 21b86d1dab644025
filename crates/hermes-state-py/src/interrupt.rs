//! Ctrl-C while a call waits: asks Python for pending signals, and keeps the exception until the call has let go.

use std::cell::RefCell;

use pyo3::prelude::*;

thread_local! {
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Whether a signal handler of Python has raised. Handlers run on the main thread only, so elsewhere nothing is asked.
pub(crate) fn is_interrupted() -> bool {
    let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
    let interrupted = raised.is_some();
    if interrupted {
        RAISED.with(|kept| *kept.borrow_mut() = raised);
    }
    interrupted
}

/// What the signal handler raised on this thread since this was last asked.
pub(crate) fn take() -> Option<PyErr> {
    RAISED.with(|kept| kept.borrow_mut().take())
}
