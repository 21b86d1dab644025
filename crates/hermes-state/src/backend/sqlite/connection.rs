//! Opens connections: which file, with which rights, under which settings.

use std::ffi::c_int;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, OpenFlags};

use super::identity::{FileIdentity, sidecar};

/// Where a store lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    /// A file, by its absolute path.
    File(PathBuf),
    /// A private database in memory, by a name that only its own connections know.
    Memory(String),
}

impl Location {
    /// The path as errors and `status` name it.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Location::File(path) => path,
            Location::Memory(_) => Path::new(":memory:"),
        }
    }
}

/// The WAL's length at which it is checkpointed, SQLite's own default.
const CHECKPOINT_PAGES: c_int = 1000;

/// The length of a store's log after the last commit of its write connection.
#[derive(Clone, Default)]
pub(super) struct WalLength(Arc<AtomicI32>);

impl WalLength {
    /// Whether the log has grown long enough to be merged into the main file.
    pub(super) fn calls_for_checkpoint(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= CHECKPOINT_PAGES
    }
}

/// The connection of a store's writing thread; creates the file.
pub(super) fn open_writer(location: &Location) -> rusqlite::Result<(Connection, WalLength)> {
    let mut connection = open(location, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE, "")?;
    if connection.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0))? == 0 {
        // Files born here give pages back in small steps; others keep what they have, also at their next VACUUM.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    #[cfg(target_os = "macos")]
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    // Checkpoints are ours to time: SQLite's own would run while our turn is still taken.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    let length = WalLength::default();
    let noted = length.clone();
    connection.wal_hook(Some(move |_: &mut Wal, pages: c_int| {
        noted.0.store(pages, Ordering::Relaxed);
        Ok(())
    }))?;
    Ok((connection, length))
}

/// A reading connection beside a writer of this process. Merging the log at the end is the writer's business, which knows
/// whether that is still the store's.
pub(super) fn open_reader(location: &Location) -> rusqlite::Result<Connection> {
    let connection = open_query_only(location)?;
    leave_log_alone(&connection);
    Ok(connection)
}

fn open_query_only(location: &Location) -> rusqlite::Result<Connection> {
    let connection = open(location, OpenFlags::SQLITE_OPEN_READ_WRITE, "")?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// Has the connection close without merging the log into the main file, although it may be the last of all.
pub(super) fn leave_log_alone(connection: &Connection) {
    let set = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    debug_assert!(set.is_ok(), "a setting that SQLite has had since 3.6: {set:?}");
}

/// A connection of a store that is only looked at, and left as it was found.
///
/// While somebody has the store open its sidecars are there, and reading them changes nothing. Where they are not, a
/// read-only connection would make them and leave them behind, so one that may write (but is told not to) takes its
/// place and removes them again; and where the user may not write at all, nobody else can be writing through these
/// paths either, and the file is read as immutable.
pub(super) fn open_onlooker(location: &Location) -> rusqlite::Result<Connection> {
    let Location::File(path) = location else { return open_reader(location) };
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY;
    if FileIdentity::of(path).is_none() || FileIdentity::of(&sidecar(path, "-wal")).is_some() {
        return open(location, read_only, "");
    }
    if writable(path) && path.parent().is_some_and(writable) {
        return open_query_only(location);
    }
    let connection = open(location, read_only, "immutable=1")?;
    Ok(connection)
}

fn open(location: &Location, flags: OpenFlags, parameters: &str) -> rusqlite::Result<Connection> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = match location {
        Location::File(path) if parameters.is_empty() => Connection::open_with_flags(path, flags)?,
        Location::File(path) => Connection::open_with_flags(uri(path, parameters), flags | OpenFlags::SQLITE_OPEN_URI)?,
        Location::Memory(name) => {
            let uri = format!("file:/{name}?vfs=memdb");
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)?
        }
    };
    // The gate waits, not SQLite: its own pauses are too long and in no order.
    connection.busy_timeout(Duration::ZERO)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// The path as a URI, every byte that has a meaning there escaped.
fn uri(path: &Path, parameters: &str) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => uri.push(char::from(*byte)),
            other => {
                let _ = write!(uri, "%{other:02X}");
            }
        }
    }
    uri.push('?');
    uri.push_str(parameters);
    uri
}

/// Whether this user may write the file or folder.
#[cfg(unix)]
pub(super) fn writable(path: &Path) -> bool {
    access::may_write(path)
}

/// Whether this user may write the file or folder.
#[cfg(not(unix))]
pub(super) fn writable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.permissions().readonly())
}

#[cfg(unix)]
mod access {
    #![expect(unsafe_code, reason = "access(2) has no safe wrapper")]
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    /// Whether this user may write the file or folder, read-only mounts considered.
    pub(super) fn may_write(path: &Path) -> bool {
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
        // SAFETY: a NUL-terminated string that outlives the call.
        unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) == 0 }
    }
}
