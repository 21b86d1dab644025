//! Connections of a store that is only looked at, and left as it was found: nothing is written, made or removed.

use std::fs::Metadata;
use std::path::Path;
use std::time::SystemTime;

use rusqlite::{Connection, OpenFlags};

use super::connection::{
    Location, WITHOUT_LOCKS, is_unreadable, leave_log_alone, open_existing, open_reader, open_with, writable,
};
use super::identity::{FileIdentity, sidecar};
use super::schema::stand_ins;

/// A connection that reads, and what has to be looked at before it reads again.
pub(super) struct Reading {
    pub(super) connection: Connection,
    /// The files as they were when the connection was made, if it holds no locks on them.
    unlocked: Option<Picture>,
    /// Whether views stand in for what the file lacks.
    stand_ins: bool,
}

impl From<Connection> for Reading {
    fn from(connection: Connection) -> Self {
        Self { connection, unlocked: None, stand_ins: false }
    }
}

impl Reading {
    /// Whether it still reads what is in the store. Asked within the transaction that reads.
    pub(super) fn is_current(&self, path: &Path) -> rusqlite::Result<bool> {
        let unchanged = self.unlocked.as_ref().is_none_or(|picture| *picture == Picture::of(path));
        Ok(unchanged && !(self.stand_ins && stand_ins::are_outdated(&self.connection)?))
    }

    fn without_locks(connection: Connection, picture: Picture) -> Self {
        Self { unlocked: Some(picture), ..Self::from(connection) }
    }

    /// The log is not ours to merge.
    fn apart(self) -> Self {
        leave_log_alone(&self.connection);
        self
    }
}

/// A connection of a store that is only looked at, to which the file is complete.
pub(super) fn open(location: &Location) -> rusqlite::Result<Reading> {
    let mut reading = connect(location)?;
    reading.stand_ins = match stand_ins::put(&reading.connection) {
        // Whoever reads will be told so.
        Err(error) if is_unreadable(&error) => false,
        put => put?,
    };
    reading.connection.pragma_update(None, "query_only", true)?;
    Ok(reading)
}

/// The same on the file as it is.
pub(super) fn open_as_it_is(location: &Location) -> rusqlite::Result<Connection> {
    let connection = connect(location)?.connection;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// While somebody has the store open its sidecars are there, and reading them changes nothing. Where they are not, a
/// read-only connection would make them and leave them behind, so one that may write (but is told not to) takes its
/// place and removes them again. Where the user may not write either, no lock can be had that would keep a writer from
/// moving pages under us: the file is read without any, and again from the beginning once it has changed. In the same
/// way a log is read that a killed writer has left without its index.
fn connect(location: &Location) -> rusqlite::Result<Reading> {
    let Location::File(path) = location else { return open_reader(location).map(Reading::from) };
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let picture = Picture::of(path);
    Ok(match &picture {
        Picture { main: None, .. } => open_with(location, read_only, "")?.into(),
        Picture { log: Some(_), index: Some(_), .. } => Reading::from(open_with(location, read_only, "")?).apart(),
        Picture { log: Some(log), .. } if log.length > 0 => {
            Reading::without_locks(open_with(location, read_only, WITHOUT_LOCKS)?, picture).apart()
        }
        _ if writable(path) && path.parent().is_some_and(writable) => open_existing(location)?.into(),
        _ => Reading::without_locks(open_with(location, read_only, "immutable=1")?, picture),
    })
}

/// What shows from outside whether a store was written to.
#[derive(PartialEq)]
struct Picture {
    main: Option<Seen>,
    log: Option<Seen>,
    index: Option<FileIdentity>,
}

#[derive(PartialEq)]
struct Seen {
    identity: FileIdentity,
    length: u64,
    changed: Option<SystemTime>,
}

impl Picture {
    fn of(path: &Path) -> Self {
        let seen = |path: &Path| std::fs::metadata(path).ok().as_ref().map(Seen::from);
        Self { main: seen(path), log: seen(&sidecar(path, "-wal")), index: FileIdentity::of(&sidecar(path, "-shm")) }
    }
}

impl From<&Metadata> for Seen {
    fn from(found: &Metadata) -> Self {
        Self { identity: found.into(), length: found.len(), changed: found.modified().ok() }
    }
}
