//! The transaction trait over an SQLite connection.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::types::{ToSqlOutput, ValueRef};

use super::errors::classify;
use super::search::Fts5;
use crate::error::{Error, Result};
use crate::search::index::TextIndex;
use crate::transaction::{Sent, Transaction};
use crate::value::{Columns, Value};

/// A connection on which a transaction has been begun by whoever made this.
pub(super) struct SqliteTransaction<'a> {
    pub(super) connection: &'a Connection,
    pub(super) path: &'a Path,
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
        let mut statement = self.connection.prepare_cached(sql).map_err(|error| classify(self.path, &error))?;
        statement
            .execute(rusqlite::params_from_iter(parameters.iter().map(Bound)))
            .map_err(|error| classify(self.path, &error))
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
            error => classify(self.path, &error),
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

    /// Triggers of the file see to it, for older releases too.
    fn index_message(&mut self, _: &Value, _: &Value, _: &Value) -> Result<()> {
        Ok(())
    }

    fn text_index(&self) -> &'static dyn TextIndex {
        &Fts5
    }
}
