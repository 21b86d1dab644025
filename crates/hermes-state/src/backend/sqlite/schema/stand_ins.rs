//! What stands in for the columns and tables that a file of an older release lacks, on a connection that may only look.
//!
//! A writable open adds them to the file. A look must not, so its connection gets temporary views under the same names:
//! names without a schema mean those first, and the rows read as they would after a writable open.

use rusqlite::Connection;

use super::catalog::{Catalog, Column, quoted};
use super::columns::{declared, missing};

/// What only a store has; anything else is left as it is, and says by itself what it lacks.
const STORE: [&str; 2] = ["sessions", "messages"];

/// Makes the views that the file needs, and says whether it needs any. Writes nothing but the connection's own memory.
///
/// # Errors
///
/// Whatever SQLite reports.
pub(crate) fn put(conn: &Connection) -> rusqlite::Result<bool> {
    conn.execute_batch("BEGIN")?;
    let done = within(conn);
    // A schema that cannot be read may have ended the transaction.
    if !conn.is_autocommit() {
        conn.execute_batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    }
    done
}

fn within(conn: &Connection) -> rusqlite::Result<bool> {
    let catalog = Catalog::read(conn)?;
    if !STORE.iter().all(|table| catalog.has_table(table)) {
        return Ok(false);
    }
    let mut views = String::new();
    for table in &declared()?.tables {
        let name = quoted(&table.name);
        if !catalog.has_table(&table.name) {
            views.push_str(&format!("CREATE TEMP VIEW {name} AS SELECT {} WHERE 0;", defaults(&table.columns)));
            continue;
        }
        let lacking = missing(conn, table)?;
        if !lacking.is_empty() {
            let lacking = defaults(lacking);
            views.push_str(&format!("CREATE TEMP VIEW {name} AS SELECT *, {lacking} FROM main.{name};"));
        }
    }
    if views.is_empty() {
        return Ok(false);
    }
    conn.execute_batch(&views)?;
    conn.pragma_update(Some("temp"), "user_version", schema_number(conn)?)?;
    Ok(true)
}

/// What rows have in columns that are added.
fn defaults<'a>(columns: impl IntoIterator<Item = &'a Column>) -> String {
    let column = |column: &Column| {
        let value = column.default.as_deref().unwrap_or("NULL");
        format!("{value} AS {}", quoted(&column.name))
    };
    columns.into_iter().map(column).collect::<Vec<_>>().join(", ")
}

/// Whether the connection has views that were made for another schema than the file has now: somebody has brought it up
/// to date.
///
/// # Errors
///
/// Whatever SQLite reports.
pub(crate) fn are_outdated(conn: &Connection) -> rusqlite::Result<bool> {
    let made_for: i64 = conn.prepare_cached("PRAGMA temp.user_version")?.query_row([], |row| row.get(0))?;
    Ok(made_for != schema_number(conn)?)
}

/// Whether the table is seen through a view of ours.
///
/// # Errors
///
/// Whatever SQLite reports.
pub(crate) fn stand_for(conn: &Connection, table: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM temp.sqlite_master WHERE type = 'view' AND name = ?1)";
    conn.prepare_cached(sql)?.query_row([table], |row| row.get(0))
}

/// The number that SQLite changes with every change of the file's schema; as a pragma takes it.
fn schema_number(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached("PRAGMA main.schema_version")?.query_row([], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(conn: &Connection, sql: &str) -> Vec<(String, Option<String>, i64)> {
        let mut statement = conn.prepare(sql).unwrap();
        statement
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .unwrap()
            .collect::<rusqlite::Result<_>>()
            .unwrap()
    }

    #[test]
    fn a_table_that_lacks_columns_reads_as_if_it_had_been_given_them() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, started_at REAL NOT NULL); \
             CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, timestamp REAL); \
             INSERT INTO sessions VALUES ('a', 'cli', 1.0)",
        )
        .unwrap();
        assert!(put(&conn).unwrap());
        assert_eq!(rows(&conn, "SELECT id, title, archived FROM sessions"), [("a".to_owned(), None, 0)]);
        assert!(rows(&conn, "SELECT key, value, 1 FROM state_meta").is_empty());
        assert!(stand_for(&conn, "sessions").unwrap() && !stand_for(&conn, "nothing").unwrap());
        assert!(!are_outdated(&conn).unwrap());
        conn.execute_batch("ALTER TABLE main.sessions ADD COLUMN title TEXT").unwrap();
        assert!(are_outdated(&conn).unwrap());
    }

    #[test]
    fn a_complete_store_and_what_is_no_store_are_left_as_they_are() {
        for script in
            [super::super::SCHEMA_SQL.to_owned() + super::super::LATE_INDEXES_SQL, "CREATE TABLE other (x)".to_owned()]
        {
            let conn = Connection::open_in_memory().unwrap();
            conn.execute_batch(&script).unwrap();
            assert!(!put(&conn).unwrap());
            let made: i64 = conn.query_row("SELECT COUNT(*) FROM temp.sqlite_master", [], |row| row.get(0)).unwrap();
            assert_eq!(made, 0, "{script}");
        }
    }
}
