//! Whether a file is well: its pages, its search indexes, and whether a message could be written.

use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ffi};

use super::super::connection::{Location, leave_log_alone, open_existing, writable};
use super::super::errors::{classify, extended_code, is_busy, message};
use super::super::identity::{FileIdentity, sidecar};
use super::super::onlooker;
use super::super::schema;
use super::super::search::lost_rows;
use crate::error::Result;
use crate::repair::CheckDepth;

pub(super) const SEARCH_TABLES: [&str; 3] = ["messages_fts", "messages_fts_trigram", "messages_fts_cjk"];

/// What is found at most.
const MOST: usize = 100;

/// What is wrong with the file, if anything is.
pub(super) fn ailment(location: &Location) -> Result<Option<String>> {
    let connection = open(location).map_err(|error| classify(location.path(), &error))?;
    match examine(&connection) {
        Ok(finding) => Ok(finding),
        // Somebody is at work on it, which says nothing about its health.
        Err(error) if is_busy(&error) => Ok(None),
        Err(error) => match extended_code(&error) & 0xff {
            ffi::SQLITE_CANTOPEN | ffi::SQLITE_NOMEM | ffi::SQLITE_FULL => Err(classify(location.path(), &error)),
            _ => Ok(Some(message(&error))),
        },
    }
}

/// Opens it so that looking at a damaged file does not merge its log: until it is repaired it stays as it is.
fn open(location: &Location) -> rusqlite::Result<Connection> {
    let path = location.path();
    if !writable(path) || !path.parent().is_some_and(writable) {
        return onlooker::open_as_it_is(location);
    }
    let had_log = FileIdentity::of(&sidecar(path, "-wal")).is_some();
    let connection = open_existing(location)?;
    if had_log {
        leave_log_alone(&connection);
    }
    Ok(connection)
}

fn examine(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let problems = problems(connection, CheckDepth::Full)?;
    if !problems.is_empty() {
        return Ok(Some(problems.into_iter().take(3).collect::<Vec<_>>().join("; ")));
    }
    connection.query_row("SELECT COUNT(*) FROM sessions", [], |_| Ok(()))?;
    if let Some(finding) = search_tables(connection)?.into_iter().next() {
        return Ok(Some(finding));
    }
    try_to_write(connection)
}

/// What SQLite finds wrong with the file's pages and indexes.
pub(super) fn problems(connection: &Connection, depth: CheckDepth) -> rusqlite::Result<Vec<String>> {
    let pragma = match depth {
        CheckDepth::Full => "integrity_check",
        CheckDepth::Quick => "quick_check",
    };
    match findings(connection, &format!("PRAGMA {pragma}({MOST})")) {
        // The check asks the search indexes too, and one of them needs a tokenizer that is not here. SQLite then gives
        // up on all; table by table the others can be asked.
        Err(error) if is_missing(&error) => {
            let mut found = Vec::new();
            for (table, _) in super::tables(connection)? {
                let name = table.replace('"', "\"\"");
                found.extend(findings(connection, &format!("PRAGMA {pragma}(\"{name}\")"))?);
            }
            Ok(found)
        }
        found => found,
    }
}

pub(super) fn findings(connection: &Connection, check: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(check)?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
    rows.filter(|row| row.as_ref().map_or(true, |row| row != "ok")).collect()
}

/// Asks each search index for a phrase that nothing holds.
pub(super) fn search_tables(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut found = Vec::new();
    for table in SEARCH_TABLES {
        let asked = connection
            .prepare(&format!("SELECT rowid FROM {table} WHERE {table} MATCH '\"\"' LIMIT 1"))
            .and_then(|mut statement| statement.query([])?.next().map(drop));
        match asked {
            Ok(()) => {}
            Err(error) if is_busy(&error) => return Err(error),
            Err(error) if is_missing(&error) => {}
            Err(error) => found.push(format!("fts5 read probe failed on {table}: {}", message(&error))),
        }
    }
    Ok(found)
}

