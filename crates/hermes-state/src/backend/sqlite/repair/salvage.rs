//! Puts every row that can be read of a damaged copy into a new file.
//!
//! A table is read from both ends until a damaged page is met; what lies between is cut in halves again and again, so
//! that good pages between bad ones are found. A table whose rows have no numbers is read from both ends of its key. Rows are compared with what their place in the table says of them: a page
//! of noise may read as rows.

use std::collections::VecDeque;
use std::path::Path;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ffi, params_from_iter};

use super::super::errors::{classify, extended_code};
use super::super::schema::{self, Adoption, Context};
use crate::error::{Error, Result};
use crate::repair::RepairedTable;

/// After how many stretches without a single row the rest of a table counts as unreadable.
const FRUITLESS: usize = 50_000;

/// How far behind the last row that can be read further ones of its page are looked for; a page holds far fewer.
const BEYOND: i64 = 1 << 12;

/// Rows of one transaction.
const CHUNK: u64 = 50_000;

/// Fills the new file from the damaged one, and makes it a store.
pub(super) fn salvage(damaged: &Path, fresh: &Path) -> Result<Vec<RepairedTable>> {
    let source = super::open_copy(damaged)?;
    let target = super::open_copy(fresh)?;
    let failed = |error: rusqlite::Error| classify(fresh, &error);
    target.execute_batch("PRAGMA auto_vacuum=INCREMENTAL; PRAGMA foreign_keys=OFF").map_err(failed)?;
    // A message that some page still holds may belong to a session that none does, so sessions come last.
    let mut found = super::tables(&source).map_err(|error| classify(damaged, &error))?;
    found.sort_by_key(|(name, _)| name == "sessions");
    let mut tables = Vec::new();
    for (name, definition) in found {
        // A definition that cannot be read is that of nobody's table.
        if target.execute_batch(&definition).is_ok() {
            tables.push(Copying::new(&source, &target, name).map_err(failed)?.run()?);
        }
    }
    keep_ids(&source, &target, &tables).map_err(failed)?;
    if tables.iter().any(|table| table.name == "sessions") && tables.iter().any(|table| table.name == "messages") {
        complete(&target, &mut tables).map_err(failed)?;
    }
    copy_objects(&source, &target);
    // Of the old search indexes; the new ones are complete. Without the table there are no markers.
    let _ = target.execute(
        "DELETE FROM state_meta WHERE key IN ('fts_optimize_available', 'fts_rebuild_high_water', 'fts_rebuild_progress')",
        [],
    );
    target.execute_batch("PRAGMA writable_schema=OFF; PRAGMA foreign_keys=ON; BEGIN IMMEDIATE").map_err(failed)?;
    match schema::adopt(&target, &Context { alone: true, ..Context::default() }).map_err(failed)? {
        Adoption::Done { .. } => target.execute_batch("COMMIT").map_err(failed)?,
        Adoption::TooNew { found } => {
            return Err(Error::TooNew { path: fresh.to_owned(), found, supported: schema::SCHEMA_VERSION });
        }
    }
    tables.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(tables)
}

/// One table on its way.
struct Copying<'a> {
    source: &'a Connection,
    target: &'a Connection,
    report: RepairedTable,
    columns: Vec<String>,
    /// Whether a column stands for the row's number, which then is not told twice.
    numbered: bool,
    /// The columns of the key, if rows have no numbers but stand in its order.
    key: Option<Vec<String>>,
}

/// How the reading of a stretch ended.
enum End {
    Whole,
    /// Damage was met behind this row, or at once.
    Broken(Option<i64>),
}

