//! Looks through the source for what cannot be copied, before anything is changed.

use super::report::{MigrationPhase, MigrationProblem, MigrationProgress};
use super::rows::{Pages, Row};
use super::tables::{BINDINGS, Column, Kind, META, Table, is_of_engine, tables};
use crate::db::SessionDb;
use crate::error::{Error, Result};
use crate::transaction::Transaction;
use crate::value::{Columns, Value};

/// How many problems, and how many notes, of one kind are told in full.
const TOLD: usize = 20;

/// What was found.
#[derive(Default)]
pub(super) struct Checked {
    /// How many rows each table has.
    pub(super) rows: Vec<u64>,
    pub(super) problems: Vec<MigrationProblem>,
    /// How many problems there are, those included that are not told.
    pub(super) count: u64,
    pub(super) notes: Vec<MigrationProblem>,
}

impl Checked {
    fn problem(&mut self, table: &'static str, key: Option<String>, column: Option<&str>, reason: impl Into<String>) {
        self.count += 1;
        if self.problems.iter().filter(|problem| problem.table == table).count() < TOLD {
            let column = column.map(str::to_owned);
            self.problems.push(MigrationProblem { table, key, column, reason: reason.into() });
        }
    }

    fn note(&mut self, table: &'static str, key: Option<String>, column: Option<&str>, reason: impl Into<String>) {
        if self.notes.iter().filter(|note| note.table == table).count() < TOLD {
            let column = column.map(str::to_owned);
            self.notes.push(MigrationProblem { table, key, column, reason: reason.into() });
        }
    }
}

/// Checks the source. Only a file can hold values that its columns are not made for; `typed` says that the target's
/// columns refuse them.
pub(super) fn check(
    from: &SessionDb,
    typed: bool,
    ignore_unknown: bool,
    progress: &mut dyn FnMut(MigrationProgress),
) -> Result<Checked> {
    let told = MigrationProgress { phase: MigrationPhase::Checking, table: "sessions", done: 0, total: 0 };
    progress(told);
    let scan = !from.is_typed()?;
    from.read_at_length(move |transaction| {
        let mut checked = Checked::default();
        if !columns(transaction, ignore_unknown, &mut checked)? {
            return Ok(checked);
        }
        loose_ends(transaction, &mut checked)?;
        for (number, table) in tables()?.iter().enumerate() {
            if !table.is_there(transaction)? {
                checked.rows.push(0);
                continue;
            }
            let count = transaction.scalar(&format!("SELECT COUNT(*) FROM {}", table.name), &[])?.as_i64();
            let mut rows = u64::try_from(count.unwrap_or_default()).unwrap_or_default();
            if number == META {
                transaction.query("SELECT key FROM state_meta", &[], &mut |row| {
                    rows -= u64::from(is_of_engine(&row)).min(rows);
                    Ok(())
                })?;
            }
            checked.rows.push(rows);
            if scan {
                keys(transaction, table, &mut checked)?;
                values(transaction, table, typed, &mut checked)?;
            }
        }
        Ok(checked)
    })
}

