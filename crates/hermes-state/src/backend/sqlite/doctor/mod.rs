//! Examines a file that is a store, or may become one, and what it stands on. Changes nothing of the store, and opens it
//! for looking only.

mod file_system;
#[cfg(unix)]
mod sys;

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::connection::Location;
use super::errors::classify;
use super::identity::sidecar;
use super::lock::{self, LockKind};
use super::onlooker;
use super::readers::on_crew;
use super::store::{absolute, refuse_truncated, resolved};
use super::{journal, schema, status};
use crate::doctor::{Examination, FileAccess, FileExamination, FileSystem, Finding, IndexLag, Probe, Severity};
use crate::error::{Error, Result};
use crate::error_kind::ErrorKind;
use crate::status::User;

/// From which length on a log that is not merged is worth a word: a hundred times that at which it is merged.
const LONG_LOG: u64 = 400 << 20;
/// Less free space than this ends soon.
const LITTLE: u64 = 256 << 20;
/// Less than this does not even take a group of commits.
const NONE: u64 = 8 << 20;
/// How long a write is in nobody's way.
const LONG_WRITE: std::time::Duration = std::time::Duration::from_secs(5);

/// The files of a store, by what their names end with.
const FILES: [&str; 6] = ["", "-wal", "-shm", "-journal", "-siblings", "-spool"];

/// What has to be read through a connection.
#[derive(Default)]
struct Reading {
    journal: Option<String>,
    schema: Option<i64>,
    unused: Option<u64>,
    page_size: u64,
    newest: Option<f64>,
    index: Option<IndexLag>,
}

/// Examines the store at `path`.
pub(crate) fn examine(path: &Path) -> Result<Examination> {
    let path = resolved(absolute(path)?);
    let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
    let mut found = Examination::of(path.clone(), schema::SCHEMA_VERSION);
    let access = access(&path, &folder);
    let file_system = file_system::examine(&folder);
    let main_bytes = status::bytes(&path);
    found.exists = main_bytes > 0;
    let reading = match read(&path, found.exists) {
        Ok(reading) => reading,
        Err(error) => {
            found.findings.push(unusable(&error));
            Reading::default()
        }
    };
    let (wal_frames, wal_unmerged) = status::log_frames(&path, reading.page_size);
    let file = FileExamination {
        file_system,
        journal_configured: "wal",
        journal_effective: reading.journal,
        sqlite_version: rusqlite::version(),
        main_bytes,
        wal_bytes: status::bytes(&sidecar(&path, "-wal")),
        shm_bytes: status::bytes(&sidecar(&path, "-shm")),
        unused_bytes: reading.unused,
        wal_frames,
        wal_unmerged,
        access,
    };
    found.schema_version = reading.schema;
    found.newest_message = reading.newest;
    found.index = reading.index;
    found.open_by = status::users(&path);
    if !found.exists && found.findings.is_empty() {
        found.findings.push(Finding::new(
            Severity::Notice,
            "store",
            "there is no store yet",
            "Nothing: the first program that opens it for writing makes it.",
        ));
    }
    judge_file_system(&file.file_system, file.journal_effective.as_deref(), &mut found.findings);
    judge_log(&file, &found.open_by, &mut found.findings);
    judge_access(&path, &folder, &file.access, &mut found.findings);
    judge_writer(&found.open_by, &mut found.findings);
    found.file = Some(file);
    Ok(found)
}

/// Why the store cannot be read, and the next step of its cause.
fn unusable(error: &Error) -> Finding {
    let severity = if error.kind() == ErrorKind::Corrupt { Severity::Damage } else { Severity::Problem };
    Finding::new(severity, "store", error.to_string(), error.kind().sentence())
}

fn read(path: &Path, exists: bool) -> Result<Reading> {
    refuse_truncated(path)?;
    if !exists {
        return match std::fs::metadata(path) {
            Ok(found) if !found.is_file() => Err(super::errors::cannot_open(path.to_owned())),
            _ => Ok(Reading::default()),
        };
    }
    let at = path.to_owned();
    on_crew(move || {
        let failed = |error: rusqlite::Error| classify(&at, &error);
        let connection = onlooker::open_as_it_is(&Location::File(at.clone())).map_err(failed)?;
        read_from(&connection).map_err(failed)
    })
}

