//! Leases on compressing a session: taking one, and storing under one what only its holder may store.
//!
//! `compression_locks` says who has a lease and until when; it is all that older releases know. Beside it stands which
//! process has it, and the lease's number among those on its session, its fence, which only rises. What stands there
//! counts for the lease that it was written with and for no other, which older releases may have put in its place.

use super::session::named;
use super::{Promise, Write};
use crate::backend::Operation;
use crate::clock;
use crate::error::{Error, LeaseLost, Result};
use crate::process::Process;
use crate::transaction::Transaction;
use crate::value::{Record, Value};

/// A lease on compressing a session. What is stored [under](crate::SessionDb::under) it is refused once it is over.
///
/// It is a plain value: a process may hand it to another, which goes on under it.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    /// The session.
    pub session_id: Value,
    /// Who has it.
    pub holder: String,
    /// Its number among the leases on this session: a later one has a greater number.
    pub fence: i64,
}

/// Takes the lease on compressing a session if nobody has a live one, or whoever has it is gone.
pub(crate) struct AcquireLease {
    pub(crate) session_id: Value,
    pub(crate) holder: String,
    /// Read before the write waited for others: a lease never begins later than its holder thinks.
    pub(crate) now: f64,
    pub(crate) ttl: f64,
    /// Who asks, if the system tells.
    pub(crate) process: Option<Process>,
}

impl Write for AcquireLease {
    type Answer = Option<Lease>;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<Option<Lease>>> {
        transaction.make_lease_table()?;
        let id = std::slice::from_ref(&self.session_id);
        transaction.execute(
            "DELETE FROM compression_locks WHERE session_id = ?1 AND expires_at < ?2",
            &[self.session_id.clone(), self.now.into()],
        )?;
        let mut noted = Noted::find(transaction, &self.session_id)?;
        if noted.as_ref().and_then(|noted| noted.process.as_ref()).is_some_and(Process::is_gone) {
            transaction.execute("DELETE FROM compression_locks WHERE session_id = ?1", id)?;
            noted = None;
        }
        let is_new = transaction.execute(
            "INSERT INTO compression_locks (session_id, holder, acquired_at, expires_at) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT (session_id) DO NOTHING",
            &[self.session_id.clone(), self.holder.as_str().into(), self.now.into(), (self.now + self.ttl).into()],
        )? > 0;
        let lock = "SELECT holder, acquired_at FROM compression_locks WHERE session_id = ?1";
        let Some(lock) = transaction.first(lock, id)? else { return Ok(Promise::Kept(None)) };
        if lock.text("holder") != Some(&self.holder) {
            return Ok(Promise::Kept(None));
        }
        let lease = |fence| Lease { session_id: self.session_id.clone(), holder: self.holder.clone(), fence };
        let fence = match noted {
            Some(noted) if noted.process == self.process => noted.fence,
            // Two processes under one name: the lease is over for one only with its term.
            Some(noted) => self.note(transaction, noted.fence, &lock, None)?,
            None => {
                let last = transaction.scalar("SELECT fence FROM hermes_state_leases WHERE session_id = ?1", id)?;
                // A lease that an older release has given may be of any process.
                let process = self.process.as_ref().filter(|_| is_new);
                self.note(transaction, last.as_i64().unwrap_or_default().saturating_add(1), &lock, process)?
            }
        };
        Ok(Promise::Kept(Some(lease(fence))))
    }
}

impl AcquireLease {
    fn note(
        &self,
        transaction: &mut dyn Transaction,
        fence: i64,
        lock: &Record,
        process: Option<&Process>,
    ) -> Result<i64> {
        transaction.execute(
            "INSERT INTO hermes_state_leases (session_id, holder, acquired_at, fence, host, pid, started) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
             ON CONFLICT (session_id) DO UPDATE SET holder = excluded.holder, acquired_at = excluded.acquired_at, \
                 fence = excluded.fence, host = excluded.host, pid = excluded.pid, started = excluded.started",
            &[
                self.session_id.clone(),
                self.holder.as_str().into(),
                lock.get("acquired_at").cloned().unwrap_or_default(),
                fence.into(),
                process.map(|process| process.host.clone()).into(),
                process.map(|process| process.pid).into(),
                process.map(|process| process.started).into(),
            ],
        )?;
        Ok(fence)
    }
}

/// What stands beside the lease that a session has.
struct Noted {
    fence: i64,
    process: Option<Process>,
}

impl Noted {
    fn find(transaction: &mut dyn Transaction, session_id: &Value) -> Result<Option<Self>> {
        let row = transaction.first(
            "SELECT n.fence, n.host, n.pid, n.started FROM hermes_state_leases n JOIN compression_locks l \
             ON l.session_id = n.session_id AND l.holder = n.holder AND l.acquired_at = n.acquired_at \
             WHERE n.session_id = ?1",
            std::slice::from_ref(session_id),
        )?;
        Ok(row.map(|row| Self { fence: row.integer("fence").unwrap_or_default(), process: process(&row) }))
    }
}

fn process(row: &Record) -> Option<Process> {
    let host = row.text("host")?.to_owned();
    Some(Process { host, pid: row.integer("pid")?, started: row.integer("started")? })
}

/// A write that is refused unless its lease is still on when it is stored.
pub(crate) struct Under<W> {
    pub(crate) lease: Lease,
    pub(crate) write: W,
}

impl<W: Write> Write for Under<W> {
    type Answer = W::Answer;
    const OPERATION: Operation = W::OPERATION;

    fn subject(&self) -> Option<&str> {
        self.write.subject()
    }

    /// The write begins with what it locks first, as it does without a lease.
    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<W::Answer>> {
        let answer = self.write.apply(transaction)?;
        self.lease.check(transaction)?;
        Ok(answer)
    }
}

impl Lease {
    fn check(&self, transaction: &mut dyn Transaction) -> Result<()> {
        let id = std::slice::from_ref(&self.session_id);
        let noted = match transaction.has_table("hermes_state_leases")? {
            true => Noted::find(transaction, &self.session_id)?,
            false => None,
        };
        let lock = "SELECT holder, expires_at FROM compression_locks WHERE session_id = ?1";
        let lock = transaction.first(lock, id)?;
        let now = clock::now();
        let holder = lock.as_ref().and_then(|lock| lock.text("holder"));
        let until = lock.as_ref().and_then(|lock| lock.get("expires_at")).and_then(Value::as_f64);
        let is_live = until.is_some_and(|until| until >= now);
        let fence = noted.map(|noted| noted.fence);
        let is_same = holder == Some(&self.holder) && fence == Some(self.fence);
        if is_same && is_live {
            return Ok(());
        }
        Err(Error::LeaseLost(Box::new(LeaseLost {
            session: named(&self.session_id),
            holder: self.holder.clone(),
            fence: self.fence,
            taken_by: holder.filter(|_| is_live).map(str::to_owned),
            newest: fence.filter(|_| is_live),
            lapsed_for: until.filter(|_| is_same).map(|until| now - until),
        })))
    }
}
