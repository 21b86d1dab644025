//! Reads of Telegram topics. A store has their tables only once somebody asked for them; until then nothing is bound.

use super::session;
use crate::error::Result;
use crate::session::Session;
use crate::statement::Statement;
use crate::topic::TopicBinding;
use crate::transaction::{TOPIC_BINDINGS, TOPIC_MODE, Transaction};
use crate::value::Value;

/// Whether a chat of this user is in topic mode.
pub(crate) fn is_enabled(transaction: &mut dyn Transaction, chat_id: &Value, user_id: &Value) -> Result<bool> {
    if !transaction.has_table(TOPIC_MODE)? {
        return Ok(false);
    }
    let sql = "SELECT enabled FROM telegram_dm_topic_mode WHERE chat_id = ?1 AND user_id = ?2";
    Ok(!transaction.scalar(sql, &[chat_id.clone(), user_id.clone()])?.is_falsy())
}

fn bindings(transaction: &mut dyn Transaction, condition: &str, parameters: &[Value]) -> Result<Vec<TopicBinding>> {
    if !transaction.has_table(TOPIC_BINDINGS)? {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT chat_id, thread_id, user_id, session_key, session_id, managed_mode, linked_at, updated_at \
         FROM telegram_dm_topic_bindings WHERE {condition}"
    );
    Ok(transaction.records(&sql, parameters)?.iter().map(TopicBinding::new).collect())
}

/// The binding of a topic.
pub(crate) fn of_topic(
    transaction: &mut dyn Transaction,
    chat_id: &Value,
    thread_id: &Value,
) -> Result<Option<TopicBinding>> {
    let found = bindings(transaction, "chat_id = ?1 AND thread_id = ?2", &[chat_id.clone(), thread_id.clone()])?;
    Ok(found.into_iter().next())
}

/// The bindings of a chat, the one that was changed last first.
pub(crate) fn of_chat(transaction: &mut dyn Transaction, chat_id: &Value) -> Result<Vec<TopicBinding>> {
    bindings(transaction, "chat_id = ?1 ORDER BY updated_at DESC, thread_id", std::slice::from_ref(chat_id))
}

/// The binding of a session.
pub(crate) fn of_session(transaction: &mut dyn Transaction, session_id: &Value) -> Result<Option<TopicBinding>> {
    Ok(bindings(transaction, "session_id = ?1", std::slice::from_ref(session_id))?.into_iter().next())
}

/// The Telegram sessions of a user that no topic is bound to, the most active first.
pub(crate) fn unlinked(transaction: &mut dyn Transaction, user_id: &Value, limit: i64) -> Result<Vec<Session>> {
    let columns = session::rich_columns(transaction, false)?;
    let mut statement = Statement::default();
    let user = statement.bind(user_id.clone());
    statement.push(&format!("SELECT {columns} FROM sessions s WHERE s.source = 'telegram' AND s.user_id = {user}"));
    if transaction.has_table(TOPIC_BINDINGS)? {
        statement.push(" AND NOT EXISTS (SELECT 1 FROM telegram_dm_topic_bindings b WHERE b.session_id = s.id)");
    }
    statement.push(" ORDER BY last_active DESC, s.started_at DESC, s.id DESC");
    statement.push_page(limit, 0);
    let rows = transaction.records(&statement.sql, &statement.parameters)?;
    Ok(rows.into_iter().map(|record| Session::new(session::finish(record))).collect())
}
