//! The full-text indexes as SQLite's FTS5 serves them: the only place that knows MATCH, rank and snippets.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};

use super::index_state::IndexState;
use crate::error::{Error, Result};
use crate::search::hit::SearchHit;
use crate::search::index::{Found, Index, Search, TextIndex};
use crate::search::rows::{BEFORE, EVERYWHERE, EXCERPT, ID, Page, Rows, TEXT};
use crate::search::text::{Condition, is_operator, words};
use crate::search::upkeep::Backfill;
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::Value;

/// FTS5's tables beside the messages, and what is known of them.
pub(super) struct Fts5(pub(super) Arc<IndexState>);

impl TextIndex for Fts5 {
    fn find(&self, transaction: &mut dyn Transaction, search: &Search, rows: &Rows<'_>, page: Page) -> Result<Found> {
        let snippet = |value: Value| match value {
            Value::Blob(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            _ => None,
        };
        let damaged = || {
            // The index of pairs is other programs' too: it is left to those who call for a rebuild.
            if search.index != Index::Pairs {
                self.0.note_damage();
            }
            Ok(Found::Damaged)
        };
        match self.page(transaction, search, rows, page) {
            Ok(hits) if self.has_lost_rows(transaction, search.index, hits.is_empty())? => damaged(),
            Ok(hits) => Ok(Found::Hits(hits.into_iter().map(|row| SearchHit::read(row, snippet)).collect())),
            Err(error) if is_rejection(&error) => Ok(Found::Unable),
            Err(error) if is_damage(&error) => damaged(),
            Err(error) => Err(error),
        }
    }

    fn count(&self, transaction: &mut dyn Transaction, search: &Search, rows: &Rows<'_>) -> Result<i64> {
        let mut statement = Statement::default();
        statement.push("SELECT COUNT(*)");
        push_hits(&mut statement, search, rows);
        Ok(transaction.scalar(&statement.sql, &statement.parameters)?.as_i64().unwrap_or_default())
    }

    fn unindexed(&self, transaction: &mut dyn Transaction) -> Result<Option<(i64, i64)>> {
        let rebuilding = transaction.rebuilding(Backfill::Main)?;
        Ok(rebuilding.filter(|status| status.indexed < status.total).map(|status| (status.indexed, status.total)))
    }

    /// What a scan is for here is what no index has.
    fn narrow(&self, _: &Condition, _: &mut Statement) -> Result<Vec<String>> {
        Ok(vec![EVERYWHERE.to_owned()])
    }
}

pub(super) fn table(index: Index) -> &'static str {
    match index {
        Index::Words => "messages_fts",
        Index::Trigrams => "messages_fts_trigram",
        Index::Pairs => "messages_fts_cjk",
    }
}

impl Fts5 {
    /// Whether rows are missing in the index. It is looked into once, and whenever there are no hits, since what is
    /// overwritten with zeros does not fail.
    fn has_lost_rows(&self, transaction: &mut dyn Transaction, index: Index, no_hits: bool) -> Result<bool> {
        if !no_hits && self.0.is_compared(index) {
            return Ok(false);
        }
        let lost = has_lost_rows(transaction, index)?;
        if !lost {
            self.0.note_compared(index);
        }
        Ok(lost)
    }

    /// The rows on a page of the hits, with a snippet for text.
    fn page(
        &self,
        transaction: &mut dyn Transaction,
        search: &Search,
        rows: &Rows<'_>,
        page: Page,
    ) -> Result<Vec<Vec<Value>>> {
        let mut statement = Statement::default();
        let table = table(search.index);
        let by_time = rows.order_by_time();
        // Sorted by time, a snippet would be made for every hit just to sort it.
        let text = if by_time.is_some() { "NULL".to_owned() } else { snippet(&mut statement, search) };
        statement.push(&format!("SELECT {}", rows.columns(&text)));
        push_hits(&mut statement, search, rows);
        statement.push(&match by_time {
            Some(order) => format!(" ORDER BY m.timestamp {order}, {table}.rank, m.id"),
            None if search.newest => format!(" ORDER BY {table}.rowid DESC"),
            // By this alone FTS5 sorts by itself, equal ranks by id.
            None => format!(" ORDER BY {table}.rank"),
        });
        page.push(&mut statement);
        let mut hits = Vec::new();
        transaction.query(&statement.sql, &statement.parameters, &mut |values| {
            hits.push(values);
            Ok(())
        })?;
        if by_time.is_some() {
            let mut of_one = Statement::default();
            let text = snippet(&mut of_one, search);
            let expression = of_one.bind(search.expression.to_fts5());
            of_one.push(&format!(
                "SELECT {text} FROM {table} JOIN messages m ON m.id = {table}.rowid \
                 WHERE {table} MATCH {expression} AND {table}.rowid = "
            ));
            let id = of_one.parameters.len();
            of_one.bind(Value::Null);
            of_one.push(&format!("?{}", id + 1));
            for hit in &mut hits {
                of_one.parameters[id] = hit[ID].clone();
                hit[TEXT] = transaction.scalar(&of_one.sql, &of_one.parameters)?;
            }
        }
        Ok(hits)
    }
}

