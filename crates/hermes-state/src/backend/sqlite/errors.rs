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

pub(super) fn message(error: &Sqlite) -> String {
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
        ffi::SQLITE_CORRUPT => Error::Corrupt { path, message: damage(code, message), part: None, code },
        ffi::SQLITE_FULL => Error::Full { path },
        ffi::SQLITE_CONSTRAINT | ffi::SQLITE_MISMATCH => Error::Constraint { message, code },
        ffi::SQLITE_CANTOPEN | ffi::SQLITE_PERM | ffi::SQLITE_AUTH => cannot_open(path),
        ffi::SQLITE_IOERR => {
            Error::Engine { message: format!("{message}: {} ({})", path.display(), attempt(code)), code }
        }
        _ => Error::Engine { message, code },
    }
}

/// What the system refused, by SQLite's extended code of an I/O error.
fn attempt(code: i32) -> &'static str {
    match code {
        ffi::SQLITE_IOERR_READ | ffi::SQLITE_IOERR_SHORT_READ => "reading failed; check the disk",
        ffi::SQLITE_IOERR_WRITE => "writing failed; check the disk, and the limit on the size of files (ulimit -f)",
        ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC => "syncing failed; check the disk",
        ffi::SQLITE_IOERR_SHMOPEN
        | ffi::SQLITE_IOERR_SHMSIZE
        | ffi::SQLITE_IOERR_SHMMAP
        | ffi::SQLITE_IOERR_SHMLOCK => {
            "the shared index of the log cannot be used; check free space and the file system"
        }
        _ => "the file system refused; check the disk",
    }
}

/// What is damaged: in SQLite's words if it has any but that the image is malformed, which the error says itself.
fn damage(code: i32, message: String) -> String {
    match code {
        _ if message != ffi::code_to_str(ffi::SQLITE_CORRUPT) => message,
        ffi::SQLITE_CORRUPT_VTAB => "a search index does not hold together".to_owned(),
        ffi::SQLITE_CORRUPT_INDEX => "an index disagrees with its table".to_owned(),
        ffi::SQLITE_CORRUPT_SEQUENCE => "the table of the ids that were given is none".to_owned(),
        _ => "a page holds something else than it should".to_owned(),
    }
}

fn may_open(path: &Path) -> bool {
    writable(path) && path.parent().is_some_and(writable)
}

/// SQLite only says that it could not open the file; the file system says why.
pub(super) fn cannot_open(path: std::path::PathBuf) -> Error {
    use std::io::ErrorKind;
    let reason = match std::fs::metadata(&path) {
        Ok(found) if found.is_dir() => "it is a directory; name a file in it".to_owned(),
        Ok(found) if !found.is_file() => "it is not a regular file".to_owned(),
        Ok(_) if may_open(&path) => return Error::TooManyFiles { path },
        Ok(_) => return Error::NotPermitted { path },
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Error::NotPermitted { path },
        Err(error) if error.kind() == ErrorKind::NotFound => match path.parent() {
            Some(folder) if folder.is_dir() && !writable(folder) => return Error::NotPermitted { path },
            Some(folder) if folder.is_dir() => {
                "there is no such file, and only reading was asked for; open it for writing to make it".to_owned()
            }
            _ => "its folder does not exist".to_owned(),
        },
        Err(error) => error.to_string(),
    };
    Error::CannotOpen { path, reason }
}
