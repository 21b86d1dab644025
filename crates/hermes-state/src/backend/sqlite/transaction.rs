//! The transaction trait over an SQLite connection.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ffi};
use uuid::Uuid;

use super::deadline;
use super::errors::classify;
use super::index_state::IndexState;
use super::schema::{CLIENT_KEYS_SQL, LEASES_SQL, SPOOL_NOTES_SQL, stand_ins, topics};
use super::search::{DAMAGED_INDEX, Fts5};
use crate::error::{Error, Result};
use crate::search::index::{Indexes, TextIndex};
use crate::transaction::{Sent, Transaction};
use crate::value::{Columns, Value};

/// A connection on which a transaction has been begun by whoever made this.
pub(super) struct SqliteTransaction<'a> {
    pub(super) connection: &'a Connection,
    pub(super) path: &'a Path,
    pub(super) state: &'a Arc<IndexState>,
    /// What statements met.
    pub(super) met: &'a Cell<Met>,
}

/// What the statements of a transaction met, the worst of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Met {
    #[default]
    Nothing,
    /// A key that is there already, or a statement that cannot be understood: of the write's own making, or due to an
    /// index that has lost count of its parts, or whose module or tokenizer is not there.
    Suspicion,
    /// A damaged search index.
    Index,
    /// Something damaged, a search index or what the store cannot do without.
    Damage,
}

impl Met {
    /// Notes what an error says.
    pub(super) fn note(met: &Cell<Self>, error: &Error) {
        let found = match error {
            Error::Corrupt { code: DAMAGED_INDEX, .. } => Self::Index,
            Error::Corrupt { .. } => Self::Damage,
            Error::Constraint { code: ffi::SQLITE_CONSTRAINT_PRIMARYKEY, .. }
            | Error::Engine { code: ffi::SQLITE_ERROR, .. } => Self::Suspicion,
            _ => return,
        };
        met.set(met.get().max(found));
    }
}

struct Bound<'a>(&'a Value);

impl rusqlite::ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Integer(number) => ValueRef::Integer(*number),
            Value::Real(number) => ValueRef::Real(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn owned(value: ValueRef<'_>, column: usize) -> rusqlite::Result<Value> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(error) => return Err(rusqlite::Error::Utf8Error(column, error)),
        },
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_owned()),
    })
}

impl SqliteTransaction<'_> {
    /// The error of this crate for one of a statement here.
    pub(super) fn failed(&self, error: &rusqlite::Error) -> Error {
        let error = classify(self.path, error);
        Met::note(self.met, &error);
        error
    }

    fn rows(
        &self,
        sql: &str,
        parameters: &[Value],
        each: &mut dyn FnMut(Vec<Value>) -> Result<()>,
    ) -> rusqlite::Result<Result<Columns>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(parameters.iter().map(Bound)))?;
        let mut width = None;
        while let Some(row) = rows.next()? {
            // Asked after the first step: only then a statement has noticed that the schema changed under it.
            let width = *width.get_or_insert_with(|| row.as_ref().column_count());
            let mut values = Vec::with_capacity(width);
            for column in 0..width {
                values.push(owned(row.get_ref(column)?, column)?);
            }
            if let Err(error) = each(values) {
                return Ok(Err(error));
            }
        }
        drop(rows);
        Ok(Ok(Arc::from_iter(statement.column_names().map(Box::from))))
    }
}

impl Transaction for SqliteTransaction<'_> {
    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<usize> {
        let mut statement = self.connection.prepare_cached(sql).map_err(|error| self.failed(&error))?;
        statement.execute(rusqlite::params_from_iter(parameters.iter().map(Bound))).map_err(|error| self.failed(&error))
    }

    fn query(
        &mut self,
        sql: &str,
        parameters: &[Value],
        row: &mut dyn FnMut(Vec<Value>) -> Result<()>,
    ) -> Result<Columns> {
        self.rows(sql, parameters, row).map_err(|error| match error {
            rusqlite::Error::Utf8Error(column, _) => {
                Error::Engine { message: format!("column {column} holds text that is not valid UTF-8"), code: 1 }
            }
            error => self.failed(&error),
        })?
    }

    fn send(&mut self, sql: &str, parameters: &[Value]) -> Result<Sent> {
        let mut rows = Vec::new();
        self.query(sql, parameters, &mut |values| {
            rows.push(values);
            Ok(())
        })?;
        Ok(Sent::Done(rows))
    }

    fn receive(&mut self, sent: Sent) -> Result<Vec<Vec<Value>>> {
        match sent {
            Sent::Done(rows) => Ok(rows),
            #[cfg(feature = "postgres")]
            Sent::Under(_) => Err(Error::Invalid("a statement was sent to another engine".into())),
        }
    }

    fn has_table(&mut self, name: &str) -> Result<bool> {
        let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
        let transaction: &mut dyn Transaction = self;
        Ok(!transaction.scalar(sql, &[name.into()])?.is_null())
    }

    fn is_completed(&mut self, table: &str) -> Result<bool> {
        stand_ins::stand_for(self.connection, table).map_err(|error| self.failed(&error))
    }

    fn make_topic_tables(&mut self, mend: bool) -> Result<()> {
        topics::ensure(self.connection, mend).map_err(|error| classify(self.path, &error))
    }

    fn make_client_keys(&mut self) -> Result<()> {
        let transaction: &mut dyn Transaction = self;
        let sql = "SELECT 1 FROM pragma_table_info('messages') WHERE name = 'client_key'";
        if !transaction.scalar(sql, &[])?.is_null() {
            return Ok(());
        }
        self.connection.execute_batch(CLIENT_KEYS_SQL).map_err(|error| classify(self.path, &error))
    }

    fn make_lease_table(&mut self) -> Result<()> {
        self.connection.execute_batch(LEASES_SQL).map_err(|error| classify(self.path, &error))
    }

    fn make_spool_notes(&mut self) -> Result<()> {
        self.connection.execute_batch(SPOOL_NOTES_SQL).map_err(|error| self.failed(&error))
    }

    /// A commit that failed may be in the log of a file all the same, which only its rows can tell.
    fn was_stored(&mut self, _: Uuid) -> Result<bool> {
        Ok(false)
    }

    /// Triggers of the file see to it, for older releases too.
    fn index_message(&mut self, _: &Value, _: &Value, _: &Value) -> Result<()> {
        Ok(())
    }

    fn text_index(&self) -> Box<dyn TextIndex> {
        Box::new(Fts5(self.state.clone()))
    }

    fn indexes(&mut self) -> Result<Indexes> {
        self.state.indexes(self.connection).map_err(|error| self.failed(&error))
    }

    fn until(&mut self, stop: Instant, work: &mut dyn FnMut(&mut dyn Transaction) -> Result<()>) -> Result<bool> {
        if Instant::now() >= stop {
            return Ok(false);
        }
        let outcome = deadline::until(stop, || work(self));
        match outcome {
            Err(Error::Engine { code: ffi::SQLITE_INTERRUPT, .. }) => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }
}
