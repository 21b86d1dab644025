//! Operations on what is known about a session: where it works, with which model and prompt.

use std::sync::Arc;
use std::time::Instant;

use super::SessionDb;
use crate::blank;
use crate::error::Result;
use crate::op::detail::{BackfillRepoRoots, UpdateCwd, UpdateMeta, UpdateModel, UpdateSystemPrompt};
use crate::query::session::{Rootless, rootless};
use crate::value::Value;

/// What a probe found out: text without blanks at its ends; nothing if nothing is left.
fn probed(value: Value) -> Option<Value> {
    let value = match value {
        Value::Text(text) => Value::from(blank::trim(&text)),
        other => other,
    };
    (!value.is_falsy()).then_some(value)
}

impl SessionDb {
    /// Notes where a session works. A branch or repository that is blank was not found out, and what is known stays.
    /// Without a session or folder this does nothing.
    ///
    /// # Errors
    /// Those of every write.
    pub fn update_session_cwd(
        &self,
        id: impl Into<Value>,
        cwd: impl Into<Value>,
        git_branch: impl Into<Value>,
        git_repo_root: impl Into<Value>,
    ) -> Result<()> {
        let (id, cwd) = (id.into(), cwd.into());
        if id.is_falsy() || cwd.is_falsy() {
            return Ok(());
        }
        let (git_branch, git_repo_root) = (probed(git_branch.into()), probed(git_repo_root.into()));
        self.routine(UpdateCwd { id, cwd, git_branch, git_repo_root })
    }

    /// Notes repositories by folder: every session that works in just this folder and has no repository gets the one
    /// given for it, one of them if several are. Pairs that lack a side are passed over. Sessions go in steps, between which
    /// others write.
    ///
    /// # Errors
    /// Those of every write.
    pub fn backfill_repo_roots<C: Into<Value>, R: Into<Value>>(
        &self,
        cwd_to_root: impl IntoIterator<Item = (C, R)>,
    ) -> Result<()> {
        let pairs = cwd_to_root.into_iter().map(|(cwd, root)| (cwd.into(), root.into()));
        let roots: Vec<(Value, Value)> = pairs.filter(|(cwd, root)| !cwd.is_falsy() && !root.is_falsy()).collect();
        if roots.is_empty() {
            return Ok(());
        }
        self.check_writable()?;
        let list: Arc<[Rootless]> = self.read_at_length(move |transaction| rootless(transaction, &roots))?.into();
        let mut from = 0;
        while from < list.len() {
            let began = Instant::now();
            from = self.routine(BackfillRepoRoots { list: list.clone(), from })?;
            if from < list.len() {
                self.rest(began)?;
            }
        }
        Ok(())
    }

    /// Replaces a session's configuration by a text that is not looked into; NULL takes it away. The model is replaced
    /// too unless it is NULL.
    ///
    /// # Errors
    /// Those of every write.
    pub fn update_session_meta(
        &self,
        id: impl Into<Value>,
        model_config: impl Into<Value>,
        model: impl Into<Value>,
    ) -> Result<()> {
        self.routine(UpdateMeta { id: id.into(), model_config: model_config.into(), model: model.into() })
    }

    /// Replaces a session's system prompt; NULL takes it away.
    ///
    /// # Errors
    /// Those of every write.
    pub fn update_system_prompt(&self, id: impl Into<Value>, system_prompt: impl Into<Value>) -> Result<()> {
        self.routine(UpdateSystemPrompt { id: id.into(), system_prompt: system_prompt.into() })
    }

    /// Replaces a session's model; NULL takes it away.
    ///
    /// # Errors
    /// Those of every write.
    pub fn update_session_model(&self, id: impl Into<Value>, model: impl Into<Value>) -> Result<()> {
        self.routine(UpdateModel { id: id.into(), model: model.into() })
    }
}
