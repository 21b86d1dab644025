//! The tables that make up a store, as they are copied: in this order, by these keys.

use std::sync::OnceLock;

use super::rows::Row;
use crate::error::Result;
use crate::transaction::{TOPIC_BINDINGS, TOPIC_MODE, Transaction};
use crate::value::{Columns, Value};
use crate::{SCHEMA_SQL, TOPICS_SQL, parse_schema_columns};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    Real,
}

pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// It may not be NULL.
    pub(super) required: bool,
}

pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) columns: Vec<Column>,
    /// The places of the key's columns.
    pub(super) key: Vec<usize>,
    /// A store may do without it, which is as good as an empty one.
    pub(super) optional: bool,
}

/// The places of tables in [`tables`].
pub(super) const SESSIONS: usize = 0;
pub(super) const MESSAGES: usize = 1;
pub(super) const USAGE: usize = 2;
pub(super) const META: usize = 3;
pub(super) const LOCKS: usize = 5;
pub(super) const BINDINGS: usize = 8;

/// What others refer to comes first.
const KEYS: [(&str, &[&str]); 9] = [
    ("sessions", &["id"]),
    ("messages", &["id"]),
    ("session_model_usage", &["session_id", "model", "billing_provider", "billing_base_url", "billing_mode", "task"]),
    ("state_meta", &["key"]),
    ("gateway_routing", &["scope", "session_key"]),
    ("compression_locks", &["session_id"]),
    ("async_delegations", &["delegation_id"]),
    (TOPIC_MODE, &["chat_id"]),
    (TOPIC_BINDINGS, &["chat_id", "thread_id"]),
];

/// Columns of text that older releases do not know, and that a store gets with the first value for them.
const ADDED: [(&str, &str); 1] = [("messages", "client_key")];

/// The key under which a target says whose unfinished migration it holds.
pub(super) const MARKER: &str = "unfinished_migration";

/// The tables with the columns that this release knows.
pub(super) fn tables() -> Result<&'static [Table]> {
    static TABLES: OnceLock<Vec<Table>> = OnceLock::new();
    if let Some(tables) = TABLES.get() {
        return Ok(tables);
    }
    let mut base = parse_schema_columns(SCHEMA_SQL)?;
    for (table, column) in ADDED {
        let known = base.iter_mut().filter(|(name, _)| name == table);
        known.for_each(|(_, columns)| columns.push((column.to_owned(), "TEXT".to_owned())));
    }
    let topics = parse_schema_columns(TOPICS_SQL)?;
    let tables = KEYS.map(|(name, key)| {
        let optional = topics.iter().any(|(table, _)| table == name);
        let declared = base.iter().chain(&topics).find(|(table, _)| table == name);
        let columns = declared.map(|(_, columns)| columns.as_slice());
        let columns: Vec<Column> = columns
            .unwrap_or_default()
            .iter()
            .map(|(column, declaration)| Column {
                name: column.clone(),
                kind: match declaration.split(' ').next() {
                    Some("INTEGER") => Kind::Integer,
                    Some("REAL") => Kind::Real,
                    _ => Kind::Text,
                },
                required: declaration.contains("NOT NULL") || key.contains(&column.as_str()),
            })
            .collect();
        let place = |name: &&str| columns.iter().position(|column| column.name == **name);
        Table { name, key: key.iter().filter_map(place).collect(), optional, columns }
    });
    Ok(TABLES.get_or_init(|| tables.into()))
}

impl Table {
    /// Whether the store has the table. That one has all it cannot do without is checked elsewhere.
    pub(super) fn is_there(&self, transaction: &mut dyn Transaction) -> Result<bool> {
        Ok(!self.optional || transaction.has_table(self.name)?)
    }

