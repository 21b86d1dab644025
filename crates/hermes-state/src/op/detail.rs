//! Writes of what is known about a session: where it works, with which model and prompt.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Promise, Write};
use crate::error::Result;
use crate::query::session::Rootless;
use crate::statement::tuples;
use crate::transaction::Transaction;
use crate::value::Value;

/// Notes where a session works. Branch and repository are noted where they are known, and otherwise stay.
pub(crate) struct UpdateCwd {
    pub(crate) id: Value,
    pub(crate) cwd: Value,
    pub(crate) git_branch: Option<Value>,
    pub(crate) git_repo_root: Option<Value>,
}

impl Write for UpdateCwd {
    type Answer = ();

    fn subject(&self) -> Option<&str> {
        self.id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        transaction.execute(
            "UPDATE sessions SET cwd = ?2, git_branch = COALESCE(?3, git_branch), \
                 git_repo_root = COALESCE(?4, git_repo_root) WHERE id = ?1",
            &[self.id.clone(), self.cwd.clone(), self.git_branch.clone().into(), self.git_repo_root.clone().into()],
        )?;
        Ok(Promise::Kept(()))
    }
}

/// How many sessions go between two looks at the clock.
const ROOTS_PER_STATEMENT: usize = 256;

/// How long a transaction goes on to take sessions.
const TURN: Duration = Duration::from_millis(20);

/// Notes the repositories of sessions of a list, from one of them on, where none is noted and the folder is still the one
/// that it was found by; answers where the next transaction begins.
pub(crate) struct BackfillRepoRoots {
    pub(crate) list: Arc<[Rootless]>,
    pub(crate) from: usize,
}

impl Write for BackfillRepoRoots {
    type Answer = usize;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<usize>> {
        let started = Instant::now();
        let mut next = self.from;
        for part in self.list[self.from..].chunks(ROOTS_PER_STATEMENT) {
            let sql = format!(
                "WITH found (id, cwd, root) AS (VALUES {}) UPDATE sessions SET git_repo_root = f.root FROM found f \
                 WHERE f.id = sessions.id AND f.cwd = sessions.cwd AND (git_repo_root IS NULL OR git_repo_root = '')",
                tuples(part.len(), 3)
            );
            let values = part.iter().flat_map(|session| [&session.id, &session.cwd, &session.root]);
            transaction.execute(&sql, &values.cloned().collect::<Vec<_>>())?;
            next += part.len();
            if started.elapsed() >= TURN {
                break;
            }
        }
        Ok(Promise::Kept(next))
    }
}

/// Replaces a session's configuration, and its model if one is given.
pub(crate) struct UpdateMeta {
    pub(crate) id: Value,
    pub(crate) model_config: Value,
    pub(crate) model: Value,
}

impl Write for UpdateMeta {
    type Answer = ();

    fn subject(&self) -> Option<&str> {
        self.id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        transaction.execute(
            "UPDATE sessions SET model_config = ?2, model = COALESCE(?3, model) WHERE id = ?1",
            &[self.id.clone(), self.model_config.clone(), self.model.clone()],
        )?;
        Ok(Promise::Kept(()))
    }
}

/// Replaces a session's system prompt.
pub(crate) struct UpdateSystemPrompt {
    pub(crate) id: Value,
    pub(crate) system_prompt: Value,
}

impl Write for UpdateSystemPrompt {
    type Answer = ();

    fn subject(&self) -> Option<&str> {
        self.id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        transaction.execute(
            "UPDATE sessions SET system_prompt = ?2 WHERE id = ?1",
            &[self.id.clone(), self.system_prompt.clone()],
        )?;
        Ok(Promise::Kept(()))
    }
}

/// Replaces a session's model.
pub(crate) struct UpdateModel {
    pub(crate) id: Value,
    pub(crate) model: Value,
}

impl Write for UpdateModel {
    type Answer = ();

    fn subject(&self) -> Option<&str> {
        self.id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        transaction.execute("UPDATE sessions SET model = ?2 WHERE id = ?1", &[self.id.clone(), self.model.clone()])?;
        Ok(Promise::Kept(()))
    }
}
