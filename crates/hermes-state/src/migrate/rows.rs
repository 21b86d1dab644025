//! Rows as both engines give them: read in pages, looked up by key, and reduced to checksums that do not depend on the
//! engine.
//!
//! The engines sort some texts differently, so nothing here relies on both giving rows in the same order: rows are
//! looked up by key, and the checksum of a table is a sum over its rows.

use sha2::{Digest, Sha256};

use super::tables::{META, Table, is_of_engine, tables};
use crate::error::{Error, Result};
use crate::statement::{Statement, groups, tuples};
use crate::transaction::Transaction;
use crate::value::Value;
pub(super) use crate::value::identity;

pub(super) type Row = Vec<Value>;

/// How much one page holds. Several are in memory at a time, and each for a while more than once.
const PAGE_BYTES: usize = 1 << 20;
const PAGE_ROWS: usize = 1024;

/// 128 bits of SHA-256, which every build of every release computes alike; the server's client brings it along anyway.
/// The column at `without` is left out.
pub(super) fn digest(row: &[Value], without: Option<usize>) -> u128 {
    let mut bytes = Vec::with_capacity(row.iter().map(Value::size).sum::<usize>() + 9 * row.len());
    for (place, value) in row.iter().enumerate() {
        if Some(place) != without {
            value.put(&mut bytes);
        }
    }
    let hash = Sha256::digest(&bytes);
    let mut half = [0; 16];
    half.copy_from_slice(&hash[..16]);
    u128::from_le_bytes(half)
}

/// How many rows, and the sum of their digests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Checksum {
    pub(super) rows: u64,
    sum: u128,
}

impl Checksum {
    pub(super) fn add(&mut self, digest: u128) {
        self.rows += 1;
        self.sum = self.sum.wrapping_add(digest);
    }

    pub(super) fn text(&self) -> String {
        format!("{:032x}", self.sum)
    }
}

/// How much of a row's memory is its content.
pub(super) fn row_size(row: &[Value]) -> usize {
    row.iter().map(Value::size).sum()
}

/// Reads a table in pages, in the order of its key.
pub(super) struct Pages<'a> {
    table: &'a Table,
    condition: Option<(String, Value)>,
    after: Option<Vec<Value>>,
    limit: usize,
    done: bool,
}

impl<'a> Pages<'a> {
    pub(super) fn of(table: &'a Table) -> Self {
        Self { table, condition: None, after: None, limit: 64, done: false }
    }

    /// Only the rows with this value in this column.
    pub(super) fn with(mut self, column: &str, value: Value) -> Self {
        self.condition = Some((column.to_owned(), value));
        self
    }

    /// Only the rows behind this key.
    pub(super) fn after(mut self, key: Vec<Value>) -> Self {
        self.after = Some(key);
        self
    }

    /// No rows at all.
    pub(super) fn nothing(table: &'a Table) -> Self {
        Self { done: true, ..Self::of(table) }
    }

    pub(super) fn position(&self) -> Option<&[Value]> {
        self.after.as_deref()
    }