    pub(super) fn place(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|known| known.name == column)
    }

    pub(super) fn column_list(&self) -> String {
        self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The columns to read of a store that may only have been looked at: what it lacks of those that stores get by the
    /// way is empty.
    pub(super) fn readable_columns(&self, transaction: &mut dyn Transaction) -> Result<Vec<String>> {
        let names = self.columns.iter().map(|column| column.name.as_str());
        if !ADDED.iter().any(|(table, _)| *table == self.name) {
            return Ok(names.map(str::to_owned).collect());
        }
        let found: Columns =
            transaction.query(&format!("SELECT * FROM {} LIMIT 0", self.name), &[], &mut |_| Ok(()))?;
        let readable = |name: &str| {
            let lacks = self.may_lack(name) && !found.iter().any(|found| found.eq_ignore_ascii_case(name));
            if lacks { format!("NULL AS {name}") } else { name.to_owned() }
        };
        Ok(names.map(readable).collect())
    }

    /// The columns to write these rows into: all but those that stores may lack and no row has anything for.
    pub(super) fn places_for(&self, rows: &[Row]) -> Vec<usize> {
        let is_needed = |place: usize| rows.iter().any(|row| !row[place].is_null());
        (0..self.columns.len())
            .filter(|place| !self.may_lack(&self.columns[*place].name) || is_needed(*place))
            .collect()
    }

    /// Whether a store that is well may be without this column.
    pub(super) fn may_lack(&self, column: &str) -> bool {
        ADDED.contains(&(self.name, column))
    }

    pub(super) fn key_list(&self) -> String {
        self.key.iter().map(|place| self.columns[*place].name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The key of a row.
    pub(super) fn key_of(&self, row: &[Value]) -> Vec<Value> {
        self.key.iter().map(|place| row[*place].clone()).collect()
    }

    /// The key of a row for people.
    pub(super) fn key_text(&self, row: &[Value]) -> String {
        let part = |place: &usize| match &row[*place] {
            Value::Text(text) => format!("{text:?}"),
            Value::Integer(number) => number.to_string(),
            Value::Real(number) => number.to_string(),
            Value::Blob(bytes) => format!("a blob of {} bytes", bytes.len()),
            Value::Null => "NULL".to_owned(),
        };
        self.key.iter().map(part).collect::<Vec<_>>().join(", ")
    }
}

/// Whether a row of `state_meta` is about the store's own engine or a migration into it, and no content.
pub(super) fn is_of_engine(row: &[Value]) -> bool {
    row.first().and_then(Value::as_str).is_some_and(|key| key.starts_with("fts_") || key == MARKER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_to_the_schema_may_be_lacking() {
        let declared = parse_schema_columns(SCHEMA_SQL).unwrap();
        for table in tables().unwrap() {
            let Some((_, columns)) = declared.iter().find(|(name, _)| name == table.name) else {
                assert!(table.optional);
                continue;
            };
            for column in &table.columns {
                let of_schema = columns.iter().any(|(name, _)| *name == column.name);
                assert_ne!(of_schema, table.may_lack(&column.name), "{}.{}", table.name, column.name);
            }
        }
    }

    #[test]
    fn every_table_of_the_schema_is_copied_by_its_whole_key() {
        let mut declared = parse_schema_columns(SCHEMA_SQL).unwrap();
        declared.extend(parse_schema_columns(TOPICS_SQL).unwrap());
        let mut names: Vec<&str> = declared.iter().map(|(name, _)| name.as_str()).collect();
        names.retain(|name| *name != "schema_version");
        let mut copied: Vec<&str> = tables().unwrap().iter().map(|table| table.name).collect();
        copied.sort_unstable();
        names.sort_unstable();
        assert_eq!(copied, names);
        for (table, (_, key)) in tables().unwrap().iter().zip(KEYS) {
            assert_eq!(table.key.len(), key.len(), "{}", table.name);
            assert!(!table.columns.is_empty());
        }
        assert_eq!(tables().unwrap()[SESSIONS].name, "sessions");
        assert_eq!(tables().unwrap()[MESSAGES].name, "messages");
        assert_eq!(tables().unwrap()[USAGE].name, "session_model_usage");
        assert_eq!(tables().unwrap()[META].name, "state_meta");
        assert_eq!(tables().unwrap()[LOCKS].name, "compression_locks");
        assert_eq!(tables().unwrap()[BINDINGS].name, TOPIC_BINDINGS);
        let optional: Vec<&str> =
            tables().unwrap().iter().filter(|table| table.optional).map(|table| table.name).collect();
        assert_eq!(optional, [TOPIC_MODE, TOPIC_BINDINGS]);
    }
}
