//! Reads of messages as they are stored.

use super::search_context::text_of;
use super::window::newest;
use crate::blank::collapse;
use crate::columns::MessageColumns;
use crate::content::Content;
use crate::error::Result;
use crate::message::Message;
use crate::op::compaction::LIKENESS;
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
    Ok(Message::all(transaction.records(&statement.sql, &statement.parameters)?))
}

/// The newest active messages of a session, in their order.
pub(crate) fn recent(transaction: &mut dyn Transaction, session_id: &Value, limit: i64) -> Result<Vec<Message>> {
    let mut found = newest(transaction, "m.active = 1", session_id, if limit < 0 { i64::MAX } else { limit })?;
    found.reverse();
    Ok(found)
}

/// What a user said, in short.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct UserMessage {
    /// The id of the message.
    pub id: i64,
    /// When it was said, in seconds since the epoch.
    pub timestamp: f64,
    /// Its text on one line of at most 80 characters.
    pub preview: String,
}

/// The longest preview, and how much of a longer text it shows, in characters.
const PREVIEW: usize = 80;
const CUT: usize = 77;

/// The newest messages of the user, newest first.
pub(crate) fn recent_of_user(
    transaction: &mut dyn Transaction,
    session_id: &Value,
    limit: i64,
    include_inactive: bool,
) -> Result<Vec<UserMessage>> {
    let condition = if include_inactive { "m.role = 'user'" } else { "m.role = 'user' AND m.active = 1" };
    let found = newest(transaction, condition, session_id, if limit < 0 { i64::MAX } else { limit })?;
    let line = |message: Message| UserMessage {
        id: message.id(),
        timestamp: message.timestamp(),
        preview: preview(message.content()),
    };
    Ok(found.into_iter().map(line).collect())
}

fn preview(content: Content) -> String {
    let text = collapse(&text_of(content));
    if text.chars().nth(PREVIEW).is_none() {
        return text;
    }
    text.chars().take(CUT).chain("...".chars()).collect()
}

/// Whether a session has messages that are not active, archived or rewound.
pub(crate) fn has_inactive(transaction: &mut dyn Transaction, session_id: &Value) -> Result<bool> {
    let sql = "SELECT 1 FROM messages WHERE session_id = ?1 AND active = 0 LIMIT 1";
    Ok(!transaction.scalar(sql, std::slice::from_ref(session_id))?.is_null())
}

/// Whether a session has a message with this id of the chat platform, in any state.
pub(crate) fn has_platform_id(
    transaction: &mut dyn Transaction,
    session_id: &Value,
    platform_message_id: &Value,
) -> Result<bool> {
    let sql = "SELECT 1 FROM messages WHERE session_id = ?1 AND platform_message_id = ?2 LIMIT 1";
    Ok(!transaction.scalar(sql, &[session_id.clone(), platform_message_id.clone()])?.is_null())
}

/// How many different messages a session has had, in any state: those that compactions kept, and so stored again, count
/// once.
///
/// A copy has the time of what it copies, and is like it. Messages that are all that are one, if compaction archived one
/// of them; but as many as it did not archive are different ones, since it does not repeat a message twice. Only times
/// that come up more than once are looked at, which an index knows.
pub(crate) fn distinct_count(transaction: &mut dyn Transaction, session_id: &Value) -> Result<i64> {
    let columns = MessageColumns::read(transaction)?;
    let archived = columns.of("m", "compacted");
    let sql = format!(
        "SELECT CAST((SELECT COUNT(*) FROM messages WHERE session_id = ?1) \
             - COALESCE(SUM(stored - CASE WHEN others > 1 THEN others ELSE 1 END), 0) AS BIGINT) \
         FROM (SELECT COUNT(*) AS stored, SUM(CASE WHEN {archived} = 1 THEN 0 ELSE 1 END) AS others \
             FROM messages m WHERE m.session_id = ?1 AND m.timestamp IN \
                 (SELECT timestamp FROM messages WHERE session_id = ?1 GROUP BY timestamp HAVING COUNT(*) > 1) \
             GROUP BY m.timestamp, {LIKENESS}) alike"
    );
    Ok(transaction.scalar(&sql, std::slice::from_ref(session_id))?.as_i64().unwrap_or_default())
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