/// FTS5's snippet; of a very long message the text around the first word of the search, since the time FTS5 takes
/// grows with the square of the matches in a row (a third of a second at 64 KB of one word, over a minute at 1 MB).
/// As bytes: an index that has lost track of offsets can cut a character in two.
fn snippet(statement: &mut Statement, search: &Search) -> String {
    let expression = search.expression.to_fts5();
    let first = words(&expression)
        .filter(|word| !is_operator(word))
        .map(|word| word.trim_matches(|character: char| !character.is_alphanumeric()).to_ascii_lowercase())
        .find(|word| !word.is_empty());
    let first = statement.bind(first.unwrap_or_default());
    format!(
        "CAST(CASE WHEN OCTET_LENGTH(COALESCE(m.content, '')) + OCTET_LENGTH(COALESCE(m.tool_calls, '')) > {LONG} \
             THEN SUBSTR(m.content, MAX(1, INSTR(LOWER(m.content), {first}) - {BEFORE}), {EXCERPT}) \
             ELSE snippet({}, -1, '>>>', '<<<', '...', 40) END AS BLOB)",
        table(search.index)
    )
}

/// The index leads and messages and sessions follow by their keys, so that hits come in the index's order.
fn push_hits(statement: &mut Statement, search: &Search, rows: &Rows<'_>) {
    let table = table(search.index);
    let expression = statement.bind(search.expression.to_fts5());
    statement.push(&format!(
        " FROM {table} JOIN messages m ON m.id = {table}.rowid JOIN sessions s ON s.id = m.session_id \
             WHERE {table} MATCH {expression}"
    ));
    for text in &search.holding {
        let held = rows.holds(statement, text);
        statement.push(&format!(" AND {held}"));
    }
    rows.push_filters(statement);
}

/// From how many bytes on a message is too long for FTS5's snippet.
const LONG: usize = 32 * 1024;

/// Whether a search failed because FTS5 could not make sense of the expression, or has no such index. Other errors of
/// this kind cannot occur in the statements here.
fn is_rejection(error: &Error) -> bool {
    matches!(error, Error::Engine { .. }) && error.sqlite_code() == 1
}

/// `SQLITE_CORRUPT_VTAB`: the damage is in the index, the transcript is well.
pub(super) const DAMAGED_INDEX: i32 = 267;

/// Whether a search failed because the index is damaged.
fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupt { code: DAMAGED_INDEX, .. })
}

/// Whether the index has fewer rows than it keeps the sizes of. An index whose blocks were overwritten with zeros does
/// not fail: to FTS5 it is empty, and fills up again with what is written from then on.
pub(super) fn has_lost_rows(transaction: &mut dyn Transaction, index: Index) -> Result<bool> {
    let table = table(index);
    // The first record holds, before the totals of its columns, the number of rows.
    let totals = transaction.scalar(&format!("SELECT block FROM {table}_data WHERE id = 1"), &[])?;
    let kept = transaction.scalar(&format!("SELECT COUNT(*) FROM {table}_docsize"), &[])?;
    let rows = match &totals {
        Value::Blob(record) => varint(record),
        _ => 0,
    };
    Ok(kept.as_i64().is_some_and(|kept| rows < kept))
}

/// The same of a table by its name, on a connection that only looks.
pub(super) fn lost_rows(connection: &Connection, table: &str) -> rusqlite::Result<bool> {
    let totals = connection
        .query_row(&format!("SELECT block FROM {table}_data WHERE id = 1"), [], |row| row.get::<_, Vec<u8>>(0))
        .optional()?;
    let kept: i64 = connection.query_row(&format!("SELECT COUNT(*) FROM {table}_docsize"), [], |row| row.get(0))?;
    Ok(totals.map_or(0, |record| varint(&record)) < kept)
}

/// The integer that a record begins with: seven bits a byte, the highest bit set on all but the last.
fn varint(record: &[u8]) -> i64 {
    let mut number = 0;
    for byte in record.iter().take(8) {
        number = number << 7 | i64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_records_are_read() {
        for (record, number) in [(&[][..], 0), (&[5, 9], 5), (&[0x82, 0x2c, 1], 300)] {
            assert_eq!(varint(record), number);
        }
    }
}
