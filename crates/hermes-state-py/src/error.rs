//! Turns the store's errors into the exceptions of Python's `sqlite3`, chosen as that module chooses them.

use hermes_state::Error;
use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;

/// The exception for an error of the store.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    match error {
        Error::Directory { path, errno: Some(errno), .. } => {
            let text = os_text(py, *errno).unwrap_or_else(|_| error.to_string());
            PyOSError::new_err((*errno, text, path.to_string_lossy().into_owned()))
        }
        Error::Directory { .. } => PyOSError::new_err(error.to_string()),
        Error::Invalid(_) | Error::TitleInUse { .. } | Error::TitleTooLong { .. } | Error::SessionHasTopic { .. } => {
            PyValueError::new_err(error.to_string())
        }
        Error::ClientKeyInUse { session, key, message_id } => {
            client_key_conflict(py, error, session, key, *message_id).unwrap_or_else(|failure| failure)
        }
        Error::LeaseLost(lost) => crate::lease::lost(py, error, lost).unwrap_or_else(|failure| failure),
        Error::InvalidQuery { .. } => {
            let class = py.import("hermes_state").and_then(|module| module.getattr("InvalidQuery"));
            match class.and_then(|class| class.call1((error.to_string(),))) {
                Ok(exception) => PyErr::from_value(exception),
                Err(failure) => failure,
            }
        }
        Error::Interrupted { .. } => PyKeyboardInterrupt::new_err(error.to_string()),
        Error::Closed { .. } | Error::Forked { .. } => of_sqlite3(py, "ProgrammingError", error),
        Error::TooNew { .. } | Error::Replaced { .. } => of_sqlite3(py, "OperationalError", error),
        _ => match error.sqlite_code() {
            7 => PyMemoryError::new_err(error.to_string()),
            code => of_sqlite3(py, class_of(code), error),
        },
    }
}

fn client_key_conflict(
    py: Python<'_>,
    error: &Error,
    session: &str,
    key: &str,
    message_id: Option<i64>,
) -> PyResult<PyErr> {
    let exception = py.import("hermes_state")?.getattr("ClientKeyConflict")?.call1((error.to_string(),))?;
    exception.setattr("session_id", session)?;
    exception.setattr("client_key", key)?;
    exception.setattr("message_id", message_id)?;
    Ok(PyErr::from_value(exception))
}

fn os_text(py: Python<'_>, errno: i32) -> PyResult<String> {
    py.import("os")?.call_method1("strerror", (errno,))?.extract()
}

/// The exception that Python's `sqlite3` raises for a primary result code.
fn class_of(code: i32) -> &'static str {
    match code {
        2 | 12 => "InternalError",
        0 | 1 | 3..=6 | 8..=10 | 13..=17 => "OperationalError",
        18 => "DataError",
        19 | 20 => "IntegrityError",
        21 | 25 => "InterfaceError",
        _ => "DatabaseError",
    }
}

fn of_sqlite3(py: Python<'_>, class: &str, error: &Error) -> PyErr {
    let made = py.import("sqlite3").and_then(|module| module.getattr(class)?.call1((error.to_string(),)));
    match made {
        Ok(exception) => {
            let code = extended_code(error);
            if code != 0 {
                // The exceptions of `sqlite3` take attributes; one that did not would lose a detail, no more.
                let _ = exception.setattr("sqlite_errorcode", code);
                let _ = exception.setattr("sqlite_errorname", name_of(code));
            }
            let _ = exception.setattr("persistence_kind", error.kind().name());
            if let Error::Unreachable { perhaps_stored, .. } = error {
                let _ = exception.setattr("perhaps_stored", *perhaps_stored);
            }
            PyErr::from_value(exception)
        }
        Err(failure) => failure,
    }
}

/// An exception of `sqlite3` that no error of the store stands behind.
pub(crate) fn sqlite3_error(py: Python<'_>, class: &str, text: &str) -> PyErr {
    match py.import("sqlite3").and_then(|module| module.getattr(class)?.call1((text,))) {
        Ok(exception) => PyErr::from_value(exception),
        Err(failure) => failure,
    }
}

fn extended_code(error: &Error) -> i32 {
    match error {
        Error::Corrupt { code, .. } | Error::Constraint { code, .. } | Error::Engine { code, .. } => *code,
        other => other.sqlite_code(),
    }
}

/// SQLite's name for a result code; that of its kind where an extended one has no well-known name.
fn name_of(code: i32) -> &'static str {
    match code {
        261 => "SQLITE_BUSY_RECOVERY",
        517 => "SQLITE_BUSY_SNAPSHOT",
        267 => "SQLITE_CORRUPT_VTAB",
        523 => "SQLITE_CORRUPT_SEQUENCE",
        779 => "SQLITE_CORRUPT_INDEX",
        275 => "SQLITE_CONSTRAINT_CHECK",
        787 => "SQLITE_CONSTRAINT_FOREIGNKEY",
        1299 => "SQLITE_CONSTRAINT_NOTNULL",
        1555 => "SQLITE_CONSTRAINT_PRIMARYKEY",
        1811 => "SQLITE_CONSTRAINT_TRIGGER",
        2067 => "SQLITE_CONSTRAINT_UNIQUE",
        2579 => "SQLITE_CONSTRAINT_ROWID",
        266 => "SQLITE_IOERR_READ",
        522 => "SQLITE_IOERR_SHORT_READ",
        778 => "SQLITE_IOERR_WRITE",
        1034 => "SQLITE_IOERR_FSYNC",
        other => match other & 0xff {
            1 => "SQLITE_ERROR",
            2 => "SQLITE_INTERNAL",
            3 => "SQLITE_PERM",
            4 => "SQLITE_ABORT",
            5 => "SQLITE_BUSY",
            6 => "SQLITE_LOCKED",
            7 => "SQLITE_NOMEM",
            8 => "SQLITE_READONLY",
            9 => "SQLITE_INTERRUPT",
            10 => "SQLITE_IOERR",
            11 => "SQLITE_CORRUPT",
            12 => "SQLITE_NOTFOUND",
            13 => "SQLITE_FULL",
            14 => "SQLITE_CANTOPEN",
            15 => "SQLITE_PROTOCOL",
            16 => "SQLITE_EMPTY",
            17 => "SQLITE_SCHEMA",
            18 => "SQLITE_TOOBIG",
            19 => "SQLITE_CONSTRAINT",
            20 => "SQLITE_MISMATCH",
            21 => "SQLITE_MISUSE",
            25 => "SQLITE_RANGE",
            26 => "SQLITE_NOTADB",
            _ => "SQLITE_UNKNOWN",
        },
    }
}
