//! Writes of the session life cycle.

use super::{Promise, Write};
use crate::clock;
use crate::error::Result;
use crate::query::lineage;
use crate::session::{ACCIDENTAL_ENDS, NewSession};
use crate::transaction::Transaction;
use crate::value::Value;

/// A session's id as errors tell it.
pub(super) fn named(id: &Value) -> String {
    match id {
        Value::Text(id) => id.clone(),
        Value::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// Creates a session, or fills what an existing one leaves open.
pub(crate) struct CreateSession(pub(crate) NewSession);

/// The id, and the columns that an existing row takes from a later creation where it has nothing itself: the first
/// writer wins.
const COLUMNS: [&str; 12] = [
    "id",
    "model",
    "model_config",
    "system_prompt",
    "session_key",
    "chat_id",
    "chat_type",
    "thread_id",
    "parent_session_id",
    "cwd",
    "profile_name",
    "git_repo_root",
];

/// The values of [`COLUMNS`].
fn values(session: &NewSession) -> Vec<Value> {
    let NewSession { id, model, model_config, system_prompt, session_key, chat_id, chat_type, .. } = session;
    let NewSession { thread_id, parent_session_id, cwd, profile_name, git_repo_root, .. } = session;
    [id, model, model_config, system_prompt, session_key, chat_id, chat_type]
        .into_iter()
        .chain([thread_id, parent_session_id, cwd, profile_name, git_repo_root])
        .cloned()
        .collect()
}

impl Write for CreateSession {
    type Answer = ();

    fn subject(&self) -> Option<&str> {
        self.0.id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        let session = &self.0;
        let mut inserted = values(session);
        inserted.extend([session.source.clone(), session.user_id.clone(), clock::now().into()]);
        let placeholders: Vec<_> = (1..=inserted.len()).map(|number| format!("?{number}")).collect();
        let insert = format!(
            "INSERT INTO sessions ({}, source, user_id, started_at) VALUES ({}) ON CONFLICT (id) DO NOTHING",
            COLUMNS.join(", "),
            placeholders.join(", ")
        );
        if transaction.execute(&insert, &inserted)? == 0 {
            let filled: Vec<_> = (2..=COLUMNS.len())
                .map(|number| (COLUMNS[number - 1], number))
                .map(|(column, number)| format!("{column} = COALESCE({column}, ?{number})"))
                .collect();
            let fill = format!("UPDATE sessions SET {} WHERE id = ?1", filled.join(", "));
            transaction.execute(&fill, &values(session))?;
        }
        if !session.parent_session_id.is_falsy() {
            inherit(transaction, session)?;
        }
        Ok(Promise::Kept(()))
    }
}

/// A child takes over its parent's place on disk where it has none of its own. Branch and repository belong to a
/// folder, so they come along only when the folder did. A continuation also takes over the conversation's routing; no
/// other child may, or messages from people would be routed into a sub-agent.
fn inherit(transaction: &mut dyn Transaction, session: &NewSession) -> Result<()> {
    let child = format!(
        "SELECT parent_session_id, cwd, CASE WHEN {} THEN 1 ELSE 0 END AS delegate FROM sessions s WHERE id = ?1",
        lineage::is_delegate("s")
    );
    let Some(child) = transaction.first(&child, std::slice::from_ref(&session.id))? else { return Ok(()) };
    let parent_id = child.get("parent_session_id").cloned().unwrap_or_default();
    let Some(parent) = transaction.first(
        "SELECT end_reason, cwd, git_repo_root, git_branch, user_id, session_key, chat_id, chat_type, thread_id, \
             display_name, origin_json FROM sessions WHERE id = ?1",
        &[parent_id],
    )?
    else {
        return Ok(());
    };
    let of_parent = |column: &str| parent.get(column).cloned().unwrap_or_default();
    let own_folder = child.get("cwd").is_some_and(|cwd| !cwd.is_null() && *cwd != of_parent("cwd"));
    if !own_folder {
        transaction.execute(
            "UPDATE sessions SET cwd = COALESCE(cwd, ?2), git_repo_root = COALESCE(git_repo_root, ?3), \
                 git_branch = COALESCE(git_branch, ?4) WHERE id = ?1",
            &[session.id.clone(), of_parent("cwd"), of_parent("git_repo_root"), of_parent("git_branch")],
        )?;
    }
    if parent.text("end_reason") == Some("compression") && child.integer("delegate") == Some(0) {
        transaction.execute(
            "UPDATE sessions SET user_id = COALESCE(user_id, ?2), session_key = COALESCE(session_key, ?3), \
                 chat_id = COALESCE(chat_id, ?4), chat_type = COALESCE(chat_type, ?5), \
                 thread_id = COALESCE(thread_id, ?6), display_name = COALESCE(display_name, ?7), \
                 origin_json = COALESCE(origin_json, ?8) WHERE id = ?1",
            &[
                session.id.clone(),
                of_parent("user_id"),
                of_parent("session_key"),
                of_parent("chat_id"),
                of_parent("chat_type"),
                of_parent("thread_id"),
                of_parent("display_name"),
                of_parent("origin_json"),
            ],
        )?;
    }
    Ok(())
}

/// Ends a live session; the first end and its reason stay.
pub(crate) struct EndSession {
    pub(crate) id: Value,
    pub(crate) reason: Value,
}

impl Write for EndSession {
    type Answer = ();

    fn subject(&self) -> Option<&str> {
        self.id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        transaction.execute(
            "UPDATE sessions SET ended_at = ?2, end_reason = ?3 WHERE id = ?1 AND ended_at IS NULL",
            &[self.id.clone(), clock::now().into(), self.reason.clone()],
        )?;
        Ok(Promise::Kept(()))
    }
}

/// Makes a session live again.
pub(crate) struct ReopenSession {
    pub(crate) id: Value,
}

impl Write for ReopenSession {
    type Answer = ();

    fn subject(&self) -> Option<&str> {
        self.id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        transaction.execute(
            "UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?1",
            std::slice::from_ref(&self.id),
        )?;
        Ok(Promise::Kept(()))
    }
}

/// Marks an end that was an accident, or a session that has not ended, as a reset on purpose.
pub(crate) struct PromoteToSessionReset {
    pub(crate) id: Value,
    pub(crate) reason: Value,
}

impl Write for PromoteToSessionReset {
    type Answer = bool;

    fn subject(&self) -> Option<&str> {
        self.id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<bool>> {
        let [first, second] = ACCIDENTAL_ENDS;
        let changed = transaction.execute(
            "UPDATE sessions SET ended_at = ?2, end_reason = ?3 \
             WHERE id = ?1 AND (ended_at IS NULL OR end_reason IN (?4, ?5))",
            &[self.id.clone(), clock::now().into(), self.reason.clone(), first.into(), second.into()],
        )?;
        Ok(Promise::Kept(changed > 0))
    }
}

/// Notes whether the gateway has finished its expiry handling.
pub(crate) struct SetExpiryFinalized {
    pub(crate) id: Value,
    pub(crate) finalized: bool,
}

impl Write for SetExpiryFinalized {
    type Answer = ();

    fn subject(&self) -> Option<&str> {
        self.id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        transaction.execute(
            "UPDATE sessions SET expiry_finalized = ?2 WHERE id = ?1",
            &[self.id.clone(), self.finalized.into()],
        )?;
        Ok(Promise::Kept(()))
    }
}
