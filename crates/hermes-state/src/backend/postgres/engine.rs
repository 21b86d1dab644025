//! The write side of a store on a server, as the gate drives it: transactions that are sent in few round trips, and that
//! are found again when the connection broke before their end was seen.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use uuid::{NoContext, Timestamp, Uuid};

use super::connect::LOCK_TIMEOUT;
use super::session::Session;
use super::transaction::ServerTransaction;
use crate::backend::{Attempt, Operation, Stored, WriteEngine};
use crate::error::{Error, Holder, Result};
use crate::transaction::Transaction;

/// How long a statement waits for a lock, as [`LOCK_TIMEOUT`] tells, for what has met a lock before: in between it is others' turn.
const LOCK_TIMEOUT_APART: Duration = Duration::from_secs(1);
/// The same for several writes together, after a lock was met so short a time ago: not all of them are to wait for it.
const LOCK_TIMEOUT_TOGETHER: Duration = Duration::from_millis(200);
const LOCKS_ABOUT: Duration = Duration::from_secs(5);
/// The same in a transaction that has the writes to itself.
const LOCK_TIMEOUT_IN_TURN: Duration = Duration::from_millis(500);
/// Also who has no time to wait makes one attempt.
const SHORTEST_LOCK_TIMEOUT: Duration = Duration::from_millis(50);

/// For how much longer than the patience of a write its transaction is waited for: it would be a pity to leave a commit
/// on its way, and the server's own word on a lock comes first.
const GRACE: Duration = Duration::from_millis(500);

/// After so many commits what was noted of long finished writes is cleared away, so many rows at a time.
const COMMITS_PER_CLEARING: u64 = 256;
const CLEARED_AT_ONCE: i64 = 512;

/// How long a finished write stays noted: much longer than anybody is patient, and than clocks differ.
const NOTED: Duration = Duration::from_secs(24 * 3600);

/// The ids of writes are noted; those that were noted before are not given back.
const NOTE_ONE: &str =
    "INSERT INTO applied_writes (id, attempt) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING RETURNING id";
const NOTE_SEVERAL: &str = "INSERT INTO applied_writes (id, attempt) \
    SELECT * FROM unnest(CAST(?1 AS uuid[]), CAST(?2 AS bigint[])) ON CONFLICT (id) DO NOTHING RETURNING id";

/// The note of a write that travels with its COMMIT. `lastval` is the id of its message. It comes last, with the id, and fails
/// if another attempt has made it.
const NOTE_ROW: &str = "INSERT INTO applied_writes (id, attempt, row_id) VALUES (?1, 0, lastval())";
/// So that what comes last is not waited for while others wait for us, a part of what it takes comes first.
const NOTING: &str = "; LOCK TABLE applied_writes IN ROW EXCLUSIVE MODE";

/// After so many conflicts a transaction waits for its turn and then has the store's writes to itself. Isolated ones lose
/// to whoever commits while they wait for a lock; on a busy session that is somebody each time.
const PATIENT_CONFLICTS: u32 = 3;

/// Every write adds a row to this table before it touches another, so that whoever waits here holds up nobody. As the
/// first statement of a transaction it comes before the state is fixed that the transaction sees.
const TURN: &str = "; LOCK TABLE applied_writes IN EXCLUSIVE MODE";

/// The longest pause after a conflict with another transaction; the first ones are much shorter.
const LONGEST_PAUSE: Duration = Duration::from_millis(40);

/// The writing connection of one store.
pub(super) struct PostgresEngine {
    session: Session,
    open: bool,
    /// Whether the end of the last transaction was not seen.
    unseen: bool,
    /// The server's processes that may still be at a COMMIT that was sent before anything was seen to have worked.
    at_it: Vec<i32>,
    conflicts: u32,
    /// When somebody's lock was met last.
    lock_met: Option<Instant>,
    commits: u64,
}

