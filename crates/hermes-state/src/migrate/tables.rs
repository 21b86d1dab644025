//! The tables that make up a store, as they are copied: in this order, by these keys.

use std::sync::OnceLock;

use crate::error::Result;
use crate::value::Value;
use crate::{SCHEMA_SQL, parse_schema_columns};

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
}

/// The places of tables in [`tables`].
pub(super) const SESSIONS: usize = 0;
pub(super) const MESSAGES: usize = 1;
pub(super) const USAGE: usize = 2;
pub(super) const META: usize = 3;
pub(super) const LOCKS: usize = 5;

/// What others refer to comes first.
const KEYS: [(&str, &[&str]); 7] = [
    ("sessions", &["id"]),
    ("messages", &["id"]),
    ("session_model_usage", &["session_id", "model", "billing_provider", "billing_base_url", "billing_mode", "task"]),
    ("state_meta", &["key"]),
    ("gateway_routing", &["scope", "session_key"]),
    ("compression_locks", &["session_id"]),
    ("async_delegations", &["delegation_id"]),
];

/// The key under which a target says whose unfinished migration it holds.
pub(super) const MARKER: &str = "unfinished_migration";

/// The tables with the columns that this release knows.
pub(super) fn tables() -> Result<&'static [Table]> {
    static TABLES: OnceLock<Vec<Table>> = OnceLock::new();
    if let Some(tables) = TABLES.get() {
        return Ok(tables);
    }
    let declared = parse_schema_columns(SCHEMA_SQL)?;
    let tables = KEYS.map(|(name, key)| {
        let columns = declared.iter().find(|(table, _)| table == name).map(|(_, columns)| columns.as_slice());
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
        Table { name, key: key.iter().filter_map(place).collect(), columns }
    });
    Ok(TABLES.get_or_init(|| tables.into()))
}

impl Table {
    pub(super) fn place(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|known| known.name == column)
    }

    pub(super) fn column_list(&self) -> String {
        self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
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
    fn every_table_of_the_schema_is_copied_by_its_whole_key() {
        let declared = parse_schema_columns(SCHEMA_SQL).unwrap();
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
    }
}
