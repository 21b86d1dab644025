//! Reads the source as of one moment, on a thread of its own, and hands it over page by page.

use std::collections::HashSet;
use std::sync::mpsc::SyncSender;

use super::rows::{Pages, Row};
use super::tables::{BINDINGS, META, SESSIONS, USAGE, is_of_engine, tables};
use crate::error::{Error, Result};
use crate::transaction::Transaction;
use crate::value::Value;

/// What the reading thread says.
pub(super) enum Told {
    /// A reading begins; also once more, from the beginning, if the connection to the source broke.
    Begin {
        /// The highest id that a message of the source ever had.
        highest: i64,
    },
    Rows {
        table: usize,
        rows: Vec<Row>,
    },
    End {
        table: usize,
    },
}

/// Links of the source that lead nowhere. Releases that did not enforce them left some.
pub(super) struct Loose {
    /// Sessions that are named as parents and do not exist: such a link becomes NULL, as deleting a parent makes it.
    parents: HashSet<String>,
    /// Sessions that usage is kept of and that do not exist: that usage stays behind, as opening for writing drops it.
    usage: HashSet<String>,
    /// Sessions that topics are bound to and that do not exist: such a binding binds nothing and stays behind.
    bound: HashSet<String>,
}

impl Loose {
    pub(super) fn find(transaction: &mut dyn Transaction) -> Result<Self> {
        let ids = |transaction: &mut dyn Transaction, sql: &str| -> Result<HashSet<String>> {
            let mut found = HashSet::new();
            transaction.query(sql, &[], &mut |row| {
                found.extend(row.first().and_then(Value::as_str).map(str::to_owned));
                Ok(())
            })?;
            Ok(found)
        };
        let bound = if tables()?[BINDINGS].is_there(transaction)? {
            ids(
                transaction,
                "SELECT b.session_id FROM telegram_dm_topic_bindings b \
                 LEFT JOIN sessions s ON s.id = b.session_id WHERE s.id IS NULL",
            )?
        } else {
            HashSet::new()
        };
        Ok(Self {
            bound,
            parents: ids(
                transaction,
                "SELECT DISTINCT c.parent_session_id FROM sessions c \
                          LEFT JOIN sessions p ON p.id = c.parent_session_id \
                          WHERE c.parent_session_id IS NOT NULL AND p.id IS NULL",
            )?,
            usage: ids(
                transaction,
                "SELECT DISTINCT u.session_id FROM session_model_usage u \
                        LEFT JOIN sessions s ON s.id = u.session_id WHERE s.id IS NULL",
            )?,
        })
    }

    /// The row as it is copied; `None` if it stays behind.
    pub(super) fn mend(&self, table: usize, mut row: Row) -> Result<Option<Row>> {
        match table {
            SESSIONS => {
                if let Some(place) = tables()?[SESSIONS].place("parent_session_id")
                    && row[place].as_str().is_some_and(|parent| self.parents.contains(parent))
                {
                    row[place] = Value::Null;
                }
            }
            USAGE if row[0].as_str().is_some_and(|session| self.usage.contains(session)) => return Ok(None),
            META if is_of_engine(&row) => return Ok(None),
            BINDINGS => {
                if let Some(place) = tables()?[BINDINGS].place("session_id")
                    && row[place].as_str().is_some_and(|session| self.bound.contains(session))
                {
                    return Ok(None);
                }
            }
            _ => {}
        }
        Ok(Some(row))
    }
}

/// Reads all tables and tells of them.
pub(super) fn tell(transaction: &mut dyn Transaction, listener: &SyncSender<Told>) -> Result<()> {
    let say = |told| listener.send(told).map_err(|_| Error::Invalid("nobody listens any more".into()));
    let loose = Loose::find(transaction)?;
    say(Told::Begin { highest: transaction.highest_message_id()? })?;
    for (table, known) in tables()?.iter().enumerate() {
        let mut pages = Pages::of(known);
        loop {
            let page = pages.next(transaction)?;
            if page.is_empty() {
                break;
            }
            let rows = page.into_iter().filter_map(|row| loose.mend(table, row).transpose()).collect::<Result<_>>()?;
            say(Told::Rows { table, rows })?;
        }
        say(Told::End { table })?;
    }
    Ok(())
}