/// Whether the tables have the columns of this release, and what they have besides.
fn columns(transaction: &mut dyn Transaction, ignore_unknown: bool, checked: &mut Checked) -> Result<bool> {
    let mut complete = true;
    for table in tables()? {
        if !table.is_there(transaction)? {
            continue;
        }
        let old = "it is missing or lacks columns, as in stores of older releases; open the store once for writing with this release";
        if transaction.is_completed(table.name)? {
            complete = false;
            checked.problem(table.name, None, None, old);
            continue;
        }
        let found: Columns =
            match transaction.query(&format!("SELECT * FROM {} LIMIT 0", table.name), &[], &mut |_| Ok(())) {
                Ok(found) => found,
                Err(Error::Engine { .. }) => {
                    complete = false;
                    checked.problem(table.name, None, None, old);
                    continue;
                }
                Err(error) => return Err(error),
            };
        for known in &table.columns {
            let is_there = found.iter().any(|name| name.eq_ignore_ascii_case(&known.name));
            if !is_there && !table.may_lack(&known.name) {
                complete = false;
                checked.problem(table.name, None, Some(&known.name), old);
            }
        }
        for name in found.iter().filter(|name| table.columns.iter().all(|known| !known.name.eq_ignore_ascii_case(name)))
        {
            let quoted = name.replace('"', "\"\"");
            let sql = format!("SELECT COUNT(*) FROM {} WHERE \"{quoted}\" IS NOT NULL", table.name);
            let rows = transaction.scalar(&sql, &[])?.as_i64().unwrap_or_default();
            if rows == 0 {
                continue;
            }
            let reason = format!("this release does not know the column, in which {rows} row(s) have a value");
            if ignore_unknown {
                checked.note(table.name, None, Some(name), format!("{reason}; it was not carried over"));
            } else {
                let reason = format!("{reason}; upgrade, or ask for unknown columns to be ignored");
                checked.problem(table.name, None, Some(name), reason);
            }
        }
    }
    Ok(complete)
}

/// Rows that belong to sessions that do not exist.
fn loose_ends(transaction: &mut dyn Transaction, checked: &mut Checked) -> Result<()> {
    let text = |value: Option<&Value>| match value {
        Some(Value::Text(text)) => format!("{text:?}"),
        Some(Value::Integer(number)) => number.to_string(),
        _ => "?".to_owned(),
    };
    let each = |transaction: &mut dyn Transaction, sql: &str, row: &mut dyn FnMut(String, String)| {
        transaction.query(sql, &[], &mut |values| {
            row(text(values.first()), text(values.get(1)));
            Ok(())
        })
    };
    let bindings = &tables()?[BINDINGS];
    each(
        transaction,
        "SELECT m.id, m.session_id FROM messages m LEFT JOIN sessions s ON s.id = m.session_id \
         WHERE s.id IS NULL ORDER BY m.id",
        &mut |id, session| {
            let reason = format!("its session {session} does not exist; create that session in the source first");
            checked.problem("messages", Some(id), Some("session_id"), reason);
        },
    )?;
    each(
        transaction,
        "SELECT c.id, c.parent_session_id FROM sessions c LEFT JOIN sessions p ON p.id = c.parent_session_id \
         WHERE c.parent_session_id IS NOT NULL AND p.id IS NULL ORDER BY c.id",
        &mut |id, parent| {
            let reason =
                format!("its parent {parent} does not exist; it has none in the target, as after deleting a parent");
            checked.note("sessions", Some(id), Some("parent_session_id"), reason);
        },
    )?;
    each(
        transaction,
        "SELECT u.session_id, u.model FROM session_model_usage u LEFT JOIN sessions s ON s.id = u.session_id \
         WHERE s.id IS NULL ORDER BY u.session_id",
        &mut |id, model| {
            let reason = "its session does not exist; it is not carried over, as opening a store for writing drops it";
            checked.note("session_model_usage", Some(format!("{id}, {model}")), None, reason);
        },
    )?;
    if bindings.is_there(transaction)? {
        each(
            transaction,
            "SELECT b.chat_id, b.thread_id FROM telegram_dm_topic_bindings b LEFT JOIN sessions s ON s.id = b.session_id \
             WHERE s.id IS NULL ORDER BY b.chat_id, b.thread_id",
            &mut |chat, thread| {
                let reason = "its session does not exist; it is not carried over, as it binds nothing";
                checked.note(bindings.name, Some(format!("{chat}, {thread}")), None, reason);
            },
        )?;
    }
    Ok(())
}

