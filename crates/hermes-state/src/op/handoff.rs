//! Writes of handoffs: each is one conditional statement, which alone decides who of several wins.

use super::{Promise, Write};
use crate::error::Result;
use crate::transaction::Transaction;
use crate::value::Value;

/// What is done to the handoff of a session.
pub(crate) enum Step {
    /// A platform is asked to take the session over, unless a handoff is under way.
    Request(Value),
    /// Whoever runs a pending handoff makes it its own.
    Claim,
    /// It is done, whatever it was.
    Complete,
    /// It has failed, whatever it was.
    Fail(String),
}

/// A step of a session's handoff; answers whether the session changed.
pub(crate) struct StepHandoff {
    pub(crate) session_id: Value,
    pub(crate) step: Step,
}

impl Write for StepHandoff {
    type Answer = bool;

    fn subject(&self) -> Option<&str> {
        self.session_id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<bool>> {
        let (change, argument) = match &self.step {
            Step::Request(platform) => (
                "handoff_state = 'pending', handoff_platform = ?2, handoff_error = NULL \
                 WHERE id = ?1 AND (handoff_state IS NULL OR handoff_state IN ('completed', 'failed'))",
                Some(platform.clone()),
            ),
            Step::Claim => ("handoff_state = 'running' WHERE id = ?1 AND handoff_state = 'pending'", None),
            Step::Complete => ("handoff_state = 'completed', handoff_error = NULL WHERE id = ?1", None),
            Step::Fail(error) => ("handoff_state = 'failed', handoff_error = ?2 WHERE id = ?1", Some(error.into())),
        };
        let parameters: Vec<_> = std::iter::once(self.session_id.clone()).chain(argument).collect();
        let changed = transaction.execute(&format!("UPDATE sessions SET {change}"), &parameters)?;
        Ok(Promise::Kept(changed > 0))
    }
}