/// Writes a session and a message, so that the triggers run, and undoes it.
fn try_to_write(connection: &Connection) -> rusqlite::Result<Option<String>> {
    match connection.execute_batch("BEGIN IMMEDIATE") {
        Err(error) if matches!(extended_code(&error) & 0xff, ffi::SQLITE_READONLY) => return Ok(None),
        begun => begun?,
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let id = format!("_hermes_fts_health_probe_{now}");
    let session = "INSERT INTO sessions (id, source, started_at) VALUES (?1, '_health_probe', 0)";
    let message_of_it = "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?1, 'user', 'probe', 0)";
    let written = connection.execute(session, [&id]).and_then(|_| connection.execute(message_of_it, [&id]));
    connection.execute_batch("ROLLBACK")?;
    match written {
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
        Ok(_) => Ok(None),
    }
}

/// Whether the error only says that something is not there: a table or column of a later release, a module or tokenizer
/// that others have. SQLite has one code for these and for an index whose settings are damaged, so the words decide.
fn is_missing(error: &rusqlite::Error) -> bool {
    let text = message(error);
    extended_code(error) == ffi::SQLITE_ERROR
        && ["no such module", "no such tokenizer", "no such table", "no such column", "has no column"]
            .iter()
            .any(|words| text.contains(words))
}

/// What keeps nobody from working and is not as it should be all the same.
#[derive(Default)]
pub(super) struct Gaps {
    /// Messages whose session is not there.
    pub(super) orphans: i64,
    /// Search indexes that lack messages, and how many.
    pub(super) lacking: Vec<(&'static str, i64)>,
}

impl Gaps {
    /// It, in a sentence; `None` if there is nothing to say.
    pub(super) fn told(&self) -> Option<String> {
        let orphans =
            (self.orphans > 0).then(|| format!("{} messages belong to sessions that are not there", self.orphans));
        let lacking = self.lacking.iter().map(|(index, rows)| lack(index, *rows));
        let all: Vec<String> = orphans.into_iter().chain(lacking).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

pub(super) fn lack(index: &str, rows: i64) -> String {
    format!("the search index {index} lacks {rows} messages")
}

/// What is missing in a file that is well otherwise, if anything is.
pub(super) fn gap(location: &Location) -> Result<Option<String>> {
    let found = onlooker::open_as_it_is(location).and_then(|connection| gaps(&connection));
    match found {
        Ok(gaps) => Ok(gaps.told()),
        Err(error) if is_busy(&error) => Ok(None),
        Err(error) => Err(classify(location.path(), &error)),
    }
}

/// Looks for them in a file whose tables can be read.
pub(super) fn gaps(connection: &Connection) -> rusqlite::Result<Gaps> {
    let tables = super::tables(connection)?;
    let has = |name: &str| tables.iter().any(|(table, _)| table == name);
    if !has("messages") || !has("sessions") {
        return Ok(Gaps::default());
    }
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let orphans =
        count("SELECT COUNT(*) FROM messages WHERE session_id NOT IN (SELECT id FROM sessions WHERE id IS NOT NULL)")?;
    let mut lacking = Vec::new();
    if has("state_meta") && !schema::is_legacy(connection)? {
        let kept = schema::kept_indexes(connection)?;
        let sources = ["messages", "messages_fts_trigram_src", "messages_fts_cjk_src"];
        for (number, ((index, source), kept)) in SEARCH_TABLES.into_iter().zip(sources).zip(kept).enumerate() {
            // While somebody fills an index it lacks what is still to come.
            let filling = schema::markers(connection, number == 2)?.high_water.is_some();
            if kept && !filling {
                let sql = format!("SELECT COUNT(*) FROM {source} WHERE id NOT IN (SELECT id FROM {index}_docsize)");
                let mut rows = count(&sql)?;
                // What was overwritten with zeros is no error to SQLite: the index just finds nothing.
                if rows == 0 && lost_rows(connection, index).unwrap_or(false) {
                    rows = count(&format!("SELECT COUNT(*) FROM {index}_docsize"))?;
                }
                if rows > 0 {
                    lacking.push((index, rows));
                }
            }
        }
    }
    Ok(Gaps { orphans, lacking })
}
