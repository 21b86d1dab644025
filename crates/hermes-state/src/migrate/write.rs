//! The writes of a migration as values, each a bounded part, so that nobody else is held up for long.

use serde::{Deserialize, Serialize};

use super::rows::Row;
use super::tables::{BINDINGS, MARKER, MESSAGES, SESSIONS, Table, USAGE, is_of_engine, tables};
use super::trouble::MigrationTrouble;
use crate::backend::Operation;
use crate::error::{Error, Result};
use crate::op::{Promise, Write};
use crate::search::snippet::Texts;
use crate::statement::{groups, tuples};
use crate::transaction::{Sent, Transaction};
use crate::value::Value;

/// What a target says about a migration into it that has not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Marker {
    /// Where it comes from: a path, or a URL without its password.
    pub(super) source: String,
    pub(super) merge: bool,
    /// The highest id that a message of the source had had when it began: whoever else writes gets higher ones.
    #[serde(default)]
    pub(super) highest: i64,
    /// When merging: the session that is being copied, and up to which of its ids in the source it is.
    #[serde(default)]
    pub(super) session: Option<(String, i64)>,
}

impl Marker {
    /// The marker of a store, if it has one.
    pub(super) fn read(transaction: &mut dyn Transaction) -> Result<Option<Self>> {
        let found = transaction.scalar("SELECT value FROM state_meta WHERE key = ?1", &[MARKER.into()])?;
        found
            .as_str()
            .map(|text| serde_json::from_str(text).map_err(|error| Error::Invalid(error.to_string())))
            .transpose()
    }

    pub(super) fn store(&self, transaction: &mut dyn Transaction) -> Result<Sent> {
        let text = serde_json::to_string(self).map_err(|error| Error::Invalid(error.to_string()))?;
        transaction.send(
            "INSERT INTO state_meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            &[MARKER.into(), text.into()],
        )
    }
}

/// The first table with rows, if the store is not empty.
pub(super) fn occupied(transaction: &mut dyn Transaction) -> Result<Option<&'static str>> {
    for table in tables()? {
        if !table.is_there(transaction)? {
            continue;
        }
        let mut found = false;
        // The engine's own rows are few; any other one is enough.
        let limit = if table.name == "state_meta" { "" } else { " LIMIT 1" };
        let sql = format!("SELECT {} FROM {}{limit}", table.key_list(), table.name);
        transaction.query(&sql, &[], &mut |row| {
            found |= table.name != "state_meta" || !is_of_engine(&row);
            Ok(())
        })?;
        if found {
            return Ok(Some(table.name));
        }
    }
    Ok(None)
}

/// Takes possession of an empty target, or of what an earlier run of the same left; says whether it did.
pub(super) struct Begin {
    pub(super) target: String,
    pub(super) marker: Marker,
}

impl Write for Begin {
    type Answer = Marker;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<Marker>> {
        let target = self.target.clone();
        if let Some(found) = Marker::read(transaction)? {
            if found.source != self.marker.source || found.merge != self.marker.merge {
                return Err(
                    MigrationTrouble::Unfinished { target, source_store: found.source, merge: found.merge }.into()
                );
            }
            return Ok(Promise::Kept(found));
        }
        if !self.marker.merge {
            if let Some(table) = occupied(transaction)? {
                return Err(MigrationTrouble::NotEmpty { target, table }.into());
            }
            transaction.defer_index(self.marker.highest)?;
            transaction.raise_message_ids(self.marker.highest)?;
        }
        let sent = self.marker.store(transaction)?;
        transaction.receive(sent)?;
        Ok(Promise::Kept(self.marker.clone()))
    }
}

/// Moves the target's ids on.
pub(super) struct RaiseIds(pub(super) i64);

impl Write for RaiseIds {
    type Answer = ();
    const OPERATION: Operation = Operation::Migrate;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        transaction.raise_message_ids(self.0)?;
        Ok(Promise::Kept(()))
    }
}

/// Puts rows in, whatever the target has under their keys. Links to parents are left as they are: those may still be
/// missing.
#[derive(Clone)]
pub(super) struct PutRows {
    pub(super) table: usize,
    pub(super) rows: std::sync::Arc<Vec<Row>>,
    /// Nothing is there under these keys.
    pub(super) fresh: bool,
}

