//! Which journal a store uses: WAL wherever the file system can bear it.

use rusqlite::{Connection, ffi};

use super::errors::extended_code;

/// Puts the connection's store into WAL mode, or leaves it in it; `false` if the file system cannot bear WAL and the
/// store goes on with a rollback journal. Sets nothing on a store that already is in WAL mode: setting it on a live
/// file can unlink sidecars that others hold.
///
/// Only SQLite's own words for "this file system cannot" lead to the fallback; being busy or broken never does, and a
/// file that somebody else holds in WAL mode is never taken out of it.
pub(super) fn use_wal(connection: &Connection) -> rusqlite::Result<bool> {
    if mode(connection)? == "wal" {
        return Ok(true);
    }
    match connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get::<_, String>(0)) {
        Ok(mode) => Ok(mode == "wal"),
        Err(error) if wal_is_impossible(&error) => {
            if mode(connection).is_ok_and(|mode| mode == "wal") {
                return Err(error);
            }
            connection.query_row("PRAGMA journal_mode=DELETE", [], |_| Ok(()))?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The journal mode, asked without setting it.
pub(super) fn mode(connection: &Connection) -> rusqlite::Result<String> {
    connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))
}

/// `locking protocol` and `not authorized`; an I/O error is none of them.
fn wal_is_impossible(error: &rusqlite::Error) -> bool {
    matches!(extended_code(error) & 0xff, ffi::SQLITE_PROTOCOL | ffi::SQLITE_AUTH)
}
