//! Reads of gateway sessions and of the routing index.

use std::collections::{BTreeMap, BTreeSet};

use super::lineage;
use crate::blank;
use crate::error::Result;
use crate::gateway::GatewayPeer;
use crate::session::{ACCIDENTAL_ENDS, Session};
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::Value;

/// Which gateway sessions a listing shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewaySessionQuery {
    /// Only those of this platform, whatever the case of its letters (ASCII).
    pub platform: Option<String>,
    /// Only those that have not ended.
    pub active_only: bool,
}

impl Default for GatewaySessionQuery {
    fn default() -> Self {
        Self { platform: None, active_only: true }
    }
}

/// Where a message comes from, to find the live session that it belongs to.
///
/// ```
/// use hermes_state::SessionOrigin;
/// let origin = SessionOrigin { user_id: Some("7".into()), ..SessionOrigin::new("telegram", "-100") };
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionOrigin {
    /// The platform, whatever the case of its letters (ASCII).
    pub platform: String,
    /// The chat.
    pub chat_id: String,
    /// The thread: `None` is any, an empty text means no thread.
    pub thread_id: Option<String>,
    /// The person, if it is known.
    pub user_id: Option<String>,
}

impl SessionOrigin {
    /// A chat of a platform, any thread, person unknown.
    #[must_use]
    pub fn new(platform: impl Into<String>, chat_id: impl Into<String>) -> Self {
        Self { platform: platform.into(), chat_id: chat_id.into(), ..Self::default() }
    }
}

/// The entries of a scope of the routing index.
pub(crate) fn routing_entries(transaction: &mut dyn Transaction, scope: &Value) -> Result<BTreeMap<String, String>> {
    let mut entries = BTreeMap::new();
    let sql = "SELECT session_key, entry_json FROM gateway_routing WHERE scope = ?1";
    transaction.query(sql, std::slice::from_ref(scope), &mut |row| {
        let mut texts = row.into_iter().map(text);
        if let (Some(key), Some(entry)) = (texts.next(), texts.next()) {
            entries.insert(key, entry);
        }
        Ok(())
    })?;
    Ok(entries)
}

/// A value of a text column, which may hold bytes.
fn text(value: Value) -> String {
    match value {
        Value::Text(text) => text,
        Value::Blob(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Null => String::new(),
    }
}

/// The newest session of each routing key, the filters being applied to those only, the most active first.
pub(crate) fn list(transaction: &mut dyn Transaction, query: &GatewaySessionQuery) -> Result<Vec<Session>> {
    let mut statement = Statement::default();
    statement.push(&format!(
        "SELECT s.*, {} AS last_active FROM sessions s WHERE s.session_key IS NOT NULL \
         AND s.started_at = (SELECT MAX(n.started_at) FROM sessions n WHERE n.session_key = s.session_key)",
        lineage::last_active("s")
    ));
    if let Some(platform) = query.platform.as_deref().filter(|platform| !platform.is_empty()) {
        let platform = statement.bind(platform.to_ascii_lowercase());
        statement.push(&format!(" AND LOWER(s.source) = {platform}"));
    }
    if query.active_only {
        statement.push(" AND s.ended_at IS NULL");
    }
    statement.push(" ORDER BY last_active DESC, s.started_at, s.id");
    Ok(transaction.records(&statement.sql, &statement.parameters)?.into_iter().map(Session::new).collect())
}

/// The live session that a message from there belongs to, if that is clear.
pub(crate) fn find_by_origin(transaction: &mut dyn Transaction, origin: &SessionOrigin) -> Result<Option<String>> {
    if origin.platform.is_empty() || origin.chat_id.is_empty() {
        return Ok(None);
    }
    let mut statement = Statement::default();
    let (platform, chat) = (statement.bind(origin.platform.to_ascii_lowercase()), statement.bind(&*origin.chat_id));
    statement.push(&format!(
        "SELECT s.id, s.user_id FROM sessions s WHERE LOWER(s.source) = {platform} AND s.session_key IS NOT NULL \
         AND s.chat_id = {chat} AND s.ended_at IS NULL"
    ));
    if let Some(thread) = &origin.thread_id {
        let thread = same(&mut statement, "s.thread_id", &thread.as_str().into());
        statement.push(&format!(" AND {thread}"));
    }
    statement.push(" ORDER BY s.started_at DESC, s.id");
    let candidates: Vec<(String, String)> = transaction
        .records(&statement.sql, &statement.parameters)?
        .into_iter()
        .map(|record| {
            let column = |name: &str| record.text(name).unwrap_or_default().to_owned();
            (column("id"), column("user_id"))
        })
        .collect();
    let chosen = match origin.user_id.as_deref().filter(|user| !user.is_empty()) {
        Some(user) => {
            let theirs = candidates.iter().find(|(_, owner)| owner == user);
            theirs.or_else(|| candidates.first().filter(|_| candidates.len() == 1))
        }
        None => {
            let owners: BTreeSet<&str> = candidates.iter().map(|(_, owner)| blank::trim(owner)).collect();
            let owners = owners.iter().filter(|owner| !owner.is_empty()).count();
            candidates.first().filter(|_| owners < 2)
        }
    };
    Ok(chosen.map(|(id, _)| id.clone()))
}

/// Whether nothing was given.
fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(str::is_empty)
}

/// The condition that a column has a value, where NULL and the empty text are the same.
fn same(statement: &mut Statement, column: &str, value: &Value) -> String {
    if is_empty(value) {
        format!("({column} IS NULL OR {column} = '')")
    } else {
        format!("{column} = {}", statement.bind(value.clone()))
    }
}

/// The newest session of a peer that can be taken up again: by its routing key, or else by the peer itself.
pub(crate) fn find_latest_for_peer(transaction: &mut dyn Transaction, peer: &GatewayPeer) -> Result<Option<Session>> {
    if is_empty(&peer.session_key) {
        return Ok(None);
    }
    let by_key = newest_recoverable(transaction, |statement| {
        let (key, source) = (statement.bind(peer.session_key.clone()), statement.bind(peer.source.clone()));
        format!("s.session_key = {key} AND s.source = {source}")
    })?;
    if by_key.is_some() || peer.chat_id.is_null() || peer.chat_type.is_null() {
        return Ok(by_key);
    }
    newest_recoverable(transaction, |statement| {
        let mut conditions = vec![format!("s.source = {}", statement.bind(peer.source.clone()))];
        for (column, value) in [
            ("s.user_id", &peer.user_id),
            ("s.chat_id", &peer.chat_id),
            ("s.chat_type", &peer.chat_type),
            ("s.thread_id", &peer.thread_id),
        ] {
            conditions.push(same(statement, column, value));
        }
        conditions.join(" AND ")
    })
}

/// The newest session under a condition that is live or came to an end that nobody meant, and in which something was
/// said.
fn newest_recoverable(
    transaction: &mut dyn Transaction,
    condition: impl FnOnce(&mut Statement) -> String,
) -> Result<Option<Session>> {
    let mut statement = Statement::default();
    let condition = condition(&mut statement);
    let ends = statement.bind_all(ACCIDENTAL_ENDS);
    statement.push(&format!(
        "SELECT s.* FROM sessions s WHERE {condition} AND (s.ended_at IS NULL OR s.end_reason IN ({ends})) \
         AND (s.message_count > 0 OR EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id)) \
         ORDER BY s.started_at DESC, s.id LIMIT 1"
    ));
    Ok(transaction.first(&statement.sql, &statement.parameters)?.map(Session::new))
}
