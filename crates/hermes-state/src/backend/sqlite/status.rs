//! Looks at a store for `status`: its files by `stat`, its settings by reading, its users by what the kernel shows.

use std::path::Path;

use rusqlite::Connection;

use super::identity::sidecar;
use super::{journal, lock, siblings};
use crate::error::Holder;
use crate::status::User;

/// What has to be read through a connection.
pub(super) struct Reading {
    pub(super) journal_mode: String,
    pub(super) schema_version: Option<i64>,
    pub(super) sessions: i64,
    pub(super) messages: i64,
}

/// Reads it. Tables that are not there count nothing: an empty file is a store that nobody has begun.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Reading> {
    let exists = |table: &str| {
        connection.query_row("SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1", [table], |row| {
            row.get::<_, i64>(0)
        })
    };
    let count = |table: &str| match exists(table)? {
        0 => Ok(0),
        _ => connection.query_row(&format!("SELECT COUNT(*) FROM {table}"), [], |row| row.get(0)),
    };
    let schema_version = match exists("schema_version")? {
        0 => None,
        _ => connection.query_row("SELECT MAX(version) FROM schema_version", [], |row| row.get(0))?,
    };
    Ok(Reading {
        journal_mode: journal::mode(connection)?,
        schema_version,
        sessions: count("sessions")?,
        messages: count("messages")?,
    })
}

/// The length of a file, 0 if there is none.
pub(super) fn bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

/// How many frames of the log count, and how many of those are not in the main file yet: by the log's shared index, while
/// there is one, else at most as many as the log has room for.
pub(super) fn log_frames(path: &Path, page_size: u64) -> (Option<u64>, Option<u64>) {
    const HEADER: u64 = 32;
    const FRAME_HEADER: u64 = 24;
    let log = bytes(&sidecar(path, "-wal"));
    if log <= HEADER {
        return (Some(0), Some(0));
    }
    let shared = sidecar(path, "-shm");
    if bytes(&shared) > 0 {
        return match lock::holder::beginning::<100>(&shared) {
            Some(index) => {
                // Two copies of a header with the number of the last frame, then how many of them are merged.
                let number =
                    |at: usize| u64::from(u32::from_ne_bytes([index[at], index[at + 1], index[at + 2], index[at + 3]]));
                let (frames, merged) = (number(16), number(96));
                (Some(frames), Some(frames.saturating_sub(merged)))
            }
            None => (None, None),
        };
    }
    let most = (page_size > 0).then(|| (log - HEADER) / (page_size + FRAME_HEADER));
    (most, most)
}

/// Everybody who has the store open: those that registered, and those the kernel shows to hold one of its files.
pub(super) fn users(path: &Path) -> Vec<User> {
    let mut users: Vec<User> = siblings::list(path)
        .into_iter()
        .map(|sibling| User {
            pid: i32::try_from(sibling.pid).unwrap_or_default(),
            host: None,
            program: Some(sibling.program),
            open_for: Some(sibling.open_for),
            open_since: sibling.open_since,
            takes_turns: true,
            operation: sibling.operation.map(str::to_owned),
            waiting: sibling.waiting_for,
            holding: sibling.holding_for,
            holds_write_lock: sibling.holding_for.is_some(),
        })
        .collect();
    // The one that asks is among those that have the file open for the moment of asking, and no news to itself.
    let asking = i32::try_from(std::process::id()).unwrap_or_default();
    for pid in lock::holder::processes_with(&[path, &sidecar(path, "-wal")]) {
        if pid != asking && users.iter().all(|user| user.pid != pid) {
            users.push(User {
                pid,
                host: None,
                program: lock::holder::program(pid),
                open_for: None,
                open_since: None,
                takes_turns: false,
                operation: None,
                waiting: None,
                holding: None,
                holds_write_lock: false,
            });
        }
    }
    if let Some(holder) = lock::holder::of_write_lock(path) {
        users.iter_mut().filter(|user| user.pid == holder.pid).for_each(|user| user.holds_write_lock = true);
    }
    users.sort_by_key(|user| user.pid);
    users
}

/// Who holds the write lock, by the word of ours or by what the lock itself tells.
pub(super) fn holder(path: &Path) -> Option<Holder> {
    let sibling = siblings::holder(path).and_then(|sibling| sibling.as_holder());
    sibling.or_else(|| lock::holder::of_write_lock(path))
}