/// Rows without a key are not found by it; files admit them.
fn keys(transaction: &mut dyn Transaction, table: &Table, checked: &mut Checked) -> Result<()> {
    for place in &table.key {
        let name = &table.columns[*place].name;
        let sql = format!("SELECT COUNT(*) FROM {} WHERE {name} IS NULL", table.name);
        let rows = transaction.scalar(&sql, &[])?.as_i64().unwrap_or_default();
        if rows > 0 {
            let reason =
                format!("{rows} row(s) have no value here, which is a part of the key; give them one, or delete them");
            checked.problem(table.name, None, Some(name), reason);
        }
    }
    Ok(())
}

/// Values that the target's columns cannot hold, and texts that are none.
fn values(transaction: &mut dyn Transaction, table: &'static Table, typed: bool, checked: &mut Checked) -> Result<()> {
    let mut pages = Pages::of(table);
    loop {
        let rows = match pages.next(transaction) {
            Ok(rows) => rows,
            // No fault of the file itself, or reading would not go on.
            Err(error @ Error::Engine { .. }) => {
                pages = unreadable(transaction, table, &pages, error, checked)?;
                continue;
            }
            Err(error) => return Err(error),
        };
        if rows.is_empty() {
            return Ok(());
        }
        for row in &rows {
            for (column, value) in table.columns.iter().zip(row) {
                if let Some(reason) = unfit(column, value, typed) {
                    checked.problem(table.name, Some(table.key_text(row)), Some(&column.name), reason);
                }
            }
        }
    }
}

fn unfit(column: &Column, value: &Value, typed: bool) -> Option<&'static str> {
    match (column.kind, value) {
        (_, Value::Null) => column.required.then_some("NULL, where there must be a value"),
        (Kind::Text, Value::Text(_) | Value::Blob(_)) | (Kind::Integer, Value::Integer(_)) => None,
        (Kind::Real, Value::Real(_)) => None,
        _ if !typed => None,
        (Kind::Text, _) => Some("a number, where the server holds text"),
        (Kind::Integer, _) => Some("no whole number, and the server holds nothing else here"),
        (Kind::Real, _) => Some("no number, and the server holds nothing else here"),
    }
}

/// Finds the rows behind a position that cannot be read, and goes on behind the first of them.
fn unreadable<'a>(
    transaction: &mut dyn Transaction,
    table: &'static Table,
    pages: &Pages<'a>,
    error: Error,
    checked: &mut Checked,
) -> Result<Pages<'a>> {
    let keys = table.key_list();
    let mut position = pages.position().map(<[Value]>::to_vec);
    loop {
        let condition = position.as_ref().map_or_else(String::new, |position| {
            let given: Vec<String> = (1..=position.len()).map(|number| format!("?{number}")).collect();
            format!(" WHERE ({keys}) > ({})", given.join(", "))
        });
        let after = position.clone().unwrap_or_default();
        let mut next: Option<Row> = None;
        let sql = format!("SELECT {keys} FROM {}{condition} ORDER BY {keys} LIMIT 1", table.name);
        let found = transaction.query(&sql, &after, &mut |row| {
            next = Some(row);
            Ok(())
        });
        if let Err(error) = found {
            let reason = format!("the key of the row behind this one cannot be read: {error}; repair it first");
            let key = position.as_ref().map(|key| format!("{key:?}"));
            checked.problem(table.name, key, None, reason);
            return Ok(Pages::nothing(table));
        }
        let Some(key) = next else { return Err(error) };
        let mut bad = false;
        for (column, readable) in table.columns.iter().zip(table.readable_columns(transaction)?) {
            let sql = format!("SELECT {readable} FROM {}{condition} ORDER BY {keys} LIMIT 1", table.name);
            if let Err(error) = transaction.query(&sql, &after, &mut |_| Ok(())) {
                bad = true;
                let mut full = vec![Value::Null; table.columns.len()];
                table.key.iter().zip(&key).for_each(|(place, value)| full[*place] = value.clone());
                let reason = format!("{error}; it has to be repaired in the source first");
                checked.problem(table.name, Some(table.key_text(&full)), Some(&column.name), reason);
            }
        }
        position = Some(key.clone());
        if bad {
            return Ok(Pages::of(table).after(key));
        }
    }
}
