//! Leases on compressing a session that die with their owner, and storing under them.

use super::SessionDb;
use crate::clock;
use crate::error::Result;
use crate::message::NewMessage;
use crate::op::Write;
use crate::op::compaction::ArchiveAndCompact;
use crate::op::lease::{AcquireLease, Lease, Under};
use crate::op::message::ReplaceMessages;
use crate::op::session::{CreateSession, EndSession};
use crate::process::Process;
use crate::session::NewSession;
use crate::value::Value;

impl SessionDb {
    /// Takes the lease on compressing a session for `ttl` seconds, so that no second agent compresses it too; `None` if
    /// another has it. A holder that has a live lease keeps it, but only
    /// [`refresh_compression_lock`](SessionDb::refresh_compression_lock) gives it a new term. The session need not exist;
    /// without an id nobody gets a lease. The term begins when this is called, not when the write lock was had.
    ///
    /// A lease is over with its term, and at once when the process that took it has ended, if that was a process of this
    /// system: of those of other hosts only the term is known.
    ///
    /// ```
    /// use hermes_state::{Error, NewMessage, NewSession, SessionDb};
    /// let folder = tempfile::tempdir().unwrap();
    /// let db = SessionDb::open(folder.path().join("state.db"))?;
    /// db.create_session(NewSession::new("s", "cli"))?;
    /// db.append_message("s", NewMessage::new("user", "A long story"))?;
    /// let lease = db.acquire_compression_lease("s", "me", 300.0)?.expect("nobody else is at it");
    /// assert_eq!(db.acquire_compression_lease("s", "you", 300.0)?, None);
    /// db.under(&lease).archive_and_compact("s", vec![NewMessage::new("user", "A story")])?;
    /// db.release_compression_lock("s", "me")?;
    /// let late = db.under(&lease).end_session("s", "compression");
    /// assert!(matches!(late, Err(Error::LeaseLost(_))));
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of every write; [`Error::Invalid`](crate::Error::Invalid) for a term that is not a number.
    pub fn acquire_compression_lease(
        &self,
        session_id: impl Into<Value>,
        holder: impl Into<String>,
        ttl: f64,
    ) -> Result<Option<Lease>> {
        let (session_id, holder) = (session_id.into(), holder.into());
        if session_id.is_falsy() {
            return Ok(None);
        }
        let ttl = super::compression::number(ttl)?;
        self.routine(AcquireLease { session_id, holder, now: clock::now(), ttl, process: Process::this() })
    }

    /// The operations with which a compression is published, as far as `lease` is still on: one that is over makes them
    /// fail with [`Error::LeaseLost`](crate::Error::LeaseLost), and nothing is changed. Whether it is on is looked at in the transaction that
    /// stores them.
    #[must_use]
    pub fn under<'a>(&'a self, lease: &'a Lease) -> UnderLease<'a> {
        UnderLease { db: self, lease }
    }
}

/// Stores what only the holder of a lease may store; see [`SessionDb::under`].
#[derive(Debug, Clone, Copy)]
pub struct UnderLease<'a> {
    db: &'a SessionDb,
    lease: &'a Lease,
}

impl UnderLease<'_> {
    fn bind<W>(&self, write: W) -> Under<W> {
        Under { lease: self.lease.clone(), write }
    }

    fn transcript<W: Write>(&self, write: W) -> Result<W::Answer> {
        self.db.transcript(self.bind(write))
    }

    /// [`SessionDb::archive_and_compact`].
    ///
    /// # Errors
    /// As it, and [`Error::LeaseLost`](crate::Error::LeaseLost).
    pub fn archive_and_compact(&self, session_id: impl Into<Value>, messages: Vec<NewMessage>) -> Result<i64> {
        self.transcript(ArchiveAndCompact::new(session_id.into(), messages))
    }

    /// [`SessionDb::replace_messages`].
    ///
    /// # Errors
    /// As it, and [`Error::LeaseLost`](crate::Error::LeaseLost).
    pub fn replace_messages(
        &self,
        session_id: impl Into<Value>,
        messages: Vec<NewMessage>,
        active_only: bool,
    ) -> Result<()> {
        self.transcript(ReplaceMessages::new(session_id.into(), messages, active_only))
    }

    /// [`SessionDb::end_session`].
    ///
    /// # Errors
    /// As it, and [`Error::LeaseLost`](crate::Error::LeaseLost).
    pub fn end_session(&self, id: impl Into<Value>, reason: impl Into<Value>) -> Result<()> {
        self.db.routine(self.bind(EndSession { id: id.into(), reason: reason.into() }))
    }

    /// [`SessionDb::create_session`], of the continuation.
    ///
    /// # Errors
    /// As it, and [`Error::LeaseLost`](crate::Error::LeaseLost).
    pub fn create_session(&self, session: NewSession) -> Result<()> {
        self.db.routine(self.bind(CreateSession(session.checked()?)))
    }
}
