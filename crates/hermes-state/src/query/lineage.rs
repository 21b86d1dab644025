//! How sessions descend from each other, as conditions and walks: branch, delegate, continuation.

use std::collections::HashSet;

use crate::error::Result;
use crate::transaction::Transaction;
use crate::value::{Record, Value};

/// The condition that a marker stands in a session's configuration: a member that is not JSON null. Text that is no
/// JSON holds no marker.
fn marked(session: &str, marker: &str) -> String {
    format!(
        "COALESCE(json_type(CASE WHEN json_valid({session}.model_config) THEN {session}.model_config END, \
         '$.{marker}'), 'null') <> 'null'"
    )
}

/// The session was delegated by another; it is never listed.
pub(crate) fn is_delegate(session: &str) -> String {
    marked(session, "_delegate_from")
}

/// The session branched off its parent: it says so, or began after the parent ended for that reason.
pub(crate) fn is_branch(session: &str) -> String {
    format!(
        "({} OR EXISTS (SELECT 1 FROM sessions branched WHERE branched.id = {session}.parent_session_id \
         AND branched.end_reason = 'branched' AND {session}.started_at >= branched.ended_at))",
        marked(session, "_branched_from")
    )
}

/// The session stands in listings by itself.
pub(crate) fn is_listable(session: &str) -> String {
    format!("({session}.parent_session_id IS NULL OR {}) AND NOT ({})", is_branch(session), is_delegate(session))
}

/// Given that its parent ended by compression, the session goes on with the parent's conversation.
pub(crate) fn is_continuation(session: &str) -> String {
    format!(
        "{session}.source <> 'tool' AND NOT ({}) AND NOT ({})",
        marked(session, "_branched_from"),
        is_delegate(session)
    )
}

/// When a session was last active: its newest message, or its start.
pub(crate) fn last_active(session: &str) -> String {
    format!(
        "COALESCE((SELECT MAX(m.timestamp) FROM messages m WHERE m.session_id = {session}.id), {session}.started_at)"
    )
}

/// The most steps of a walk along continuations.
const LONGEST_WALK: usize = 100;

/// Follows a conversation through its continuations to the last one.
pub(crate) fn compression_tip(transaction: &mut dyn Transaction, id: &str) -> Result<String> {
    let sql = format!(
        "SELECT c.id FROM sessions p JOIN sessions c ON c.parent_session_id = p.id \
         WHERE p.id = ?1 AND p.end_reason = 'compression' AND {} \
         ORDER BY CASE WHEN c.end_reason = 'compression' THEN 0 WHEN c.ended_at IS NULL THEN 1 ELSE 2 END, \
             {} DESC, c.started_at DESC, c.id DESC LIMIT 1",
        is_continuation("c"),
        last_active("c"),
    );
    let mut current = id.to_owned();
    let mut visited = HashSet::from([current.clone()]);
    for _ in 0..LONGEST_WALK {
        match transaction.scalar(&sql, &[(&current).into()])? {
            Value::Text(next) if visited.insert(next.clone()) => current = next,
            _ => break,
        }
    }
    Ok(current)
}

/// The session and all it descends from by any kind of link, the root first; the nearest hundred at most.
pub(crate) fn root_to_tip(transaction: &mut dyn Transaction, id: &str) -> Result<Vec<String>> {
    let mut chain = vec![id.to_owned()];
    let mut seen = HashSet::from([id.to_owned()]);
    while chain.len() < LONGEST_WALK {
        let current = &chain[chain.len() - 1];
        let parent = transaction.scalar("SELECT parent_session_id FROM sessions WHERE id = ?1", &[current.into()])?;
        match parent {
            Value::Text(parent) if !parent.is_empty() && seen.insert(parent.clone()) => chain.push(parent),
            _ => break,
        }
    }
    chain.reverse();
    Ok(chain)
}

/// A record with one of its columns set, or added at the end.
pub(crate) fn with_column(record: &Record, column: &str, value: Value) -> Record {
    let mut columns: Vec<Box<str>> = record.columns().to_vec();
    let mut values = record.values().to_vec();
    match columns.iter().position(|name| &**name == column) {
        Some(index) => values[index] = value,
        None => {
            columns.push(column.into());
            values.push(value);
        }
    }
    Record::new(columns.into(), values)
}
