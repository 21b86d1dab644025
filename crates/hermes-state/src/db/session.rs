//! Operations on sessions.

use super::SessionDb;
use crate::error::Result;
use crate::op::archive::SetArchived;
use crate::op::session::{CreateSession, EndSession, PromoteToSessionReset, ReopenSession, SetExpiryFinalized};
use crate::query::session as sessions;
use crate::session::{NewSession, Session};
use crate::value::Value;

impl SessionDb {
    /// Creates a session. If one with this id is there, what it leaves open is filled from the new one and nothing is
    /// overwritten. A child inherits its parent's working folder; a continuation of a compressed conversation also
    /// inherits the conversation's routing.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for an empty id; [`Error::Constraint`](crate::Error::Constraint) for a parent that does not exist.
    pub fn create_session(&self, session: NewSession) -> Result<()> {
        self.routine(CreateSession(session.checked()?))
    }

    /// Creates the session if it is missing: the same as [`create_session`](SessionDb::create_session), under the name
    /// that says that it may be there.
    ///
    /// # Errors
    /// As [`create_session`](SessionDb::create_session).
    pub fn ensure_session(&self, session: NewSession) -> Result<()> {
        self.create_session(session)
    }

    /// Ends a live session. The first end wins: on a session that has ended, or does not exist, this does nothing.
    ///
    /// # Errors
    /// Those of every write.
    pub fn end_session(&self, id: impl Into<Value>, reason: impl Into<Value>) -> Result<()> {
        self.routine(EndSession { id: id.into(), reason: reason.into() })
    }

    /// Makes a session live again, whatever ended it.
    ///
    /// # Errors
    /// Those of every write.
    pub fn reopen_session(&self, id: impl Into<Value>) -> Result<()> {
        self.routine(ReopenSession { id: id.into() })
    }

    /// Ends a live session as a reset, or gives one that ended by accident (`agent_close`, `ws_orphan_reap`) that end
    /// instead. Returns whether it did; any other end stays.
    ///
    /// # Errors
    /// Those of every write.
    pub fn promote_to_session_reset(&self, id: impl Into<Value>, reason: impl Into<Value>) -> Result<bool> {
        self.routine(PromoteToSessionReset { id: id.into(), reason: reason.into() })
    }

    /// Notes whether the gateway has finished its expiry handling of a session.
    ///
    /// # Errors
    /// Those of every write.
    pub fn set_expiry_finalized(&self, id: impl Into<Value>, finalized: bool) -> Result<()> {
        self.routine(SetExpiryFinalized { id: id.into(), finalized })
    }

    /// Archives a session, or takes it out again, with all of its conversation that it was compressed from and into.
    /// Returns whether it exists.
    ///
    /// # Errors
    /// Those of every write.
    pub fn set_session_archived(&self, id: impl Into<Value>, archived: bool) -> Result<bool> {
        self.routine(SetArchived { id: id.into(), archived })
    }

    /// One session, or `None`.
    ///
    /// # Errors
    /// Those of every read.
    pub fn session(&self, id: impl Into<Value>) -> Result<Option<Session>> {
        let id = id.into();
        self.read(move |transaction| sessions::get(transaction, &id))
    }
}
