//! The write gate: the only way to a commit. Waits with patience, takes the fair turn, and commits the queued writes
//! of this process together. Nobody else retries.
//!
//! Threads do not fight over the write lock: they queue, and one thread per store, the one that runs [`Gate::serve`],
//! commits what is queued, each write in a savepoint of its own so that one that fails fails alone.

mod job;

use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uuid::{NoContext, Timestamp, Uuid};

use self::job::{Job, Typed, unanswered};
use crate::backend::{Attempt, Operation, WriteEngine};
use crate::error::{Error, Result};
use crate::op::Write;
use crate::transaction::Transaction;

/// The most writes that share one commit: beyond it a write would wait for many others without gaining throughput.
const GROUP: usize = 64;

/// How long the engine may wait before the gate looks at its queue again: bounds by how much a patience overshoots.
const SLICE: Duration = Duration::from_millis(50);

/// How often a waiting caller is asked whether it still wants its write.
const ASK: Duration = Duration::from_millis(100);

/// How long a write waits before its caller is told.
const TELL: Duration = Duration::from_secs(2);

/// How often it is tried again to tell the caller, when nobody was found whom to name.
const TELL_AGAIN: Duration = Duration::from_millis(500);

/// Tells the caller, on its own thread, that its write has been waiting for so long; says whether that was all there is
/// to tell.
pub(crate) type Tell<'a> = dyn Fn(Duration) -> bool + 'a;

/// Asks the caller, on its own thread, whether it wants its write no longer.
pub(crate) type Interrupt = dyn Fn() -> bool + Send + Sync;

/// An id for a write, which no other write of any process has.
pub(crate) fn new_id() -> Uuid {
    // Without the shared counter of `now_v7`: a fork while another thread has its mutex would leave it locked.
    Uuid::new_v7(Timestamp::now(NoContext))
}

/// The queue of one store and the thread that serves it.
pub(crate) struct Gate<E> {
    queue: Mutex<Queue<E>>,
    arrived: Condvar,
}

struct Queue<E> {
    entries: VecDeque<Entry<E>>,
    /// Whether the last group was one that lives apart; then one that does not comes first.
    apart_last: bool,
    /// Set once: no more entries are taken, the thread serves what is there and leaves.
    closed: bool,
}

enum Entry<E> {
    Write(Pending),
    Task(Box<dyn FnOnce(&mut E) + Send>),
}

/// A write in the queue.
struct Pending {
    job: Box<dyn Job>,
    since: Instant,
    deadline: Instant,
    /// Tells it from all other writes of all processes.
    id: Uuid,
    /// Whether it has to be committed without company, after company failed with it.
    alone: bool,
    /// Whether a transaction with it met somebody's lock on a part of the store: from then on it shares commits only with
    /// what changes the same part, and others are not held up.
    apart: bool,
}

