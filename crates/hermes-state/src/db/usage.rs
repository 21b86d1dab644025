//! Operations on usage: tokens, calls, costs and the route they are billed by.

use super::SessionDb;
use crate::error::{Error, Result};
use crate::op::usage::{RecordAuxiliaryUsage, RecordUsage, UpdateBillingRoute};
use crate::usage::Usage;
use crate::value::Value;

impl SessionDb {
    /// Notes by which provider and address the session is billed from now on; `None` for the mode keeps the stored one.
    /// The system prompt is forgotten, as it was made for the route before. A session that does not exist is nothing.
    ///
    /// # Errors
    /// Those of every write.
    pub fn update_billing_route(
        &self,
        session_id: impl Into<Value>,
        provider: impl Into<Value>,
        base_url: impl Into<Value>,
        mode: impl Into<Value>,
    ) -> Result<()> {
        self.routine(UpdateBillingRoute {
            session_id: session_id.into(),
            provider: provider.into(),
            base_url: base_url.into(),
            mode: mode.into(),
        })
    }

    /// Adds what the main loop of a session has used to its totals, and to those of the model and route. A missing
    /// session is created, from the source `unknown`. What the usage leaves open of the route is the session's; the
    /// first usage of a session decides its route.
    ///
    /// ```
    /// use hermes_state::{NewSession, SessionDb, Usage};
    /// let folder = tempfile::tempdir().unwrap();
    /// let db = SessionDb::open(folder.path().join("state.db"))?;
    /// db.create_session(NewSession::new("s1", "cli"))?;
    /// db.record_usage("s1", Usage::new("large-1", "harbour-cloud").input_tokens(1200).api_call_count(1))?;
    /// db.record_usage("s1", Usage::new("large-1", "harbour-cloud").input_tokens(300).api_call_count(1))?;
    /// assert_eq!(db.session("s1")?.unwrap().record().integer("input_tokens"), Some(1500));
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty id.
    pub fn record_usage(&self, session_id: impl Into<Value>, usage: Usage) -> Result<()> {
        self.account(session_id.into(), usage, false)
    }

    /// Sets the totals of what the main loop of a session has used; what is absent stays. They are not split by model,
    /// which totals do not tell.
    ///
    /// # Errors
    /// As [`record_usage`](SessionDb::record_usage).
    pub fn set_usage(&self, session_id: impl Into<Value>, total: Usage) -> Result<()> {
        self.account(session_id.into(), total, true)
    }

    fn account(&self, session_id: Value, usage: Usage, total: bool) -> Result<()> {
        if session_id.is_falsy() {
            return Err(Error::Invalid("usage is accounted on a session, which needs an id".into()));
        }
        self.routine(RecordUsage { session_id, usage, total })
    }

    /// Adds what a task beside the main loop (`vision`, `compression`, `title_generation`, …) has used: one call, split
    /// by model and task. The session's own totals do not include it. Without an id or a task this does nothing; a
    /// missing session is created, from the source `unknown`.
    ///
    /// # Errors
    /// Those of every write.
    pub fn record_auxiliary_usage(
        &self,
        session_id: impl Into<Value>,
        task: impl Into<Value>,
        usage: Usage,
    ) -> Result<()> {
        let (session_id, task) = (session_id.into(), task.into());
        if session_id.is_falsy() || task.is_falsy() {
            return Ok(());
        }
        let usage = Usage {
            api_call_count: 1.into(),
            billing_mode: Value::Null,
            actual_cost_usd: Value::Null,
            cost_status: Value::Null,
            cost_source: Value::Null,
            ..usage
        };
        self.routine(RecordAuxiliaryUsage { session_id, task, usage })
    }
}