impl Write for PutRows {
    type Answer = ();
    const OPERATION: Operation = Operation::Migrate;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        let table = &tables()?[self.table];
        let mut sent = Vec::new();
        if table.optional {
            transaction.make_topic_tables(true)?;
        }
        prepare_keys(table, &self.rows, transaction)?;
        if !self.fresh {
            self.make_room(table, transaction, &mut sent)?;
        }
        let skipped = (self.table == SESSIONS).then(|| table.place("parent_session_id")).flatten();
        let mut places = table.places_for(&self.rows);
        places.retain(|place| Some(*place) != skipped);
        let names: Vec<&str> = places.iter().map(|place| table.columns[*place].name.as_str()).collect();
        if self.fresh && self.table == MESSAGES {
            let rows: Vec<Vec<&Value>> =
                self.rows.iter().map(|row| places.iter().map(|place| &row[*place]).collect()).collect();
            if transaction.copy_messages(&names, &rows, &self.texts(table))? {
                return Ok(Promise::Kept(()));
            }
        }
        let conflict = if self.table == MESSAGES { String::new() } else { update_on_conflict(table, &places) };
        for group in groups(&self.rows) {
            let sql = format!(
                "INSERT INTO {} ({}) VALUES {}{conflict}",
                table.name,
                names.join(", "),
                tuples(group.len(), places.len())
            );
            let parameters: Vec<Value> =
                group.iter().flat_map(|row| places.iter().map(|place| row[*place].clone())).collect();
            sent.push(transaction.send(&sql, &parameters)?);
        }
        if self.table == MESSAGES {
            transaction.index_messages(&self.texts(table))?;
        }
        Ok(Promise::Later(Box::new(|transaction| {
            sent.into_iter().try_for_each(|sent| transaction.receive(sent).map(drop))
        })))
    }
}

impl PutRows {
    /// What messages are found by, with their ids.
    fn texts(&self, table: &Table) -> Vec<(i64, Texts<'_>)> {
        let places = ["content", "tool_name", "tool_calls"].map(|name| table.place(name));
        self.rows
            .iter()
            .map(|row| {
                let text = |at: usize| places[at].and_then(|place| row[place].as_str());
                let texts = Texts { content: text(0), tool_name: text(1), tool_calls: text(2) };
                (row[0].as_i64().unwrap_or_default(), texts)
            })
            .collect()
    }

    fn make_room(&self, table: &Table, transaction: &mut dyn Transaction, sent: &mut Vec<Sent>) -> Result<()> {
        if self.table == MESSAGES {
            // Deleted and inserted, and not updated, so that each engine's index follows.
            let keys: Vec<Vec<Value>> = self.rows.iter().map(|row| table.key_of(row)).collect();
            delete(table, &keys, transaction, sent)?;
            // A key may have moved to another message; whoever has it here will get its own row.
            if let (Some(session), Some(key)) = (table.place("session_id"), table.place(CLIENT_KEY)) {
                for row in self.rows.iter().filter(|row| !row[key].is_null()) {
                    sent.push(transaction.send(
                        "UPDATE messages SET client_key = NULL WHERE session_id = ?1 AND client_key = ?2",
                        &[row[session].clone(), row[key].clone()],
                    )?);
                }
            }
        } else if self.table == BINDINGS
            && let Some(place) = table.place("session_id")
        {
            // A session may have moved to another topic; what the source has under that one will come.
            for row in self.rows.iter() {
                let parameters: Vec<Value> = std::iter::once(row[place].clone()).chain(table.key_of(row)).collect();
                sent.push(transaction.send(
                    "DELETE FROM telegram_dm_topic_bindings \
                     WHERE session_id = ?1 AND NOT (chat_id = ?2 AND thread_id = ?3)",
                    &parameters,
                )?);
            }
        } else if self.table == SESSIONS
            && let Some(place) = table.place("title")
        {
            // A title may have moved to another session; whoever has it here will get its own row.
            for row in self.rows.iter().filter(|row| !row[place].is_null()) {
                sent.push(transaction.send(
                    "UPDATE sessions SET title = NULL WHERE title = ?1 AND id <> ?2",
                    &[row[place].clone(), row[0].clone()],
                )?);
            }
        }
        Ok(())
    }
}

const CLIENT_KEY: &str = "client_key";

/// Has the target know keys of callers if a row brings one.
fn prepare_keys(table: &Table, rows: &[Row], transaction: &mut dyn Transaction) -> Result<()> {
    match table.place(CLIENT_KEY) {
        Some(place) if rows.iter().any(|row| !row[place].is_null()) => transaction.make_client_keys(),
        _ => Ok(()),
    }
}

fn update_on_conflict(table: &Table, places: &[usize]) -> String {
    let set: Vec<String> = places
        .iter()
        .filter(|place| !table.key.contains(place))
        .map(|place| format!("{0} = excluded.{0}", table.columns[*place].name))
        .collect();
    format!(" ON CONFLICT ({}) DO UPDATE SET {}", table.key_list(), set.join(", "))
}

fn delete(table: &Table, keys: &[Vec<Value>], transaction: &mut dyn Transaction, sent: &mut Vec<Sent>) -> Result<()> {
    let condition: Vec<String> = table
        .key
        .iter()
        .enumerate()
        .map(|(at, place)| format!("{} = ?{}", table.columns[*place].name, at + 1))
        .collect();
    let sql = format!("DELETE FROM {} WHERE {}", table.name, condition.join(" AND "));
    for key in keys {
        sent.push(transaction.send(&sql, key)?);
    }
    Ok(())
}

/// Links sessions to their parents, all of which are there now.
#[derive(Clone)]
pub(super) struct SetParents(pub(super) Vec<(Value, Value)>);

