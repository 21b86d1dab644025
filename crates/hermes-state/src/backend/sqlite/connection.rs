//! Opens connections: which file, with which rights, under which settings.

use std::ffi::c_int;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::deadline;
use crate::search::{cjk_tokenizer, trigram_tokenizer};

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

/// The WAL's length from which on it is merged beside the writes and not between them.
const LONG_LOG_PAGES: c_int = 4 * CHECKPOINT_PAGES;

/// The length of a store's log after the last commit of its write connection.
#[derive(Clone, Default)]
pub(super) struct WalLength(Arc<AtomicI32>);

impl WalLength {
    /// Whether the log has grown long enough to be merged into the main file.
    pub(super) fn calls_for_checkpoint(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= CHECKPOINT_PAGES
    }

    /// Whether merging it takes so long that writes should not wait for it.
    pub(super) fn is_long(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= LONG_LOG_PAGES
    }
}

/// The connection of a store's writing thread; creates the file.
pub(super) fn open_writer(location: &Location) -> rusqlite::Result<(Connection, WalLength)> {
    let mut connection = open_with(location, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE, "")?;
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
    let connection = open_existing(location)?;
    // It may be lent to merge the log while the store is open.
    #[cfg(target_os = "macos")]
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    connection.pragma_update(None, "query_only", true)?;
    leave_log_alone(&connection);
    Ok(connection)
}

/// Has the connection close without merging the log into the main file, although it may be the last of all.
pub(super) fn leave_log_alone(connection: &Connection) {
    let set = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    debug_assert!(set.is_ok(), "a setting that SQLite has had since 3.6: {set:?}");
}

/// A connection on a file that is there, whatever is in it.
pub(super) fn open_existing(location: &Location) -> rusqlite::Result<Connection> {
    open_with(location, OpenFlags::SQLITE_OPEN_READ_WRITE, "")
}

/// What has a connection take no locks at all, and keep the index of a log in its own memory instead of in a file.
pub(super) const WITHOUT_LOCKS: &str = if cfg!(unix) { "vfs=unix-none" } else { "vfs=win32-none" };

/// A connection with these rights; `parameters` are those of a URI.
pub(super) fn open_with(location: &Location, flags: OpenFlags, parameters: &str) -> rusqlite::Result<Connection> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let mut connection = match location {
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
    if parameters == WITHOUT_LOCKS {
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    }
    connection.set_prepared_statement_cache_capacity(64);
    // Always: a file that other programs keep a cjk index in takes no message from a connection without it.
    match register_tokenizers(&connection) {
        // The schema cannot be read. Whoever uses the connection will be told so, or wants to mend it.
        Err(error) if is_unreadable(&error) => {}
        registered => registered?,
    }
    deadline::heed(&mut connection)?;
    Ok(connection)
}

/// Has the connection cut texts as all programs on a file do.
fn register_tokenizers(connection: &Connection) -> rusqlite::Result<()> {
    cjk_tokenizer::register(connection)?;
    trigram_tokenizer::register(connection)
}

/// Whether the file is damaged, or no database at all.
pub(super) fn is_unreadable(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Has a connection take a schema as far as it can be read, to mend it.
pub(super) fn take_any_schema(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "writable_schema", true)?;
    match register_tokenizers(connection) {
        Err(error) if is_unreadable(&error) => Ok(()),
        registered => registered,
    }
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
pub(crate) fn writable(path: &Path) -> bool {
    access::may_write(path)
}

/// Whether this user may write the file or folder.
#[cfg(not(unix))]
pub(crate) fn writable(path: &Path) -> bool {
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