    /// The next page; empty at the end.
    pub(super) fn next(&mut self, transaction: &mut dyn Transaction) -> Result<Vec<Row>> {
        if self.done || !self.table.is_there(transaction)? {
            return Ok(Vec::new());
        }
        let mut statement = Statement::default();
        let columns = self.table.readable_columns(transaction)?.join(", ");
        statement.push(&format!("SELECT {columns} FROM {}", self.table.name));
        let mut conditions = Vec::new();
        if let Some((column, value)) = &self.condition {
            conditions.push(format!("{column} = {}", statement.bind(value.clone())));
        }
        let keys = self.table.key_list();
        if let Some(after) = &self.after {
            let bound = statement.bind_all(after.iter().cloned());
            conditions.push(if after.len() == 1 {
                format!("{keys} > {bound}")
            } else {
                format!("({keys}) > ({bound})")
            });
        }
        if !conditions.is_empty() {
            statement.push(&format!(" WHERE {}", conditions.join(" AND ")));
        }
        let limit = statement.bind(i64::try_from(self.limit).unwrap_or(i64::MAX));
        statement.push(&format!(" ORDER BY {keys} LIMIT {limit}"));
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let mut full = false;
        let outcome = transaction.query(&statement.sql, &statement.parameters, &mut |row| {
            if bytes >= PAGE_BYTES {
                // The only way to have the engine stop; what it has left is read again with the next page.
                full = true;
                return Err(Error::Invalid("the page is full".into()));
            }
            bytes += row_size(&row);
            rows.push(row);
            Ok(())
        });
        if !full {
            outcome?;
            self.done = rows.len() < self.limit;
        }
        if let Some(last) = rows.last() {
            self.after = Some(self.table.key_of(last));
            // The next page is asked for as many rows as will probably fill it.
            self.limit = (PAGE_BYTES / (bytes / rows.len()).max(1)).clamp(1, PAGE_ROWS);
        }
        Ok(rows)
    }
}

/// The rows with these keys; of each only the columns named, behind those of the key.
pub(super) fn lookup(
    transaction: &mut dyn Transaction,
    table: &Table,
    columns: &str,
    keys: &[Vec<Value>],
    row: &mut dyn FnMut(Vec<u8>, Row) -> Result<()>,
) -> Result<()> {
    if !table.is_there(transaction)? {
        return Ok(());
    }
    let width = table.key.len();
    let names = table.key_list();
    for group in groups(keys) {
        let given = if width == 1 {
            (1..=group.len()).map(|number| format!("?{number}")).collect::<Vec<_>>().join(", ")
        } else {
            format!("VALUES {}", tuples(group.len(), width))
        };
        let sql = format!("SELECT {names}, {columns} FROM {} WHERE ({names}) IN ({given})", table.name);
        let parameters: Vec<Value> = group.iter().flatten().cloned().collect();
        transaction.query(&sql, &parameters, &mut |mut values| {
            let rest = values.split_off(width);
            row(identity(&values), rest)
        })?;
    }
    Ok(())
}

/// Counts and checksums of all tables of a store, as of one moment. `seen` is told of every page.
pub(super) fn checksums(transaction: &mut dyn Transaction, seen: &dyn Fn(usize, usize)) -> Result<Vec<Checksum>> {
    let mut sums = Vec::new();
    for (number, table) in tables()?.iter().enumerate() {
        let (mut sum, mut pages) = (Checksum::default(), Pages::of(table));
        loop {
            let rows = pages.next(transaction)?;
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                if number != META || !is_of_engine(row) {
                    sum.add(digest(row, None));
                }
            }
            seen(number, rows.len());
        }
        sums.push(sum);
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_rows_have_different_digests_and_negative_zero_is_zero() {
        let rows: [Row; 6] = [
            vec!["a".into(), "bc".into()],
            vec!["ab".into(), "c".into()],
            vec![Value::Blob(b"a".to_vec()), "bc".into()],
            vec![Value::Null, Value::Integer(0)],
            vec![Value::Null, Value::Real(0.0)],
            vec![Value::Text(String::new()), Value::Integer(0)],
        ];
        for (one, row) in rows.iter().enumerate() {
            for (other, another) in rows.iter().enumerate() {
                assert_eq!(digest(row, None) == digest(another, None), one == other);
            }
        }
        assert_eq!(digest(&[Value::Real(-0.0)], None), digest(&[Value::Real(0.0)], None));
        assert_eq!(digest(&rows[0], Some(0)), digest(&["bc".into()], None));
    }

    #[test]
    fn the_sum_of_digests_never_changes() {
        let mut sum = Checksum::default();
        sum.add(digest(&["s1".into(), Value::Integer(7), Value::Null, Value::Real(1.5)], None));
        sum.add(digest(&[Value::Blob(vec![0, 255])], None));
        assert_eq!((sum.rows, sum.text().len()), (2, 32));
    }
}