impl Write for SetParents {
    type Answer = ();
    const OPERATION: Operation = Operation::Migrate;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        let sql = "UPDATE sessions SET parent_session_id = ?2 WHERE id = ?1";
        let sent = self.0.iter().map(|(id, parent)| transaction.send(sql, &[id.clone(), parent.clone()]));
        let sent = sent.collect::<Result<Vec<_>>>()?;
        Ok(Promise::Later(Box::new(|transaction| {
            sent.into_iter().try_for_each(|sent| transaction.receive(sent).map(drop))
        })))
    }
}

/// Takes rows out that an unfinished run has left and the source no longer has.
pub(super) struct RemoveRows {
    pub(super) table: usize,
    pub(super) keys: Vec<Vec<Value>>,
}

impl Write for RemoveRows {
    type Answer = ();
    const OPERATION: Operation = Operation::Migrate;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        let table = &tables()?[self.table];
        let mut sent = Vec::new();
        if self.table == SESSIONS {
            for key in &self.keys {
                let sql = "UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id = ?1";
                sent.push(transaction.send(sql, key)?);
            }
        }
        delete(table, &self.keys, transaction, &mut sent)?;
        Ok(Promise::Later(Box::new(|transaction| {
            sent.into_iter().try_for_each(|sent| transaction.receive(sent).map(drop))
        })))
    }
}

/// Fills a part of the search index.
pub(super) struct IndexSome;

impl Write for IndexSome {
    type Answer = Option<(i64, i64)>;
    const OPERATION: Operation = Operation::Index;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<Self::Answer>> {
        Ok(Promise::Kept(transaction.index_deferred()?))
    }
}

/// Gives the target free.
pub(super) struct Finish;

impl Write for Finish {
    type Answer = ();
    const OPERATION: Operation = Operation::Migrate;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        transaction.settle()?;
        transaction.execute("DELETE FROM state_meta WHERE key = ?1", &[MARKER.into()])?;
        Ok(Promise::Kept(()))
    }
}

/// A part of a session that is merged in: the session itself with its first part, and messages, which get ids of the
/// target's. What the marker says of it is stored with it, so that no part is stored twice.
pub(super) struct AddToSession {
    pub(super) marker: Marker,
    pub(super) session: Option<Row>,
    pub(super) usage: Vec<Row>,
    pub(super) messages: Vec<Row>,
}

impl AddToSession {
    /// What has been gathered; nothing is left but the marker.
    pub(super) fn take(&mut self) -> Self {
        Self {
            marker: self.marker.clone(),
            session: self.session.take(),
            usage: std::mem::take(&mut self.usage),
            messages: std::mem::take(&mut self.messages),
        }
    }

    /// A title and a parent are taken over where they can be: the title if no session of the target has it, the parent
    /// if it is there, which it is unless sessions are each other's ancestors.
    fn add_session(&self, row: &Row, transaction: &mut dyn Transaction) -> Result<()> {
        let table = &tables()?[SESSIONS];
        let mut row = row.clone();
        for (column, sql, keep) in [
            ("title", "SELECT COUNT(*) FROM sessions WHERE title = ?1", 0),
            ("parent_session_id", "SELECT COUNT(*) FROM sessions WHERE id = ?1", 1),
        ] {
            if let Some(place) = table.place(column)
                && !row[place].is_null()
                && transaction.scalar(sql, std::slice::from_ref(&row[place]))?.as_i64() != Some(keep)
            {
                row[place] = Value::Null;
            }
        }
        insert(table, &row, 0, transaction).map(drop)
    }
}

/// Inserts a row without its first columns.
fn insert(table: &Table, row: &Row, without: usize, transaction: &mut dyn Transaction) -> Result<Sent> {
    let places: Vec<usize> =
        table.places_for(std::slice::from_ref(row)).into_iter().filter(|place| *place >= without).collect();
    let names: Vec<&str> = places.iter().map(|place| table.columns[*place].name.as_str()).collect();
    let values: Vec<Value> = places.iter().map(|place| row[*place].clone()).collect();
    let sql = format!("INSERT INTO {} ({}) VALUES {}", table.name, names.join(", "), tuples(1, names.len()));
    transaction.send(&sql, &values)
}

impl Write for AddToSession {
    type Answer = ();
    const OPERATION: Operation = Operation::Migrate;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        if let Some(row) = &self.session {
            self.add_session(row, transaction)?;
        }
        let mut sent = Vec::new();
        for row in &self.usage {
            sent.push(insert(&tables()?[USAGE], row, 0, transaction)?);
        }
        let table = &tables()?[MESSAGES];
        prepare_keys(table, &self.messages, transaction)?;
        let texts = ["content", "tool_name", "tool_calls"].map(|column| table.place(column).unwrap_or_default());
        for row in &self.messages {
            sent.push(insert(table, row, 1, transaction)?);
            let [content, tool_name, tool_calls] = texts.map(|place| &row[place]);
            transaction.index_message(content, tool_name, tool_calls)?;
        }
        sent.push(self.marker.store(transaction)?);
        Ok(Promise::Later(Box::new(|transaction| {
            sent.into_iter().try_for_each(|sent| transaction.receive(sent).map(drop))
        })))
    }
}
