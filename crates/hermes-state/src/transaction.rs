//! What an operation sees of a backend: one transaction in which statements run.

use crate::error::Result;
use crate::value::{Columns, Record, Value};

/// A transaction on some backend. Operations hold their SQL once, in the subset that SQLite and PostgreSQL share, with
/// parameters written `?1`, `?2`, …; a backend whose placeholders differ translates them.
pub(crate) trait Transaction {
    /// Runs one statement and returns how many rows it changed.
    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<usize>;

    /// Runs one query and hands each row's values to `row`, in order; returns the names of the columns.
    fn query(
        &mut self,
        sql: &str,
        parameters: &[Value],
        row: &mut dyn FnMut(Vec<Value>) -> Result<()>,
    ) -> Result<Columns>;
}

impl dyn Transaction + '_ {
    /// All rows of a query as records.
    pub(crate) fn records(&mut self, sql: &str, parameters: &[Value]) -> Result<Vec<Record>> {
        let mut rows = Vec::new();
        let columns = self.query(sql, parameters, &mut |values| {
            rows.push(values);
            Ok(())
        })?;
        Ok(rows.into_iter().map(|values| Record::new(columns.clone(), values)).collect())
    }

    /// The first row of a query.
    pub(crate) fn first(&mut self, sql: &str, parameters: &[Value]) -> Result<Option<Record>> {
        Ok(self.records(sql, parameters)?.into_iter().next())
    }

    /// The first column of the first row; NULL if there is no row.
    pub(crate) fn scalar(&mut self, sql: &str, parameters: &[Value]) -> Result<Value> {
        let mut found = None;
        self.query(sql, parameters, &mut |values| {
            if found.is_none() {
                found = values.into_iter().next();
            }
            Ok(())
        })?;
        Ok(found.unwrap_or(Value::Null))
    }
}