impl<E: WriteEngine> Gate<E> {
    pub(crate) fn new() -> Self {
        Self {
            queue: Mutex::new(Queue { entries: VecDeque::new(), apart_last: false, closed: false }),
            arrived: Condvar::new(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue<E>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a write under an [id of its own](new_id) and waits until it is durably stored, refused, or out of patience.
    /// While it waits, `interrupt` is asked from time to time whether the caller wants it no longer; a write that is being
    /// committed is past that, and waits for nobody of whom `tell` could say something.
    pub(crate) fn write<W: Write>(
        &self,
        id: Uuid,
        write: W,
        patience: Duration,
        interrupt: Option<&Interrupt>,
        tell: &Tell<'_>,
    ) -> Result<W::Answer> {
        let (reply, answer) = sync_channel(1);
        let since = Instant::now();
        let job = Box::new(Typed::new(write, reply));
        self.push(Entry::Write(Pending { job, since, deadline: since + patience, id, alone: false, apart: false }));
        let mut telling = Some(since + TELL);
        loop {
            let until_told = telling.map(|at| at.saturating_duration_since(Instant::now()));
            let pause = match interrupt {
                Some(_) => Some(until_told.unwrap_or(ASK).min(ASK)),
                None => until_told,
            };
            let received = match pause {
                Some(pause) => answer.recv_timeout(pause),
                None => answer.recv().map_err(RecvTimeoutError::from),
            };
            match received {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => return Err(unanswered()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            if telling.is_some_and(|at| at <= now) {
                telling = if self.is_waiting(id) && tell(since.elapsed()) { None } else { Some(now + TELL_AGAIN) };
            }
            if interrupt.is_some_and(|interrupt| interrupt())
                && let Some(withdrawn) = self.withdraw(id)
            {
                return Err(Error::Interrupted { perhaps_stored: withdrawn.job.is_perhaps_stored() });
            }
        }
    }

    /// Whether a write is still in the queue.
    fn is_waiting(&self, id: Uuid) -> bool {
        self.queue().entries.iter().any(|entry| matches!(entry, Entry::Write(pending) if pending.id == id))
    }

    /// Takes a write out of the queue, if it is still there.
    fn withdraw(&self, id: Uuid) -> Option<Pending> {
        let mut queue = self.queue();
        let is_it = |entry: &Entry<E>| matches!(entry, Entry::Write(pending) if pending.id == id);
        let at = queue.entries.iter().position(is_it)?;
        match queue.entries.remove(at) {
            Some(Entry::Write(pending)) => Some(pending),
            _ => None,
        }
    }

    /// Runs `task` on the store's engine between writes and waits for its result.
    pub(crate) fn with_engine<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut E) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = sync_channel(1);
        self.push(Entry::Task(Box::new(move |engine| {
            let _ = reply.send(task(engine));
        })));
        answer.recv().unwrap_or_else(|_| Err(unanswered()))
    }

    /// Has `task` run on the store's engine when its turn in the queue comes; nobody waits for it.
    pub(crate) fn afterwards(&self, task: impl FnOnce(&mut E) + Send + 'static) {
        self.push(Entry::Task(Box::new(task)));
    }

    /// An entry that comes after the close is dropped, which its sender sees as a missing answer.
    fn push(&self, entry: Entry<E>) {
        let mut queue = self.queue();
        if !queue.closed {
            queue.entries.push_back(entry);
            drop(queue);
            self.arrived.notify_one();
        }
    }

    /// Takes no more entries; [`serve`](Gate::serve) returns when the queue is empty.
    pub(crate) fn close(&self) {
        self.queue().closed = true;
        self.arrived.notify_one();
    }

    /// Serves the queue until it is closed and empty. The thread that calls this is the store's only writer.
    pub(crate) fn serve(&self, engine: &mut E) {
        while let Some(next) = self.next() {
            match next {
                Next::Task(task) => task(engine),
                Next::Write(operation) => self.commit_some(engine, operation),
            }
        }
    }

    fn next(&self) -> Option<Next<E>> {
        let mut queue = self.queue();
        loop {
            match queue.entries.front() {
                Some(Entry::Write(pending)) => return Some(Next::Write(pending.job.operation())),
                Some(Entry::Task(_)) => {
                    let Some(Entry::Task(task)) = queue.entries.pop_front() else { unreachable!("seen above") };
                    return Some(Next::Task(task));
                }
                None if queue.closed => return None,
                None => queue = self.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Waits for the write lock, then commits a group of the writes at the head of the queue.
    fn commit_some(&self, engine: &mut E, operation: Operation) {
        loop {
            match engine.begin(operation, self.look_again_at()) {
                Ok(true) => break,
                Ok(false) => {
                    if !self.expire(engine) {
                        engine.end();
                        return;
                    }
                }
                Err(error) => {
                    engine.end();
                    for pending in self.take_writes(usize::MAX) {
                        // That an earlier attempt may have stored it matters more than what is in the way now.
                        let error = if pending.job.is_perhaps_stored() {
                            engine.busy(pending.since.elapsed(), None, true)
                        } else {
                            error.clone()
                        };
                        pending.job.conclude(Err(error));
                    }
                    return;
                }
            }
        }
        let mut group = self.take_writes(GROUP);
        if E::COMMITS_AT_ONCE
            && group.len() == 1
            && let Some(pending) = group.pop_if(|pending| pending.job.kept() == 0 && pending.job.is_one_row())
        {
            self.commit_at_once(engine, pending);
        } else if let Some(group) = self.without_stored(engine, group) {
            if E::SAVEPOINTS && group.len() > 1 {
                self.commit_apart(engine, group);
            } else {
                self.commit_together(engine, group);
            }
        }
        engine.end();
    }

    /// When the engine should come back although it got no lock: at the earliest deadline, and not much later than now.
    fn look_again_at(&self) -> Instant {
        let queue = self.queue();
        let now = Instant::now();
        queue
            .entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::Write(pending) => Some(pending.deadline),
                Entry::Task(_) => None,
            })
            .fold(now + SLICE, Instant::min)
    }

    /// Answers the writes whose patience is over; returns whether a write is still at the head of the queue.
    fn expire(&self, engine: &mut E) -> bool {
        let now = Instant::now();
        let mut overdue = Vec::new();
        let mut queue = self.queue();
        let entries = std::mem::take(&mut queue.entries);
        for entry in entries {
            match entry {
                Entry::Write(pending) if pending.deadline <= now => overdue.push(pending),
                entry => queue.entries.push_back(entry),
            }
        }
        let more = matches!(queue.entries.front(), Some(Entry::Write(_)));
        drop(queue);
        if !overdue.is_empty() {
            let holder = engine.holder();
            for pending in overdue {
                let waited = now.duration_since(pending.since);
                let perhaps_stored = pending.job.is_perhaps_stored();
                pending.job.conclude(Err(engine.busy(waited, holder.clone(), perhaps_stored)));
            }
        }
        more
    }

    /// The first write of the queue and those that may share its commit, at most `most`; one only if it has to go alone.
    /// Others are passed over: all of them are being waited for, so that none needs to come before another.
    fn take_writes(&self, most: usize) -> Vec<Pending> {
        let mut queue = self.queue();
        let writes = queue.entries.iter().map_while(|entry| match entry {
            Entry::Write(pending) => Some(pending),
            Entry::Task(_) => None,
        });
        let near = writes.map(|pending| pending.apart).position(|apart| !apart);
        let mut at = near.filter(|_| queue.apart_last).unwrap_or(0);
        let mut taken: Vec<Pending> = Vec::new();
        while taken.len() < most {
            let Some(Entry::Write(pending)) = queue.entries.get(at) else { break };
            if !taken.first().is_none_or(|first| first.may_share::<E>(pending)) {
                at += 1;
                continue;
            }
            let Some(Entry::Write(pending)) = queue.entries.remove(at) else { unreachable!("seen above") };
            let alone = pending.alone;
            taken.push(pending);
            if alone {
                break;
            }
        }
        queue.apart_last = taken.first().is_some_and(|first| first.apart);
        taken
    }

    /// Notes the writes in the transaction and answers those that an earlier one has stored; the rest, if there is one.
    fn without_stored(&self, engine: &mut E, group: Vec<Pending>) -> Option<Vec<Pending>> {
        let attempts: Vec<_> = group.iter().map(Pending::attempt).collect();
        let stored = match engine.record(&attempts) {
            Ok(stored) => stored,
            Err(error) => {
                self.give_up(engine, group, error);
                return None;
            }
        };
        let mut rest = Vec::with_capacity(group.len());
        for mut pending in group {
            match stored.iter().find(|stored| stored.write == pending.id) {
                Some(stored) => pending.job.conclude_with_kept(stored.number, stored.row),
                None => {
                    // It was noted in this transaction, which no earlier attempt of it has survived.
                    if engine.has_seen_the_end() {
                        pending.job.forget();
                    }
                    rest.push(pending);
                }
            }
        }
        if rest.is_empty() {
            engine.rollback();
            return None;
        }
        Some(rest)
    }

    /// Commits writes that are stored all or none; if one of several fails, each is tried by itself.
    fn commit_together(&self, engine: &mut E, mut group: Vec<Pending>) {
        group.sort_by(|one, other| one.job.subject().cmp(&other.job.subject()));
        // Whose statements were waited for last: if somebody's lock is in the way, it is in the way of these.
        let mut at = 0;
        let applied = {
            let mut transaction = engine.transaction();
            let mut each = |step: fn(&mut dyn Job, &mut dyn Transaction) -> Result<()>| {
                group.iter_mut().enumerate().try_for_each(|(index, pending)| {
                    at = index;
                    step(&mut *pending.job, &mut *transaction)
                })
            };
            each(|job, transaction| job.apply(transaction))
                .and_then(|()| each(|job, transaction| job.fulfil(transaction)))
        };
        match applied {
            Ok(()) => self.commit(engine, group),
            Err(error) => {
                if engine.is_locked() {
                    let mut locked = group.remove(at);
                    locked.apart = true;
                    self.queue().entries.push_back(Entry::Write(locked));
                }
                self.give_up(engine, group, error);
            }
        }
    }

    /// Sends a write together with its COMMIT, so that both cost one round trip.
    fn commit_at_once(&self, engine: &mut E, mut pending: Pending) {
        let attempt = pending.attempt();
        let sent = engine
            .begin_at_once(&attempt)
            .and_then(|()| pending.job.apply(&mut *engine.transaction()))
            .and_then(|()| engine.send_commit(&attempt));
        let committed = match sent {
            Ok(()) => {
                let answered = pending.job.fulfil(&mut *engine.transaction());
                engine.see_commit(answered).inspect_err(|_| {
                    if engine.is_unseen() {
                        // Nobody knows yet whether this was the end of it: the next attempt will find out.
                        pending.job.keep_noted();
                    }
                })
            }
            Err(error) => Err(error),
        };
        match committed {
            Ok(()) => pending.job.conclude(Ok(())),
            Err(error) if engine.is_locked() => {
                pending.apart = true;
                self.queue().entries.push_back(Entry::Write(pending));
                self.give_up(engine, Vec::new(), error);
            }
            Err(error) => self.give_up(engine, vec![pending], error),
        }
    }

    /// Commits writes each of which fails by itself.
    fn commit_apart(&self, engine: &mut E, group: Vec<Pending>) {
        let mut stored: Vec<Pending> = Vec::with_capacity(group.len());
        let mut rest = VecDeque::from(group);
        while let Some(mut pending) = rest.pop_front() {
            let outcome = in_savepoint(&mut *engine.transaction(), &mut *pending.job);
            let outcome = outcome.map_err(|error| engine.judge(error));
            if outcome.is_err() && !engine.in_transaction() {
                // The engine gave up the whole transaction (disk full, I/O): nothing of it is stored. Whoever caused
                // it learns why; the others try again, each without company.
                pending.job.conclude(outcome);
                engine.rollback();
                self.again(stored.into_iter().chain(rest), true);
                return;
            }
            match outcome {
                Ok(()) => stored.push(pending),
                Err(_) if engine.is_passing() => {
                    engine.rollback();
                    self.again(stored.into_iter().chain([pending]).chain(rest), false);
                    self.expire(engine);
                    return;
                }
                Err(_) => pending.job.conclude(outcome),
            }
        }
        if stored.is_empty() {
            engine.rollback();
        } else {
            self.commit(engine, stored);
        }
    }

    fn commit(&self, engine: &mut E, mut group: Vec<Pending>) {
        let deadline = group.iter().map(|pending| pending.deadline).max().unwrap_or_else(Instant::now);
        let outcome = match engine.commit(deadline) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let holder = engine.holder();
                engine.rollback();
                let since = group.iter().map(|pending| pending.since).min().unwrap_or(deadline);
                Err(engine.busy(since.elapsed(), holder, false))
            }
            Err(_) if engine.is_passing() => {
                engine.rollback();
                if engine.is_unseen() {
                    // Nobody knows yet whether this was the end of it: the next attempt will find out.
                    group.iter_mut().for_each(|pending| pending.job.keep());
                }
                self.again(group.into_iter(), false);
                self.expire(engine);
                return;
            }
            // What was sent and not waited for may fail now, and is one write's fault.
            Err(error) if !E::SAVEPOINTS => return self.give_up(engine, group, error),
            Err(error) => {
                engine.rollback();
                Err(engine.judge(error))
            }
        };
        for pending in group {
            pending.job.conclude(outcome.clone());
        }
    }

    /// Nothing of this transaction is stored.
    fn give_up(&self, engine: &mut E, mut group: Vec<Pending>, error: Error) {
        engine.rollback();
        if engine.is_passing() {
            self.again(group.into_iter(), false);
            self.expire(engine);
        } else if group.len() > 1 {
            self.again(group.into_iter(), true);
        } else if let Some(pending) = group.pop() {
            pending.job.conclude(Err(engine.judge(error)));
        }
    }

    /// Puts writes back to the head of the queue, on request each to be committed without company.
    fn again(&self, writes: impl DoubleEndedIterator<Item = Pending>, alone: bool) {
        let mut queue = self.queue();
        for pending in writes.rev() {
            let alone = alone || pending.alone;
            queue.entries.push_front(Entry::Write(Pending { alone, ..pending }));
        }
    }
}

impl Pending {
    fn attempt(&self) -> Attempt {
        Attempt {
            write: self.id,
            number: self.job.kept(),
            operation: self.job.operation(),
            deadline: self.deadline,
            apart: self.apart,
        }
    }

    /// Whether another write may be committed with this one, which comes first.
    fn may_share<E: WriteEngine>(&self, other: &Pending) -> bool {
        let subject = self.job.subject();
        !self.alone
            && !other.alone
            && E::may_share(self.job.operation(), other.job.operation())
            && if self.apart { subject.is_some() && subject == other.job.subject() } else { !other.apart }
    }
}

enum Next<E> {
    Write(Operation),
    Task(Box<dyn FnOnce(&mut E) + Send>),
}

fn in_savepoint(transaction: &mut dyn Transaction, job: &mut dyn Job) -> Result<()> {
    transaction.execute("SAVEPOINT one_write", &[])?;
    let outcome = job.apply(transaction).and_then(|()| job.fulfil(transaction));
    if outcome.is_err() {
        // If the engine has already given up the transaction there is no savepoint to go back to; the caller looks.
        let _ = transaction.execute("ROLLBACK TO one_write", &[]);
    }
    let released = transaction.execute("RELEASE one_write", &[]);
    outcome.and(released.map(drop))
}
