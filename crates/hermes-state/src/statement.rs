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
        let (limit, offset) = (self.bind(limit), self.bind(offset.max(0)));
        self.push(&format!(" LIMIT {limit} OFFSET {offset}"));
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
