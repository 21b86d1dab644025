//! What an operation sees of a backend: one transaction in which statements run.

use std::time::Instant;

use uuid::Uuid;

use crate::error::Result;
use crate::search::index::{Indexes, TextIndex};
use crate::search::snippet::Texts;
use crate::search::upkeep::Upkeep;
use crate::value::{Columns, Record, Value};

/// The tables of Telegram topics.
pub(crate) const TOPIC_MODE: &str = "telegram_dm_topic_mode";
pub(crate) const TOPIC_BINDINGS: &str = "telegram_dm_topic_bindings";

/// A transaction on some backend. Operations hold their SQL once, in the subset that SQLite and PostgreSQL share, with
/// parameters written `?1`, `?2`, …; a backend whose placeholders differ translates them.
pub(crate) trait Transaction: Bulk + Upkeep {
    /// Runs one statement and returns how many rows it changed.
    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<usize>;

    /// Runs one query and hands each row's values to `row`, in order; returns the names of the columns.
    fn query(
        &mut self,
        sql: &str,
        parameters: &[Value],
        row: &mut dyn FnMut(Vec<Value>) -> Result<()>,
    ) -> Result<Columns>;

    /// Sends one statement without waiting for it; [`receive`](Transaction::receive) gives its rows. What is sent runs
    /// in the order of sending, before anything that is executed or queried later. An engine in the same process runs
    /// it at once; to a server several statements travel together.
    fn send(&mut self, sql: &str, parameters: &[Value]) -> Result<Sent>;

    /// The rows of a statement that was sent.
    fn receive(&mut self, sent: Sent) -> Result<Vec<Vec<Value>>>;

    /// Whether the store has this table. Some are made only when they are first needed, and files of older releases that
    /// are only looked at lack others.
    fn has_table(&mut self, name: &str) -> Result<bool>;

    /// Whether the table lacks something and is only seen complete: in a file of an older release that is looked at.
    fn is_completed(&mut self, _table: &str) -> Result<bool> {
        Ok(false)
    }

    /// Makes the tables of Telegram topics where they are missing. `mend` brings those of older releases to the present
    /// shape, along with what an attempt of theirs left that was cut short.
    fn make_topic_tables(&mut self, mend: bool) -> Result<()>;

    /// Gives messages the column for keys of callers if they lack it.
    fn make_client_keys(&mut self) -> Result<()>;

    /// Makes the table of what is known of leases beyond their holders' names.
    fn make_lease_table(&mut self) -> Result<()>;

    /// Makes the table of the spooled writes that are stored, where it is missing.
    fn make_spool_notes(&mut self) -> Result<()>;

    /// Whether the write with this id, of an attempt whose end was not seen, is known to be stored. Waits while the
    /// engine is still at it. Of an engine that notes nothing of its writes it is not known.
    fn was_stored(&mut self, write: Uuid) -> Result<bool>;

    /// Makes the message that was inserted last findable, if nothing in the store itself sees to that.
    fn index_message(&mut self, content: &Value, tool_name: &Value, tool_calls: &Value) -> Result<()>;

    /// The full-text index of the engine.
    fn text_index(&self) -> Box<dyn TextIndex>;

    /// Which full-text indexes serve at this moment.
    fn indexes(&mut self) -> Result<Indexes>;

    /// Runs `work`, but not beyond `deadline`. `false` if that came first; what the work has gathered by then stands, and
    /// the transaction goes on.
    fn until(&mut self, deadline: Instant, work: &mut dyn FnMut(&mut dyn Transaction) -> Result<()>) -> Result<bool>;
}

/// What copying whole stores asks of an engine beyond the statements that all share.
pub(crate) trait Bulk {
    /// The highest id that a message of the store ever had, also one that is gone; 0 if there was none.
    fn highest_message_id(&mut self) -> Result<i64>;

    /// Has the next message get an id above this one. What is higher already stays.
    fn raise_message_ids(&mut self, upto: i64) -> Result<()>;

    /// Puts messages in by a faster way than statements, if the engine has one, and makes them findable by their texts; says
    /// whether it did. There must be nothing under their ids.
    fn copy_messages(&mut self, columns: &[&str], rows: &[Vec<&Value>], texts: &[(i64, Texts<'_>)]) -> Result<bool>;

    /// Makes messages findable that were inserted under ids of the caller's, if nothing in the store itself sees to that.
    fn index_messages(&mut self, messages: &[(i64, Texts<'_>)]) -> Result<()>;

    /// Leaves messages up to this id, of a store that has none yet, out of the index when they are inserted, if the
    /// engine indexes faster afterwards.
    fn defer_index(&mut self, upto: i64) -> Result<()>;

    /// Indexes a bounded part of what was left out: how far it is now, of how far. `None` if nothing is left to do.
    fn index_deferred(&mut self) -> Result<Option<(i64, i64)>>;

    /// Has the engine look at what came in, so that it plans by it.
    fn settle(&mut self) -> Result<()>;
}

/// A statement that was sent.
pub(crate) enum Sent {
    /// It has run, and these are its rows.
    Done(Vec<Vec<Value>>),
    /// It is on its way under this number.
    #[cfg(feature = "postgres")]
    Under(u64),
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

#[cfg(test)]
mod tests;
