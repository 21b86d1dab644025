//! Tests of the schema, and what they share: files, dumps, and a sibling in another language.

mod cjk;
mod index;
mod migrations;
mod old_worlds;
mod shape;

use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;
use rusqlite::types::Value;
use tempfile::TempDir;

use super::*;

/// A file in a folder that vanishes with it.
pub(super) struct File {
    pub(super) path: PathBuf,
    _folder: TempDir,
}

impl File {
    /// A path at which nothing is yet.
    pub(super) fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { path: folder.path().join("state.db"), _folder: folder }
    }

    /// A copy of the file that the release with this schema version wrote.
    pub(super) fn fixture(version: i64) -> Self {
        let file = Self::empty();
        let original = format!("{}/tests/fixtures/state-v{version}.db", env!("CARGO_MANIFEST_DIR"));
        #[expect(clippy::disallowed_methods, reason = "neither the original nor the new copy is open anywhere")]
        std::fs::copy(original, &file.path).unwrap();
        file
    }

    pub(super) fn open(&self) -> Connection {
        let conn = Connection::open(&self.path).unwrap();
        conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA foreign_keys = ON").unwrap();
        conn
    }

    /// Runs a Python program with the file as its argument; the sibling that older releases are.
    pub(super) fn python(&self, program: &str) -> String {
        let output = Command::new("python3").arg("-c").arg(program).arg(&self.path).output().expect("python3 is there");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

/// A private file in memory, up to date.
pub(super) fn fresh() -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    assert_eq!(adopt_all(&conn), []);
    conn
}

/// Adopts as an open does, and holds every adoption to its promise that the next open finds nothing to do.
pub(super) fn adopt_with(conn: &Connection, context: &Context) -> (Features, Vec<Note>) {
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    let adoption = adopt(conn, context).unwrap();
    assert!(!conn.is_autocommit(), "adopt must leave the commit to its caller");
    conn.execute_batch("COMMIT").unwrap();
    let Adoption::Done { features, notes } = adoption else { panic!("{adoption:?}") };
    assert_eq!(inspect(conn, context).unwrap(), Inspection::UpToDate(features));
    assert_eq!(super::features(conn, context).unwrap(), features);
    (features, notes)
}

pub(super) fn adopt_all(conn: &Connection) -> Vec<Note> {
    adopt_with(conn, &Context::default()).1
}

pub(super) fn needs_work(conn: &Connection) -> bool {
    matches!(inspect(conn, &Context::default()).unwrap(), Inspection::NeedsWork { .. })
}

pub(super) fn run(conn: &Connection, sql: &str) {
    conn.execute_batch(sql).unwrap_or_else(|error| panic!("{error}: {sql}"));
}

pub(super) fn one<T: rusqlite::types::FromSql>(conn: &Connection, sql: &str) -> T {
    conn.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{error}: {sql}"))
}

/// All rows of a query, values as text.
pub(super) fn rows(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(sql).unwrap_or_else(|error| panic!("{error}: {sql}"));
    let width = statement.column_count();
    let line = |row: &rusqlite::Row<'_>| {
        let values = (0..width).map(|index| row.get::<_, Value>(index).map(|value| format!("{value:?}")));
        Ok(values.collect::<rusqlite::Result<Vec<_>>>()?.join("|"))
    };
    statement.query_map([], line).unwrap().collect::<rusqlite::Result<_>>().unwrap()
}

/// Everything in a file: its schema and every row of every table that holds rows of its own.
pub(super) fn dump(conn: &Connection) -> Vec<String> {
    let mut all = rows(conn, "SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2");
    for table in
        names(conn, "table").iter().filter(|table| !table.starts_with("messages_fts") || table.contains("_data"))
    {
        all.push(format!("-- {table}"));
        all.extend(rows(conn, &format!("SELECT * FROM {table}")));
    }
    all
}

pub(super) fn names(conn: &Connection, kind: &str) -> Vec<String> {
    let mut statement = conn.prepare("SELECT name FROM sqlite_master WHERE type = ?1 ORDER BY name").unwrap();
    statement.query_map([kind], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap()
}

/// The file is sound, and so is each index against the text that it indexes.
pub(super) fn check(conn: &Connection) {
    assert_eq!(one::<String>(conn, "PRAGMA integrity_check"), "ok");
    assert_eq!(rows(conn, "PRAGMA foreign_key_check"), [""; 0]);
    for table in ["messages_fts", "messages_fts_trigram"] {
        run(conn, &format!("INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)"));
    }
}

/// How many rows of an index match.
pub(super) fn found(conn: &Connection, table: &str, query: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table} WHERE {table} MATCH ?1");
    conn.query_row(&sql, [query], |row| row.get(0)).unwrap()
}

/// Every token of an index with its place: what the index really holds, wherever its text comes from.
pub(super) fn tokens(conn: &Connection, table: &str) -> Vec<String> {
    run(conn, &format!("CREATE VIRTUAL TABLE temp.tokens USING fts5vocab('main', '{table}', 'instance')"));
    let tokens = rows(conn, "SELECT doc || ' ' || col || ' ' || offset || ' ' || term FROM temp.tokens ORDER BY 1");
    run(conn, "DROP TABLE temp.tokens");
    tokens
}

pub(super) fn exists(path: &Path) -> bool {
    path.try_exists().unwrap()
}
