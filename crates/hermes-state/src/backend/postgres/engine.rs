//! The write side of a store on a server, as the gate drives it: transactions that are sent in few round trips, and that
//! are found again when the connection broke before their end was seen.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use uuid::Uuid;

use super::session::Session;
use super::transaction::ServerTransaction;
use crate::backend::{Attempt, Operation, WriteEngine};
use crate::error::{Error, Holder, Result};
use crate::transaction::Transaction;

/// How long a statement waits for a lock before the transaction is given up and tried anew. In between the writes whose
/// patience is over are answered, and withdrawn ones taken out.
const LOCK_TIMEOUT_MS: u32 = 2000;

/// After so many commits what was noted of long finished writes is cleared away, so many rows at a time.
const COMMITS_PER_CLEARING: u64 = 256;
const CLEARED_AT_ONCE: i64 = 512;

/// How long a finished write stays noted: much longer than anybody is patient.
const NOTED: &str = "1 day";

/// The longest pause after a conflict with another transaction; the first ones are much shorter.
const LONGEST_PAUSE: Duration = Duration::from_millis(40);

/// The writing connection of one store.
pub(super) struct PostgresEngine {
    session: Session,
    open: bool,
    conflicts: u32,
    commits: u64,
}

impl PostgresEngine {
    /// Takes over a session, connected or not.
    pub(super) fn new(session: Session) -> Self {
        Self { session, open: false, conflicts: 0, commits: 0 }
    }

    /// Some time after a conflict, longer the more there were, and different for everybody.
    fn pause(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
        let longest = LONGEST_PAUSE.min(Duration::from_millis(1) * 2_u32.pow(self.conflicts.min(6)));
        longest.mul_f64(f64::from(now / 100 % 1000) / 1000.0)
    }

    /// Clears away what was noted of writes that finished long ago. It matters to nobody if it fails.
    fn clear(&mut self) {
        let sql = format!(
            "DELETE FROM applied_writes WHERE id IN (SELECT id FROM applied_writes \
             WHERE applied_at < now() - CAST('{NOTED}' AS interval) LIMIT {CLEARED_AT_ONCE} FOR UPDATE SKIP LOCKED)"
        );
        let deadline = Instant::now() + Duration::from_secs(5);
        let _ = self.session.begin(&sql, deadline).and_then(|()| self.session.receive_all());
    }
}

impl WriteEngine for PostgresEngine {
    const SAVEPOINTS: bool = false;

    fn begin(&mut self, _: Operation, until: Instant) -> Result<bool> {
        if self.conflicts > 0 {
            std::thread::sleep(self.pause().min(until.saturating_duration_since(Instant::now())));
        }
        self.session.connect(until)
    }

    fn transaction(&mut self) -> Box<dyn Transaction + '_> {
        Box::new(ServerTransaction { session: &mut self.session, renewed: None })
    }

    /// Messages are only added and counters only grow, which any number of transactions may do side by side; what is
    /// copied from another store is nobody else's to change. Other writes look before they change, and are isolated as if they came one after the other, as in a file they do.
    fn record(&mut self, writes: &[Attempt]) -> Result<Vec<Attempt>> {
        let side_by_side = |operation| matches!(operation, Operation::Transcript | Operation::Migrate);
        let isolation =
            if writes.iter().all(|write| side_by_side(write.operation)) { "READ COMMITTED" } else { "SERIALIZABLE" };
        let deadline = writes.iter().map(|write| write.deadline).max().unwrap_or_else(Instant::now);
        self.open = true;
        self.session.begin(
            &format!("BEGIN ISOLATION LEVEL {isolation}; SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}"),
            deadline.max(Instant::now() + Duration::from_millis(500)),
        )?;
        let ids: Vec<Uuid> = writes.iter().map(|write| write.write).collect();
        let numbers: Vec<i64> = writes.iter().map(|write| i64::try_from(write.number).unwrap_or(i64::MAX)).collect();
        // Where an earlier attempt is still being committed this waits for its end.
        let noted = self.session.send_native(
            "INSERT INTO applied_writes (id, attempt) SELECT * FROM unnest(CAST(?1 AS uuid[]), CAST(?2 AS bigint[])) ON CONFLICT (id) DO NOTHING RETURNING id",
            vec![Box::new(ids.clone()), Box::new(numbers)],
        )?;
        if writes.iter().all(|write| write.number == 0) {
            return Ok(Vec::new());
        }
        let (rows, _) = self.session.receive(noted)?;
        if rows.len() == writes.len() {
            return Ok(Vec::new());
        }
        let fresh: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
        let found = self.session.send_native(
            "SELECT id, attempt FROM applied_writes WHERE id = ANY (?1) AND NOT id = ANY (?2)",
            vec![Box::new(ids), Box::new(fresh)],
        )?;
        let (rows, _) = self.session.receive(found)?;
        let stored = rows.iter().filter_map(|row| {
            let (id, number): (Uuid, i64) = (row.get(0), row.get(1));
            let write = writes.iter().find(|write| write.write == id)?;
            Some(Attempt { number: usize::try_from(number).ok()?, ..*write })
        });
        Ok(stored.collect())
    }

    fn in_transaction(&self) -> bool {
        self.open
    }

    fn is_passing(&self) -> bool {
        self.session.is_passing()
    }

    fn commit(&mut self, _: Instant) -> Result<bool> {
        self.session.commit()?;
        self.open = false;
        self.conflicts = 0;
        self.commits += 1;
        Ok(true)
    }

    fn rollback(&mut self) {
        if std::mem::take(&mut self.open) {
            self.session.rollback();
            if self.session.is_passing() {
                self.conflicts += 1;
            }
        }
    }

    fn end(&mut self) {
        if self.commits >= COMMITS_PER_CLEARING {
            self.commits = 0;
            self.clear();
        }
    }

    fn holder(&mut self) -> Option<Holder> {
        self.session.holder()
    }

    fn busy(&self, waited: Duration, holder: Option<Holder>, perhaps_stored: bool) -> Error {
        if perhaps_stored || self.session.absence().is_some() {
            self.session.unreachable(perhaps_stored)
        } else {
            Error::LockedOnServer { path: self.session.path(), waited, holder }
        }
    }
}
