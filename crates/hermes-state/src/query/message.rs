//! Reads of messages as they are stored.

use crate::error::Result;
use crate::message::Message;
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::Value;

/// Which messages of a session to read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MessageQuery {
    /// Also those that were rewound or archived by compaction.
    pub include_inactive: bool,
    /// At most so many; `None` or negative: all.
    pub limit: Option<i64>,
    /// Leave out so many of the first.
    pub offset: i64,
}

/// The messages of a session in the order in which they were stored, whatever their clocks said.
pub(crate) fn list(
    transaction: &mut dyn Transaction,
    session_id: &Value,
    query: &MessageQuery,
) -> Result<Vec<Message>> {
    let mut statement = Statement::default();
    let session = statement.bind(session_id.clone());
    statement.push(&format!("SELECT * FROM messages WHERE session_id = {session}"));
    if !query.include_inactive {
        statement.push(" AND active = 1");
    }
    statement.push(" ORDER BY id");
    if query.limit.is_some() || query.offset > 0 {
        statement.push_page(query.limit.unwrap_or(-1), query.offset);
    }
    Ok(transaction.records(&statement.sql, &statement.parameters)?.into_iter().map(Message::new).collect())
}

/// How many messages are stored, in any state, for one session or for all.
pub(crate) fn count(transaction: &mut dyn Transaction, session_id: &Value) -> Result<i64> {
    let count = if session_id.is_falsy() {
        transaction.scalar("SELECT COUNT(*) FROM messages", &[])
    } else {
        transaction.scalar("SELECT COUNT(*) FROM messages WHERE session_id = ?1", std::slice::from_ref(session_id))
    };
    Ok(count?.as_i64().unwrap_or_default())
}

/// The value of a key of the key-value table.
pub(crate) fn meta(transaction: &mut dyn Transaction, key: &Value) -> Result<Value> {
    transaction.scalar("SELECT value FROM state_meta WHERE key = ?1", std::slice::from_ref(key))
}