impl PostgresEngine {
    /// Takes over a session, connected or not.
    pub(super) fn new(session: Session) -> Self {
        Self { session, open: false, unseen: false, at_it: Vec::new(), conflicts: 0, lock_met: None, commits: 0 }
    }

    fn committed(&mut self) {
        self.open = false;
        self.conflicts = 0;
        self.commits += 1;
    }

    /// Some time after a conflict, longer the more there were, and different for everybody.
    fn pause(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
        let longest = LONGEST_PAUSE.min(Duration::from_millis(1) * 2_u32.pow(self.conflicts.min(6)));
        longest.mul_f64(f64::from(now / 100 % 1000) / 1000.0)
    }

    /// Begins a transaction for these writes; `first` is what it does first. The most hurried of them decides how long it
    /// may take: whoever is more patient tries again.
    fn begin_for(&mut self, writes: &[Attempt], isolation: &str, first: &str, longest: Duration) -> Result<()> {
        let now = Instant::now();
        let left = writes.iter().map(|write| write.deadline.saturating_duration_since(now)).min().unwrap_or_default();
        let lock_timeout = left.clamp(SHORTEST_LOCK_TIMEOUT, longest);
        self.open = true;
        self.session.begin(
            &if lock_timeout == LOCK_TIMEOUT {
                format!("BEGIN ISOLATION LEVEL {isolation}{first}")
            } else {
                format!(
                    "BEGIN ISOLATION LEVEL {isolation}; SET LOCAL lock_timeout = {}{first}",
                    lock_timeout.as_millis()
                )
            },
            now + left + GRACE,
        )
    }

    /// Asks which of the processes that may still be at a commit there still are. One that is gone does not come back.
    fn look_who_is_at_it(&mut self) -> Result<()> {
        if !self.at_it.is_empty() {
            let asked = self.session.send_native(
                "SELECT pid FROM pg_stat_activity WHERE pid = ANY (?1)",
                vec![Box::new(self.at_it.clone())],
            )?;
            let (rows, _) = self.session.receive(asked)?;
            self.at_it = rows.iter().map(|row| row.get(0)).collect();
        }
        Ok(())
    }