impl<'a> Copying<'a> {
    fn new(source: &'a Connection, target: &'a Connection, name: String) -> rusqlite::Result<Self> {
        // Asked of the new file: both have the same definition, and this one's is known to make sense.
        let mut statement =
            target.prepare("SELECT name, type, pk FROM pragma_table_xinfo(?1) WHERE hidden = 0 ORDER BY cid")?;
        let found: Vec<(String, String, i64)> = statement
            .query_map([&name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let keys = found.iter().filter(|(_, _, key)| *key > 0).count();
        let numbered =
            keys == 1 && found.iter().any(|(_, kind, key)| *key == 1 && kind.eq_ignore_ascii_case("INTEGER"));
        let unnumbered: bool = target.query_row(
            "SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = ?1",
            [&name],
            |row| row.get(0),
        )?;
        let key = unnumbered.then(|| {
            let mut key: Vec<_> = found.iter().filter(|(_, _, key)| *key > 0).collect();
            key.sort_by_key(|(_, _, place)| *place);
            key.into_iter().map(|(column, _, _)| column.clone()).collect()
        });
        let columns = found.into_iter().map(|(column, _, _)| column).collect();
        Ok(Self { source, target, report: RepairedTable::empty(name), columns, numbered: numbered || unnumbered, key })
    }

    fn run(mut self) -> Result<RepairedTable> {
        self.execute("BEGIN")?;
        match self.key.clone() {
            Some(key) => self.read_from_both_ends(&key)?,
            None => self.read_in_stretches()?,
        }
        self.execute("COMMIT")?;
        let known = self.known()?;
        if let Some(known) = known {
            self.report.before = Some(known.max(self.report.rows + self.report.lost));
            self.report.lost = self.report.lost.max(known.saturating_sub(self.report.rows));
            // The index names every row, so nothing was in what could not be read.
            self.report.incomplete &= known > self.report.rows;
        } else if !self.report.incomplete {
            self.report.before = Some(self.report.rows + self.report.lost);
        }
        Ok(self.report)
    }

    fn read_in_stretches(&mut self) -> Result<()> {
        let (mut fruitless, mut since_commit) = (0, 0);
        let mut stretches = VecDeque::from([(i64::MIN, i64::MAX)]);
        while let Some((mut low, mut high)) = stretches.pop_front() {
            if low > high {
                continue;
            }
            let before = self.report.rows;
            if let End::Broken(last) = self.read(low, high, true)? {
                low = last.map_or(low, |last| last.saturating_add(1));
                if low <= high
                    && let End::Broken(first) = self.read(low, high, false)?
                {
                    high = first.map_or(high, |first| first.saturating_sub(1));
                    // Rows have no number so large; those of the last page that can be read are near the others.
                    (low, high) = match (low, high) {
                        (i64::MIN, i64::MAX) => (-BEYOND, BEYOND),
                        (i64::MIN, high) => (high.saturating_sub(BEYOND), high),
                        (low, i64::MAX) => (low, low.saturating_add(BEYOND)),
                        both => both,
                    };
                    self.report.incomplete = true;
                    if low < high && fruitless < FRUITLESS {
                        let middle = low + (high - low) / 2;
                        stretches.extend([(low, middle), (middle + 1, high)]);
                    }
                }
            }
            let found = self.report.rows - before;
            fruitless = if found > 0 { 0 } else { fruitless + 1 };
            since_commit += found;
            if since_commit > CHUNK {
                self.execute("COMMIT; BEGIN")?;
                since_commit = 0;
            }
        }
        Ok(())
    }

    /// Copies the rows of a table in the order of its key, upwards until damage is met and then downwards.
    fn read_from_both_ends(&mut self, key: &[String]) -> Result<()> {
        let columns: Vec<String> = self.columns.iter().map(|column| quote(column)).collect();
        let (table, columns) = (quote(&self.report.name), columns.join(", "));
        let places = vec!["?"; self.columns.len()].join(", ");
        // What one way has found the other may find again.
        let insert = format!("INSERT OR IGNORE INTO {table} ({columns}) VALUES ({places})");
        let mut insert = self.target.prepare_cached(&insert).map_err(|error| self.failed(&error))?;
        for direction in ["ASC", "DESC"] {
            let order: Vec<String> = key.iter().map(|column| format!("{} {direction}", quote(column))).collect();
            let select = format!("SELECT {columns} FROM {table} NOT INDEXED ORDER BY {}", order.join(", "));
            let Ok(mut statement) = self.source.prepare_cached(&select) else { continue };
            let Ok(mut rows) = statement.query([]) else { continue };
            loop {
                let row = match rows.next() {
                    Ok(Some(row)) => row,
                    Ok(None) => return Ok(()),
                    Err(_) => break,
                };
                let (values, mended) = self.values(row, 0)?;
                let inserted = insert.execute(params_from_iter(values)).map_err(|error| self.failed(&error))?;
                self.report.rows += inserted as u64;
                self.report.mended += u64::from(mended && inserted > 0);
            }
        }
        self.report.incomplete = true;
        Ok(())
    }

    /// What stands in a row from this column on, and whether some of it had to be mended.
    fn values(&self, row: &rusqlite::Row<'_>, from: usize) -> Result<(Vec<Value>, bool)> {
        let mut mended = false;
        let count = row.as_ref().column_count();
        let mut values = Vec::with_capacity(count);
        for column in from..count {
            let value = row.get_ref(column).map_err(|error| self.failed(&error))?;
            values.push(readable(value, &mut mended));
        }
        Ok((values, mended))
    }

    fn execute(&self, sql: &str) -> Result<()> {
        self.target.execute_batch(sql).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &rusqlite::Error) -> Error {
        classify(Path::new(self.target.path().unwrap_or_default()), error)
    }

    /// Copies the rows of a stretch, upwards or downwards, until damage is met.
    fn read(&mut self, low: i64, high: i64, upwards: bool) -> Result<End> {
        let quoted: Vec<String> = self.columns.iter().map(|column| quote(column)).collect();
        let (table, columns) = (quote(&self.report.name), quoted.join(", "));
        let order = if upwards { "ASC" } else { "DESC" };
        let select = format!(
            "SELECT _rowid_, {columns} FROM {table} NOT INDEXED WHERE _rowid_ BETWEEN ?1 AND ?2 ORDER BY _rowid_ {order}"
        );
        let number = if self.numbered { "" } else { "_rowid_, " };
        let places: Vec<String> = (0..self.columns.len() + usize::from(!self.numbered)).map(|_| "?".into()).collect();
        let insert = format!("INSERT INTO {table} ({number}{columns}) VALUES ({})", places.join(", "));
        let mut insert = self.target.prepare_cached(&insert).map_err(|error| self.failed(&error))?;
        let Ok(mut statement) = self.source.prepare_cached(&select) else { return Ok(End::Broken(None)) };
        let Ok(mut rows) = statement.query([low, high]) else { return Ok(End::Broken(None)) };
        let mut last: Option<i64> = None;
        loop {
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => return Ok(End::Whole),
                Err(_) => return Ok(End::Broken(last)),
            };
            let Ok(id) = row.get::<_, i64>(0) else { return Ok(End::Broken(last)) };
            let in_order = last.is_none_or(|last| if upwards { id > last } else { id < last });
            if !in_order || id < low || id > high {
                return Ok(End::Broken(last));
            }
            let (values, mended) = self.values(row, usize::from(self.numbered))?;
            last = Some(id);
            if !makes_sense(&self.report.name, &self.columns, &values[usize::from(!self.numbered)..], mended) {
                self.report.lost += 1;
                continue;
            }
            match insert.execute(params_from_iter(values)) {
                Ok(_) => {
                    self.report.rows += 1;
                    self.report.mended += u64::from(mended);
                }
                Err(error) if extended_code(&error) & 0xff == ffi::SQLITE_CONSTRAINT => self.report.lost += 1,
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }

    /// How many rows an index names, of the indexes that have an entry for every row and can be read.
    fn known(&self) -> Result<Option<u64>> {
        let indexes = "SELECT name FROM pragma_index_list(?1) WHERE partial = 0";
        let count = || -> rusqlite::Result<Option<u64>> {
            let mut statement = self.source.prepare(indexes)?;
            let names: Vec<String> =
                statement.query_map([&self.report.name], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            let table = quote(&self.report.name);
            let counts = names.iter().filter_map(|index| {
                let sql = format!("SELECT COUNT(*) FROM {table} INDEXED BY {}", quote(index));
                self.source.query_row(&sql, [], |row| row.get::<_, i64>(0)).ok()
            });
            Ok(counts.max().and_then(|count| u64::try_from(count).ok()))
        };
        Ok(count().unwrap_or_default())
    }
}

fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A value as it can be stored: bytes that are no text stand as U+FFFD, since a text that is none makes its whole session
/// unreadable.
fn readable(value: ValueRef<'_>, mended: &mut bool) -> Value {
    match value {
        ValueRef::Text(bytes) => Value::Text(match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => {
                *mended = true;
                String::from_utf8_lossy(bytes).into_owned()
            }
        }),
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_owned()),
    }
}

/// Whether a row of sessions or messages is one, and not noise.
fn makes_sense(table: &str, columns: &[String], values: &[Value], mended: bool) -> bool {
    let needed: &[&str] = match table {
        "sessions" => &["id", "source"],
        "messages" => &["session_id", "role"],
        _ => return true,
    };
    needed.iter().all(|needed| {
        let value = columns.iter().position(|column| column == needed).and_then(|at| values.get(at));
        match value {
            Some(Value::Text(text)) => !mended || !text.contains('\u{fffd}'),
            // An older release let a session be without an id, and that is all there is to say against it.
            Some(Value::Null) => table == "sessions",
            _ => false,
        }
    })
}

/// Ids are never given twice, also those of rows that are lost.
fn keep_ids(source: &Connection, target: &Connection, tables: &[RepairedTable]) -> rusqlite::Result<()> {
    for table in tables {
        let given =
            source.query_row("SELECT seq FROM sqlite_sequence WHERE name = ?1", [&table.name], |row| row.get(0));
        let Ok(given): rusqlite::Result<i64> = given else { continue };
        let raised =
            target.execute("UPDATE sqlite_sequence SET seq = MAX(seq, ?2) WHERE name = ?1", (&table.name, given))?;
        if raised == 0 {
            target.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)", (&table.name, given))?;
        }
    }
    Ok(())
}

/// Gives messages without a session one, lets no session hang on a parent that is gone, and makes counters agree with
/// what is there, if anything is gone.
fn complete(target: &Connection, tables: &mut [RepairedTable]) -> rusqlite::Result<()> {
    let has = |column: &str| -> rusqlite::Result<bool> {
        let asked = "SELECT COUNT(*) FROM pragma_table_info('sessions') WHERE name = ?1";
        target.query_row(asked, [column], |row| row.get(0))
    };
    target.execute_batch("BEGIN; CREATE INDEX salvaged ON messages (session_id)")?;
    let made = target.execute(super::strategy::ADOPT, [])?;
    let lossy = tables.iter().any(|table| table.lost > 0 || table.incomplete);
    if lossy && has("parent_session_id")? {
        target.execute(
            "UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id IS NOT NULL \
             AND parent_session_id NOT IN (SELECT id FROM sessions WHERE id IS NOT NULL)",
            [],
        )?;
    }
    if lossy && has("message_count")? {
        let active = "SELECT COUNT(*) FROM pragma_table_info('messages') WHERE name = 'active'";
        let active: bool = target.query_row(active, [], |row| row.get(0))?;
        let count = format!(
            "(SELECT COUNT(*) FROM messages WHERE session_id = sessions.id{})",
            if active { " AND active = 1" } else { "" }
        );
        target.execute(&format!("UPDATE sessions SET message_count = {count} WHERE message_count <> {count}"), [])?;
    }
    target.execute_batch("DROP INDEX salvaged; COMMIT")?;
    if let Some(sessions) = tables.iter_mut().find(|table| table.name == "sessions") {
        sessions.made = made as u64;
        sessions.rows += sessions.made;
    }
    Ok(())
}

/// Makes the indexes, triggers and views that others have added; those that make no sense stay behind.
fn copy_objects(source: &Connection, target: &Connection) {
    let objects = "SELECT sql FROM sqlite_schema WHERE type IN ('index', 'view', 'trigger') AND sql IS NOT NULL \
                   AND name NOT LIKE 'messages\\_fts%' ESCAPE '\\'";
    let Ok(mut statement) = source.prepare(objects) else { return };
    let Ok(rows) = statement.query_map([], |row| row.get::<_, String>(0)) else { return };
    for sql in rows.flatten() {
        let _ = target.execute_batch(&sql);
    }
}
