//! The columns of messages and sessions as statements name them: files of older releases that are only looked at lack
//! some.

use crate::error::Result;
use crate::transaction::Transaction;
use crate::value::Columns;

/// The columns that the messages table of this file has.
pub(crate) struct MessageColumns(Columns);

impl MessageColumns {
    /// Asks the file.
    pub(crate) fn read(transaction: &mut dyn Transaction) -> Result<Self> {
        Ok(Self(transaction.query("SELECT * FROM messages LIMIT 0", &[], &mut |_| Ok(()))?))
    }

    fn has(&self, column: &str) -> bool {
        self.0.iter().any(|name| &**name == column)
    }

    /// The column of the messages table under this name, NULL if it is missing.
    pub(crate) fn of(&self, table: &str, column: &str) -> String {
        if self.has(column) { format!("{table}.{column}") } else { "NULL".to_owned() }
    }

    /// The row `m` is part of the conversation as it stands. Before releases knew rewinding, all were.
    pub(crate) fn is_active(&self) -> &'static str {
        if self.has("active") { "m.active = 1" } else { "1 = 1" }
    }

    /// The row `m` was not rewound: it is active, or compaction archived it.
    pub(crate) fn is_visible(&self) -> &'static str {
        match (self.has("active"), self.has("compacted")) {
            (true, true) => "(m.active = 1 OR m.compacted = 1)",
            _ => self.is_active(),
        }
    }
}

/// The columns that the sessions table of this file has.
pub(crate) struct SessionColumns(Columns);

impl SessionColumns {
    /// Asks the file.
    pub(crate) fn read(transaction: &mut dyn Transaction) -> Result<Self> {
        Ok(Self(transaction.query("SELECT * FROM sessions LIMIT 0", &[], &mut |_| Ok(()))?))
    }

    pub(crate) fn has(&self, column: &str) -> bool {
        self.0.iter().any(|name| &**name == column)
    }
}