/// Everything here is found without going through a table.
fn read_from(connection: &Connection) -> rusqlite::Result<Reading> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let has = |table: &str| {
        connection.query_row("SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1", [table], |row| {
            row.get::<_, bool>(0)
        })
    };
    let page_size = number("PRAGMA page_size")?;
    let messages = has("messages")?;
    let newest = "SELECT CAST(timestamp AS REAL) FROM messages ORDER BY id DESC LIMIT 1";
    let newest = match messages.then(|| connection.query_row(newest, [], |row| row.get(0))).transpose() {
        Err(rusqlite::Error::QueryReturnedNoRows) => None,
        found => found?.flatten(),
    };
    Ok(Reading {
        journal: Some(journal::mode(connection)?),
        schema: if has("schema_version")? {
            connection.query_row("SELECT MAX(version) FROM schema_version", [], |row| row.get(0))?
        } else {
            None
        },
        unused: u64::try_from(number("PRAGMA freelist_count")? * page_size).ok(),
        page_size: u64::try_from(page_size).unwrap_or_default(),
        newest,
        index: if messages && has("state_meta")? { Some(index_lag(connection)?) } else { None },
    })
}

/// How far the search indexes are behind, by the markers of whoever fills them.
fn index_lag(connection: &Connection) -> rusqlite::Result<IndexLag> {
    let mut lag = IndexLag { filled: 100, unindexed: 0, degraded: schema::is_marked_damaged(connection)? };
    for cjk in [false, true] {
        let markers = schema::markers(connection, cjk)?;
        let number = |text: Option<String>| text.and_then(|text| text.trim().parse::<i64>().ok());
        let Some(last) = number(markers.high_water).filter(|last| *last > 0) else { continue };
        let done = number(markers.progress).unwrap_or(0);
        let lacking = "SELECT COUNT(*) FROM messages WHERE id > ?1 AND id <= ?2";
        let lacking: i64 = connection.query_row(lacking, [done, last], |row| row.get(0))?;
        let filled = crate::search::upkeep::RebuildStatus::new(last, done).percent;
        lag =
            IndexLag { filled: lag.filled.min(filled.min(99)), unindexed: lag.unindexed.max(lacking), degraded: true };
    }
    Ok(lag)
}

/// The modes and owners of the store's files and folder, as far as they are there.
fn access(path: &Path, folder: &Path) -> Vec<FileAccess> {
    let files = FILES.iter().map(|suffix| sidecar(path, suffix));
    files.chain([folder.to_owned()]).filter_map(access_of).collect()
}

#[cfg(unix)]
fn access_of(path: PathBuf) -> Option<FileAccess> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(&path).ok()?;
    Some(FileAccess { path, mode: found.mode() & 0o7777, owner: found.uid(), group: found.gid() })
}

#[cfg(not(unix))]
fn access_of(_path: PathBuf) -> Option<FileAccess> {
    None
}

fn judge_file_system(found: &FileSystem, journal: Option<&str>, findings: &mut Vec<Finding>) {
    let mut say =
        |severity, about, message: String, next: &str| findings.push(Finding::new(severity, about, message, next));
    if let Some(kind) = found.kind.as_deref().filter(|kind| file_system::is_shared(kind)) {
        say(
            Severity::Warning,
            "file system",
            format!(
                "{kind} is shared with other hosts or made by a program: what is tried here says nothing of locks and shared memory between hosts"
            ),
            "Keep the store on a local disk, or on a PostgreSQL server (`hermes-state migrate`).",
        );
    }
    for (what, probe) in [("locks", &found.locks), ("shared memory", &found.shared_memory)] {
        match probe {
            Probe::Works => {}
            Probe::Fails(how) => say(
                Severity::Problem,
                "file system",
                format!("the test of {what} in this folder fails: {how}"),
                "Keep the store on a local disk, or on a PostgreSQL server (`hermes-state migrate`).",
            ),
            Probe::NotTested(why) => say(
                Severity::Notice,
                "file system",
                format!("{what}: not tested, {why}"),
                "Nothing, if this user is only to read; else run it again as one who may write to the folder.",
            ),
        }
    }
    if let Some(mode) = journal.filter(|mode| *mode != "wal") {
        say(
            Severity::Warning,
            "journal",
            format!("the journal mode is `{mode}`, not `wal`: readers wait while a writer writes"),
            "Nothing, if the file system cannot share memory; else open the store for writing once, which brings it into `wal`.",
        );
    }
    match found.free_bytes {
        Some(free) if free < NONE => {
            say(
                Severity::Problem,
                "space",
                format!("only {free} bytes are free"),
                "Free some space on this file system.",
            );
        }
        Some(free) if free < LITTLE => {
            say(
                Severity::Warning,
                "space",
                format!("only {free} bytes are free"),
                "Free some space on this file system.",
            );
        }
        _ => {}
    }
}

