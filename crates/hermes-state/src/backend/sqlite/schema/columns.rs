//! Column reconciliation: a table of any older release gets the columns that it lacks, and keeps all that it has.
//!
//! No version number decides whether a column exists. Releases have shipped files whose number promised columns that
//! a lock error had kept from being added, so only the file itself is believed.

use std::sync::OnceLock;

use rusqlite::Connection;

use super::catalog::{self, Catalog, Column};
use super::{INDEXES_SQL, LATE_INDEXES_SQL, TABLES_SQL};
use crate::backend::sqlite::errors::extended_code;
use crate::error::Error;

/// A declared table: its name and, in order, its columns.
pub(super) struct Table {
    pub(super) name: String,
    pub(super) columns: Vec<Column>,
}

/// What the built-in scripts declare.
pub(super) struct Declared {
    pub(super) tables: Vec<Table>,
    pub(super) indexes: Vec<String>,
}

/// The scripts are read by SQLite itself, so there is one list of names in this crate and it cannot disagree.
pub(super) fn declared() -> rusqlite::Result<&'static Declared> {
    static DECLARED: OnceLock<Declared> = OnceLock::new();
    if let Some(declared) = DECLARED.get() {
        return Ok(declared);
    }
    let scratch = Connection::open_in_memory()?;
    for script in [TABLES_SQL, INDEXES_SQL, LATE_INDEXES_SQL] {
        scratch.execute_batch(script)?;
    }
    let declared = Declared { tables: tables(&scratch)?, indexes: names(&scratch, "index")? };
    Ok(DECLARED.get_or_init(|| declared))
}

/// Tables and, for each, its columns with their type texts, all in declared order.
pub type SchemaColumns = Vec<(String, Vec<(String, String)>)>;

/// The columns that every table of a schema script declares: table, then (column, type text), all in order.
///
/// The type text is the declared type, `NOT NULL` if so declared outside the primary key, and `DEFAULT …` if there is
/// a default; keys, uniqueness and references are not in it.
///
/// # Errors
///
/// [`Error::Engine`] if the script is not valid SQL.
///
/// ```
/// let tables = hermes_state::parse_schema_columns("CREATE TABLE t (id INTEGER PRIMARY KEY, n REAL NOT NULL DEFAULT 0)")?;
/// assert_eq!(tables[0].0, "t");
/// assert_eq!(tables[0].1[1], ("n".to_owned(), "REAL NOT NULL DEFAULT 0".to_owned()));
/// # Ok::<(), hermes_state::Error>(())
/// ```
pub fn parse_schema_columns(sql: &str) -> crate::Result<SchemaColumns> {
    let parse = || -> rusqlite::Result<Vec<Table>> {
        let scratch = Connection::open_in_memory()?;
        scratch.execute_batch(sql)?;
        tables(&scratch)
    };
    let tables = parse().map_err(|error| Error::Engine { code: extended_code(&error), message: error.to_string() })?;
    let pairs = |table: Table| table.columns.into_iter().map(|column| (column.name, column.declaration)).collect();
    Ok(tables.into_iter().map(|table| (table.name.clone(), pairs(table))).collect())
}

fn tables(conn: &Connection) -> rusqlite::Result<Vec<Table>> {
    names(conn, "table")?.into_iter().map(|name| Ok(Table { columns: catalog::columns(conn, &name)?, name })).collect()
}

fn names(conn: &Connection, kind: &str) -> rusqlite::Result<Vec<String>> {
    let mut rows =
        conn.prepare("SELECT name FROM sqlite_master WHERE type = ?1 AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")?;
    rows.query_map([kind], |row| row.get(0))?.collect()
}

/// Whether the file has every base table with every column that it could be given.
pub(super) fn complete(conn: &Connection, catalog: &Catalog) -> rusqlite::Result<bool> {
    for table in &declared()?.tables {
        if !catalog.has_table(&table.name) || !missing(conn, table)?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Adds what is missing, at the end of each table and in declared order; existing rows take the default.
pub(super) fn reconcile(conn: &Connection) -> rusqlite::Result<()> {
    for table in &declared()?.tables {
        for column in missing(conn, table)? {
            add(conn, &table.name, column)?;
        }
    }
    Ok(())
}

pub(super) fn add(conn: &Connection, table: &str, column: &Column) -> rusqlite::Result<()> {
    conn.execute_batch(&format!(
        "ALTER TABLE {} ADD COLUMN {} {}",
        catalog::quoted(table),
        catalog::quoted(&column.name),
        column.declaration
    ))
}

/// The columns that a table lacks and can get. SQLite takes names that differ in case for the same one.
pub(super) fn missing<'a>(conn: &Connection, table: &'a Table) -> rusqlite::Result<Vec<&'a Column>> {
    let live = catalog::columns(conn, &table.name)?;
    let mut missing: Vec<&Column> = table
        .columns
        .iter()
        .filter(|column| !live.iter().any(|found| found.name.eq_ignore_ascii_case(&column.name)))
        .collect();
    if missing.iter().any(|column| column.needs_empty_table()) && catalog::has_rows(conn, &table.name)? {
        missing.retain(|column| !column.needs_empty_table());
    }
    Ok(missing)
}