    /// Clears away what was noted of writes that finished long ago. It matters to nobody if it fails.
    fn clear(&mut self) {
        let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) else { return };
        // Ids begin with the time at which they were made.
        let long_ago = now.saturating_sub(NOTED);
        let long_ago = Timestamp::from_unix(NoContext, long_ago.as_secs(), long_ago.subsec_nanos());
        let sql = format!(
            "DELETE FROM applied_writes WHERE id IN (SELECT id FROM applied_writes WHERE id < '{}' \
             ORDER BY id LIMIT {CLEARED_AT_ONCE} FOR UPDATE SKIP LOCKED)",
            Uuid::new_v7(long_ago)
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

    /// Messages are only added and counters only grow, which any number of transactions may do side by side, also when
    /// they were spooled; what is
    /// copied from another store is nobody else's to change. Other writes look before they change, and are isolated as if they came one after the other, as in a file they do.
    fn record(&mut self, writes: &[Attempt]) -> Result<Vec<Stored>> {
        let adds_only = |operation| matches!(operation, Operation::Transcript | Operation::Replay | Operation::Migrate);
        let is_transcript = writes.iter().all(|write| adds_only(write.operation));
        let isolation = if is_transcript { "READ COMMITTED" } else { "SERIALIZABLE" };
        let (turn, longest) = if !is_transcript && self.conflicts >= PATIENT_CONFLICTS {
            (TURN, LOCK_TIMEOUT_IN_TURN)
        } else if writes.iter().any(|write| write.apart) {
            ("", LOCK_TIMEOUT_APART)
        } else if writes.len() > 1 && self.lock_met.is_some_and(|met| met.elapsed() < LOCKS_ABOUT) {
            ("", LOCK_TIMEOUT_TOGETHER)
        } else {
            ("", LOCK_TIMEOUT)
        };
        self.begin_for(writes, isolation, turn, longest)?;
        let ids: Vec<Uuid> = writes.iter().map(|write| write.write).collect();
        let number = |write: &Attempt| i64::try_from(write.number).unwrap_or(i64::MAX);
        // Where an earlier attempt is still being committed this waits for its end.
        let noted = match writes {
            [write] => self.session.send_native(NOTE_ONE, vec![Box::new(write.write), Box::new(number(write))])?,
            writes => {
                let numbers: Vec<i64> = writes.iter().map(number).collect();
                self.session.send_native(NOTE_SEVERAL, vec![Box::new(ids.clone()), Box::new(numbers)])?
            }
        };
        if writes.iter().all(|write| write.number == 0) {
            return Ok(Vec::new());
        }
        let (rows, _) = self.session.receive(noted)?;
        self.look_who_is_at_it()?;
        if rows.len() == writes.len() {
            return Ok(Vec::new());
        }
        let fresh: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
        let found = self.session.send_native(
            "SELECT id, attempt, row_id FROM applied_writes WHERE id = ANY (?1) AND NOT id = ANY (?2)",
            vec![Box::new(ids), Box::new(fresh)],
        )?;
        let (rows, _) = self.session.receive(found)?;
        let stored = rows.iter().filter_map(|row| {
            let number: i64 = row.get(1);
            Some(Stored { write: row.get(0), number: usize::try_from(number).ok()?, row: row.get(2) })
        });
        Ok(stored.collect())
    }

    const COMMITS_AT_ONCE: bool = true;

    fn begin_at_once(&mut self, write: &Attempt) -> Result<()> {
        let longest = if write.apart { LOCK_TIMEOUT_APART } else { LOCK_TIMEOUT };
        self.unseen = false;
        self.begin_for(std::slice::from_ref(write), "READ COMMITTED", NOTING, longest)
    }

    fn send_commit(&mut self, write: &Attempt) -> Result<()> {
        self.session.send_native(NOTE_ROW, vec![Box::new(write.write)])?;
        let process = self.session.server_process();
        self.session.send_batch("COMMIT")?;
        self.at_it.extend(process);
        Ok(())
    }

    fn see_commit(&mut self, answered: Result<()>) -> Result<()> {
        let process = self.at_it.pop();
        let ended = self.session.see_commit(answered, &mut self.unseen);
        if self.unseen {
            self.at_it.extend(process);
            return ended;
        }
        ended.map(|()| self.committed())
    }

    fn has_seen_the_end(&self) -> bool {
        self.at_it.is_empty()
    }

    fn in_transaction(&self) -> bool {
        self.open
    }

    fn is_passing(&self) -> bool {
        self.session.is_passing()
    }

    fn is_locked(&self) -> bool {
        self.session.is_locked()
    }

    fn is_unseen(&self) -> bool {
        self.unseen
    }

    fn may_share(one: Operation, other: Operation) -> bool {
        (one == Operation::Transcript) == (other == Operation::Transcript)
    }

    fn commit(&mut self, _: Instant) -> Result<bool> {
        self.unseen = false;
        self.session.commit(&mut self.unseen)?;
        self.committed();
        Ok(true)
    }

    fn rollback(&mut self) {
        if std::mem::take(&mut self.open) {
            self.session.rollback();
            if self.session.is_locked() {
                self.lock_met = Some(Instant::now());
            }
            // What is locked by others is not to be waited for with the writes to oneself.
            self.conflicts = if self.session.has_conflicted() { self.conflicts + 1 } else { 0 };
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
        // Somebody was seen in the way, on another connection, of a server that seemed not to answer.
        let gone = self.session.absence().is_some() && holder.is_none();
        if perhaps_stored || gone {
            self.session.unreachable(perhaps_stored)
        } else {
            Error::LockedOnServer { path: self.session.path(), waited, holder }
        }
    }
}