fn judge_log(file: &FileExamination, users: &[User], findings: &mut Vec<Finding>) {
    if file.wal_bytes > LONG_LOG {
        let next = if users.is_empty() {
            "Open the store for writing and close it, which merges the log."
        } else {
            "See with `hermes-state who` which program has had the store open for long, and restart it."
        };
        let message = format!("the log has {} bytes: somebody has read for long, or merging it fails", file.wal_bytes);
        findings.push(Finding::new(Severity::Warning, "log", message, next));
    }
    if lock::in_force() == LockKind::Ordinary {
        findings.push(Finding::new(
            Severity::Notice,
            "file system",
            "this system has only ordinary locks, which a second SQLite library in the same process can drop",
            "Nothing, unless programs here use both this library and another SQLite on the store.",
        ));
    }
}

#[cfg(unix)]
fn judge_access(path: &Path, folder: &Path, access: &[FileAccess], findings: &mut Vec<Finding>) {
    let mut say =
        |severity, message: String, next: String| findings.push(Finding::new(severity, "permissions", message, next));
    let owner = access.iter().find(|file| file.path == path).map(|main| main.owner);
    for file in access {
        let shown = file.path.display();
        let is_folder = file.path == folder;
        if !is_folder && file.mode & 0o077 != 0 {
            let what = if file.mode & 0o022 != 0 { "write" } else { "read" };
            say(
                Severity::Warning,
                format!("others can {what} {shown} (mode {:o})", file.mode),
                format!("Run `chmod go= '{shown}'`."),
            );
        }
        if is_folder && file.mode & 0o022 != 0 && file.mode & 0o1000 == 0 {
            say(
                Severity::Warning,
                format!("others can put files into {shown} or take them away (mode {:o})", file.mode),
                format!("Run `chmod go-w '{shown}'`."),
            );
        }
        if let Some(owner) = owner.filter(|owner| !is_folder && *owner != file.owner) {
            say(
                Severity::Warning,
                format!("{shown} belongs to user {}, the store to user {owner}", file.owner),
                "Stop the programs that use the store and give all its files to one user with `chown`.".to_owned(),
            );
        }
    }
    let writable = super::connection::writable;
    if (owner.is_some() && !writable(path)) || (folder.is_dir() && !writable(folder)) {
        say(
            Severity::Notice,
            format!("this user ({}) may not write to it, only read", sys::user()),
            "Nothing, if reading is all that is wanted; else run as the owner of the store.".to_owned(),
        );
    }
}

#[cfg(not(unix))]
fn judge_access(_path: &Path, _folder: &Path, _access: &[FileAccess], _findings: &mut Vec<Finding>) {}

fn judge_writer(users: &[User], findings: &mut Vec<Finding>) {
    for user in users {
        if let Some(holding) = user.holding.filter(|holding| *holding > LONG_WRITE) {
            let program = user.program.as_deref().unwrap_or("a program");
            findings.push(Finding::new(
                Severity::Warning,
                "writer",
                format!("pid {} ({program}) has held the write lock for {:.0} s", user.pid, holding.as_secs_f64()),
                "See what that program does; end it if it hangs.",
            ));
        }
    }
}
