//! What a file holds by name: its schema objects, the columns of a table, and its marker rows.

use rusqlite::{Connection, OptionalExtension, params};

/// The schema objects of a file at one moment. Siblings may change them between any two transactions, so a catalogue
/// lives no longer than the transaction that read it.
pub(super) struct Catalog {
    objects: Vec<Object>,
}

struct Object {
    kind: String,
    name: String,
    sql: Option<String>,
}

impl Catalog {
    pub(super) fn read(conn: &Connection) -> rusqlite::Result<Self> {
        let mut rows = conn.prepare_cached("SELECT type, name, sql FROM sqlite_master")?;
        let objects = rows
            .query_map([], |row| Ok(Object { kind: row.get(0)?, name: row.get(1)?, sql: row.get(2)? }))?
            .collect::<rusqlite::Result<_>>()?;
        Ok(Self { objects })
    }

    pub(super) fn has_table(&self, name: &str) -> bool {
        self.find("table", name).is_some()
    }

    pub(super) fn has_view(&self, name: &str) -> bool {
        self.find("view", name).is_some()
    }

    pub(super) fn has_index(&self, name: &str) -> bool {
        self.find("index", name).is_some()
    }

    pub(super) fn has_trigger(&self, name: &str) -> bool {
        self.find("trigger", name).is_some()
    }

    /// The text that defined a table.
    pub(super) fn definition(&self, table: &str) -> Option<&str> {
        self.find("table", table)?.sql.as_deref()
    }

    pub(super) fn has_table_starting(&self, prefix: &str) -> bool {
        self.first_table_starting(prefix).is_some()
    }

    /// In the order in which the tables were made.
    pub(super) fn first_table_starting(&self, prefix: &str) -> Option<&str> {
        let mut tables = self.objects.iter().filter(|object| object.kind == "table");
        tables.find(|table| table.name.starts_with(prefix)).map(|table| table.name.as_str())
    }

    fn find(&self, kind: &str, name: &str) -> Option<&Object> {
        self.objects.iter().find(|object| object.kind == kind && object.name == name)
    }
}

/// One column as the file has it.
pub(super) struct Column {
    pub(super) name: String,
    /// What `ALTER TABLE … ADD COLUMN` needs behind the name: type, NOT NULL and default, but no key and no reference.
    pub(super) declaration: String,
    /// The default as SQL text, if it has one.
    pub(super) default: Option<String>,
    /// The column's place in the primary key, from 1; 0 if it is not part of it.
    pub(super) key: i64,
}

impl Column {
    /// SQLite adds a column that may not be NULL and has no default only to an empty table.
    pub(super) fn needs_empty_table(&self) -> bool {
        self.declaration.ends_with("NOT NULL")
    }
}

/// The columns of a table in their order; none if there is no such table. Generated columns are among them.
pub(super) fn columns(conn: &Connection, table: &str) -> rusqlite::Result<Vec<Column>> {
    let mut rows = conn
        .prepare_cached(r#"SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_xinfo(?1) ORDER BY cid"#)?;
    rows.query_map([table], |row| {
        let (mut declaration, default): (String, Option<String>) = (row.get(1)?, row.get(3)?);
        let key = row.get(4)?;
        let mut add = |part: &str| {
            if !declaration.is_empty() {
                declaration.push(' ');
            }
            declaration.push_str(part);
        };
        if row.get(2)? && key == 0 {
            add("NOT NULL");
        }
        if let Some(default) = &default {
            add("DEFAULT");
            add(default);
        }
        Ok(Column { name: row.get(0)?, declaration, default, key })
    })?
    .collect()
}

/// Whether a table has a row.
pub(super) fn has_rows(conn: &Connection, table: &str) -> rusqlite::Result<bool> {
    conn.query_row(&format!("SELECT EXISTS (SELECT 1 FROM {})", quoted(table)), [], |row| row.get(0))
}

/// A name as SQL text.
pub(in crate::backend::sqlite) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Whether `state_meta` has the key, whatever its value.
pub(super) fn has_marker(conn: &Connection, key: &str) -> rusqlite::Result<bool> {
    let mut rows = conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM state_meta WHERE key = ?1)")?;
    rows.query_row([key], |row| row.get(0))
}

/// Sets a marker; one that already says so is left alone, so that nothing is written.
pub(super) fn set_marker(conn: &Connection, key: &str, value: &str) -> rusqlite::Result<()> {
    if marker_is(conn, key, value)? {
        return Ok(());
    }
    let mut upsert = conn.prepare_cached(
        "INSERT INTO state_meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    )?;
    upsert.execute(params![key, value])?;
    Ok(())
}

/// Whether a marker has exactly this text.
pub(super) fn marker_is(conn: &Connection, key: &str, value: &str) -> rusqlite::Result<bool> {
    let mut row = conn.prepare_cached("SELECT value IS ?2 FROM state_meta WHERE key = ?1")?;
    Ok(row.query_row(params![key, value], |row| row.get(0)).optional()?.unwrap_or(false))
}

pub(super) fn clear_marker(conn: &Connection, key: &str) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM state_meta WHERE key = ?1")?.execute([key])?;
    Ok(())
}
