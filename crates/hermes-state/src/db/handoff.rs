//! Operations on handoffs: a session moves from a local front end to a platform of a gateway.
//!
//! A front end requests, the gateway claims what is pending, does it, and completes or fails it. There is no lease: a
//! gateway that dies in between leaves the handoff running until somebody fails it.

use super::SessionDb;
use crate::error::Result;
use crate::op::handoff::{Step, StepHandoff};
use crate::query::handoff::{self as handoffs, Handoff};
use crate::session::Session;
use crate::value::Value;

/// How much of an error is kept, in characters.
const LONGEST_ERROR: usize = 500;

impl SessionDb {
    /// Asks for a session to be taken over by a platform; returns whether it now is pending, which it is not if a handoff
    /// is under way or there is no such session.
    ///
    /// ```
    /// # use hermes_state::{NewSession, SessionDb};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let db = SessionDb::open(folder.path().join("state.db"))?;
    /// db.create_session(NewSession::new("s1", "cli"))?;
    /// assert!(db.request_handoff("s1", "telegram")?);
    /// for session in db.list_pending_handoffs()? {
    ///     if db.claim_handoff(session.id())? {
    ///         db.complete_handoff(session.id())?;
    ///     }
    /// }
    /// assert_eq!(db.handoff_state("s1")?.unwrap().state.as_deref(), Some("completed"));
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of every write.
    pub fn request_handoff(&self, session_id: impl Into<Value>, platform: impl Into<Value>) -> Result<bool> {
        self.step_handoff(session_id, Step::Request(platform.into()))
    }

    /// Makes a pending handoff the caller's; returns whether it is. Of several callers one gets it.
    ///
    /// # Errors
    /// Those of every write.
    pub fn claim_handoff(&self, session_id: impl Into<Value>) -> Result<bool> {
        self.step_handoff(session_id, Step::Claim)
    }

    /// Notes that a handoff is done, whatever its state was. For a session that does not exist this does nothing.
    ///
    /// # Errors
    /// Those of every write.
    pub fn complete_handoff(&self, session_id: impl Into<Value>) -> Result<()> {
        self.step_handoff(session_id, Step::Complete).map(drop)
    }

    /// Notes that a handoff has failed, whatever its state was, and the first 500 characters of why. For a session that
    /// does not exist this does nothing.
    ///
    /// # Errors
    /// Those of every write.
    pub fn fail_handoff(&self, session_id: impl Into<Value>, error: &str) -> Result<()> {
        let error = error.chars().take(LONGEST_ERROR).collect();
        self.step_handoff(session_id, Step::Fail(error)).map(drop)
    }

    fn step_handoff(&self, session_id: impl Into<Value>, step: Step) -> Result<bool> {
        self.routine(StepHandoff { session_id: session_id.into(), step })
    }

    /// How the handoff of a session stands; `None` if there is no such session.
    ///
    /// # Errors
    /// Those of every read.
    pub fn handoff_state(&self, session_id: impl Into<Value>) -> Result<Option<Handoff>> {
        let session_id = session_id.into();
        self.read(move |transaction| handoffs::get(transaction, &session_id))
    }

    /// The sessions whose handoff is pending, in the order in which they began; ended and archived ones too.
    ///
    /// # Errors
    /// Those of every read.
    pub fn list_pending_handoffs(&self) -> Result<Vec<Session>> {
        self.read(handoffs::pending)
    }
}
