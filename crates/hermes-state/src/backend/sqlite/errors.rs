//! Turns SQLite's extended result codes into this crate's errors. Words of a message never decide.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Error as Sqlite, ffi};

use super::connection::writable;
use crate::error::Error;

/// The extended result code of an error, 0 for those that do not come from SQLite itself.
pub(super) fn extended_code(error: &Sqlite) -> i32 {
    match error {
        Sqlite::SqliteFailure(failure, _) => failure.extended_code,
        Sqlite::SqlInputError { error, .. } => error.extended_code,
        _ => 0,
    }
}

/// Whether somebody else has the lock that was needed, so that waiting helps. The locking protocol error is SQLite's
/// word for having lost the race for the WAL's locks too often.
pub(super) fn is_busy(error: &Sqlite) -> bool {
    matches!(extended_code(error) & 0xff, ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED | ffi::SQLITE_PROTOCOL)
}

fn message(error: &Sqlite) -> String {
    match error {
        Sqlite::SqliteFailure(failure, None) => ffi::code_to_str(failure.extended_code).to_owned(),
        Sqlite::SqliteFailure(_, Some(message)) => message.clone(),
        Sqlite::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

/// The error of this crate for an error of SQLite on the store at `path`.
pub(super) fn classify(path: &Path, error: &Sqlite) -> Error {
    let code = extended_code(error);
    let message = message(error);
    let path = path.to_owned();
    match code & 0xff {
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED | ffi::SQLITE_PROTOCOL => {
            Error::Busy { path, waited: Duration::ZERO, holder: None }
        }
        ffi::SQLITE_READONLY => Error::ReadOnly { path },
        ffi::SQLITE_NOTADB => Error::NotADatabase { path },
        ffi::SQLITE_CORRUPT => Error::Corrupt { path, message: ffi::code_to_str(code).to_owned(), code },
        ffi::SQLITE_FULL => Error::Full { path },
        ffi::SQLITE_CONSTRAINT | ffi::SQLITE_MISMATCH => Error::Constraint { message, code },
        ffi::SQLITE_CANTOPEN | ffi::SQLITE_PERM | ffi::SQLITE_AUTH => cannot_open(path),
        _ => Error::Engine { message, code },
    }
}

fn may_open(path: &Path) -> bool {
    writable(path) && path.parent().is_some_and(writable)
}

/// SQLite only says that it could not open the file; the file system says why.
pub(super) fn cannot_open(path: std::path::PathBuf) -> Error {
    let reason = match std::fs::metadata(&path) {
        Ok(found) if found.is_dir() => "it is a directory; name a file in it".to_owned(),
        Ok(found) if !found.is_file() => "it is not a regular file".to_owned(),
        Ok(_) if may_open(&path) => {
            "the system refuses although this user may open it; this process may have too many files open".to_owned()
        }
        Ok(_) => "this user may not open it, or its folder; check the permissions of both".to_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => match path.parent() {
            Some(folder) if folder.is_dir() => {
                "there is no such file, and this user may not create it here (or asked for reading only)".to_owned()
            }
            _ => "its folder does not exist".to_owned(),
        },
        Err(error) => error.to_string(),
    };
    Error::CannotOpen { path, reason }
}
