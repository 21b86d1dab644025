//! A statement under construction.

use crate::value::Value;

/// A statement under construction: its text and the parameters it has so far.
#[derive(Default)]
pub(crate) struct Statement {
    pub(crate) sql: String,
    pub(crate) parameters: Vec<Value>,
}

impl Statement {
    /// Adds text.
    pub(crate) fn push(&mut self, sql: &str) {
        self.sql.push_str(sql);
    }

    /// Adds a parameter and gives its placeholder.
    pub(crate) fn bind(&mut self, value: impl Into<Value>) -> String {
        self.parameters.push(value.into());
        format!("?{}", self.parameters.len())
    }

    /// Adds the part of the rows to give: at most `limit` (negative: all) behind the first `offset` (negative: none).
    pub(crate) fn push_page(&mut self, limit: i64, offset: i64) {
        let limit = if limit < 0 { i64::MAX } else { limit };
        let (limit, offset) = (self.bind_count(limit), self.bind_count(offset.max(0)));
        self.push(&format!(" LIMIT {limit} OFFSET {offset}"));
    }

    /// Adds how many rows to give as a parameter, and gives what to write for it.
    ///
    /// SQLite plans by the number that a bare parameter there has: anew at each run, which costs more than many a page,
    /// and of few rows it thinks that they are better picked from all than read in the order of an index.
    pub(crate) fn bind_count(&mut self, count: i64) -> String {
        format!("CAST({} AS BIGINT)", self.bind(count))
    }

    /// Adds a list of parameters, each with its placeholder, separated by commas.
    pub(crate) fn bind_all(&mut self, values: impl IntoIterator<Item = impl Into<Value>>) -> String {
        values.into_iter().map(|value| self.bind(value)).collect::<Vec<_>>().join(", ")
    }
}

/// The placeholders of several rows of values: `(?1, ?2), (?3, ?4)`.
pub(crate) fn tuples(rows: usize, width: usize) -> String {
    let tuple = |row: usize| {
        let numbers: Vec<String> = (1..=width).map(|column| format!("?{}", row * width + column)).collect();
        format!("({})", numbers.join(", "))
    };
    (0..rows).map(tuple).collect::<Vec<_>>().join(", ")
}

/// Cuts rows into groups of few different sizes, so that the statements for them are few and stay prepared.
pub(crate) fn groups<T>(mut rows: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let size = [64, 8, 1].into_iter().find(|size| *size <= rows.len())?;
        let (group, rest) = rows.split_at(size);
        rows = rest;
        Some(group)
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::{Connection, StatementStatus, params_from_iter};

    use super::*;

    /// How often SQLite prepared a statement anew in three runs, and how many rows of the table it looked at without an
    /// index.
    fn cost(connection: &Connection, sql: &str, parameters: &[i64]) -> (i32, i32) {
        let mut statement = connection.prepare(sql).expect("prepares");
        for _ in 0..3 {
            let mut rows = statement.query(params_from_iter(parameters)).expect("runs");
            assert!(rows.next().expect("steps").is_some());
        }
        (statement.get_status(StatementStatus::RePrepare), statement.get_status(StatementStatus::FullscanStep))
    }

    #[test]
    fn a_page_is_prepared_once_and_read_along_the_index() {
        let connection = Connection::open_in_memory().expect("opens");
        connection
            .execute_batch(
                "CREATE TABLE t (a REAL, b TEXT); CREATE INDEX t_a ON t (a DESC);
                 WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
                 INSERT INTO t SELECT i, 'text' FROM n",
            )
            .expect("fills");
        let select = "SELECT * FROM t ORDER BY a DESC";
        for limit in [1, 5, 50, -1] {
            let mut statement = Statement::default();
            statement.push(select);
            statement.push_page(limit, 0);
            let parameters: Vec<i64> = statement.parameters.iter().filter_map(Value::as_i64).collect();
            let (prepared, looked_at) = cost(&connection, &statement.sql, &parameters);
            assert_eq!(prepared, 0, "{limit}");
            assert!(looked_at < 10, "{limit}: {looked_at}");
        }
        // What a bare parameter costs; without this difference the words around it are not needed.
        assert!(cost(&connection, &format!("{select} LIMIT ?1"), &[1]).0 > 0);
    }
}
