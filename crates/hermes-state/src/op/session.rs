//! Writes of the session life cycle and of titles.

use super::{Promise, Write};
use crate::clock;
use crate::error::{Error, Result};
use crate::session::NewSession;
use crate::title;
use crate::transaction::Transaction;
use crate::value::Value;

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
    let Some(child) = transaction
        .first("SELECT parent_session_id, cwd FROM sessions WHERE id = ?1", std::slice::from_ref(&session.id))?
    else {
        return Ok(());
    };
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
    if parent.text("end_reason") == Some("compression") {
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

/// Gives a session a title that has been cleaned, or takes it away.
pub(crate) struct SetTitle {
    pub(crate) id: Value,
    pub(crate) title: Option<String>,
}

impl Write for SetTitle {
    type Answer = bool;

    fn subject(&self) -> Option<&str> {
        self.id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<bool>> {
        if let Some(wanted) = &self.title {
            let holder = transaction.first(
                "SELECT id, source, archived FROM sessions WHERE title = ?1 AND id <> ?2 LIMIT 1",
                &[wanted.into(), self.id.clone()],
            )?;
            if let Some(holder) = holder {
                let holder_id = holder.text("id").unwrap_or_default();
                if !title::is_compression_ancestor(transaction, holder_id, &self.id)? {
                    return Err(Error::TitleInUse {
                        title: wanted.clone(),
                        holder: holder_id.to_owned(),
                        holder_source: holder.text("source").unwrap_or_default().to_owned(),
                        archived: holder.integer("archived") == Some(1),
                    });
                }
                transaction.execute("UPDATE sessions SET title = NULL WHERE id = ?1", &[holder_id.into()])?;
            }
        }
        let changed = transaction
            .execute("UPDATE sessions SET title = ?2 WHERE id = ?1", &[self.id.clone(), self.title.clone().into()])?;
        Ok(Promise::Kept(changed > 0))
    }
}
