//! Whether a backup holds what the store holds: everything is compared, up to the first difference.

use rusqlite::Connection;

use super::watch::Watch;
use crate::backup::BackupPhase;
use crate::error::Result;

/// How many rows are compared between two looks at whether it is still wanted.
const ROWS: u64 = 4096;

/// Whether every table of both, those of the search indexes included, has the same rows. Neither the times of the files
/// nor any counter of SQLite's tells that reliably: a commit into a log need not change a counter of the main file. What
/// cannot be read of the backup is not the same. In a transaction of the store; `tell` is told of each table.
pub(super) fn is_same(store: &Connection, backup: &Connection, watch: &Watch) -> Result<bool> {
    for setting in ["page_size", "page_count", "freelist_count", "user_version", "application_id"] {
        let ask = |connection: &Connection| -> rusqlite::Result<i64> {
            connection.query_row(&format!("PRAGMA {setting}"), [], |row| row.get(0))
        };
        if !equal(ask(store), ask(backup)) {
            return Ok(false);
        }
    }
    let (Ok(objects), Ok(theirs)) = (schema(store), schema(backup)) else { return Ok(false) };
    if objects != theirs {
        return Ok(false);
    }
    let mut tables: Vec<String> = objects
        .into_iter()
        .filter(|object| object.kind == "table" && object.root > 0)
        .map(|object| object.name)
        .collect();
    // Where a difference shows soonest comes first: what is written with every message, and is small.
    tables.sort_by_key(|name| (name.starts_with("messages_fts"), name == "messages", name.clone()));
    let total = tables.len() as u64;
    for (done, table) in (0..).zip(&tables) {
        watch.tell(BackupPhase::Comparing, done, total)?;
        if !has_same_rows(store, backup, table, watch)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal<T: PartialEq>(one: rusqlite::Result<T>, other: rusqlite::Result<T>) -> bool {
    matches!((one, other), (Ok(one), Ok(other)) if one == other)
}

#[derive(PartialEq)]
struct Object {
    kind: String,
    name: String,
    root: i64,
    sql: Option<String>,
}

fn schema(connection: &Connection) -> rusqlite::Result<Vec<Object>> {
    let mut statement = connection.prepare("SELECT type, name, rootpage, sql FROM sqlite_schema ORDER BY rowid")?;
    let objects = statement.query_map([], |row| {
        // Virtual tables and triggers have no pages of their own.
        let root: Option<i64> = row.get(2)?;
        Ok(Object { kind: row.get(0)?, name: row.get(1)?, root: root.unwrap_or_default(), sql: row.get(3)? })
    })?;
    objects.collect()
}

/// Reads the table in both, side by side in the order of its own tree.
fn has_same_rows(store: &Connection, backup: &Connection, table: &str, watch: &Watch) -> Result<bool> {
    let sql = format!("SELECT * FROM \"{}\" NOT INDEXED", table.replace('"', "\"\""));
    let (Ok(mut ours), Ok(mut theirs)) = (store.prepare(&sql), backup.prepare(&sql)) else { return Ok(false) };
    let columns = ours.column_count();
    if columns != theirs.column_count() {
        return Ok(false);
    }
    let (Ok(mut ours), Ok(mut theirs)) = (ours.query([]), theirs.query([])) else { return Ok(false) };
    for row in 1_u64.. {
        let (Ok(one), Ok(other)) = (ours.next(), theirs.next()) else { return Ok(false) };
        let (one, other) = match (one, other) {
            (None, None) => break,
            (Some(one), Some(other)) => (one, other),
            _ => return Ok(false),
        };
        if !(0..columns).all(|column| equal(one.get_ref(column), other.get_ref(column))) {
            return Ok(false);
        }
        if row % ROWS == 0 {
            watch.check()?;
        }
    }
    Ok(true)
}
