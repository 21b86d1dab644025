//! The write gate: the only way to a commit. Waits with patience, takes the fair turn, and commits the queued writes
//! of this process together. Nobody else retries.
//!
//! Threads do not fight over the write lock: they queue, and one thread per store, the one that runs [`Gate::serve`],
//! commits what is queued, each write in a savepoint of its own so that one that fails fails alone.

use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::backend::{Operation, WriteEngine};
use crate::error::{Error, Result};
use crate::op::Write;
use crate::transaction::Transaction;

/// The most writes that share one commit: beyond it a write would wait for many others without gaining throughput.
const GROUP: usize = 64;

/// How long the engine may wait before the gate looks at its queue again: bounds by how much a patience overshoots.
const SLICE: Duration = Duration::from_millis(50);

/// How often a waiting caller is asked whether it still wants its write.
const ASK: Duration = Duration::from_millis(100);

/// Asks the caller, on its own thread, whether it wants its write no longer.
pub(crate) type Interrupt = dyn Fn() -> bool + Send + Sync;

/// The queue of one store and the thread that serves it.
pub(crate) struct Gate<E> {
    queue: Mutex<Queue<E>>,
    arrived: Condvar,
}

struct Queue<E> {
    entries: VecDeque<Entry<E>>,
    /// How many writes have been queued.
    writes: u64,
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
    /// Tells it from the others in the queue.
    number: u64,
    /// Whether it has to be committed without company, after company failed with it.
    alone: bool,
}

/// A write with its answer, whatever their types.
trait Job: Send {
    fn operation(&self) -> Operation;
    fn apply(&mut self, transaction: &mut dyn Transaction) -> Result<()>;
    fn conclude(self: Box<Self>, outcome: Result<()>);
}

struct Typed<W: Write> {
    write: W,
    answer: Option<W::Answer>,
    reply: SyncSender<Result<W::Answer>>,
}

impl<W: Write> Job for Typed<W> {
    fn operation(&self) -> Operation {
        W::OPERATION
    }

    fn apply(&mut self, transaction: &mut dyn Transaction) -> Result<()> {
        self.answer = Some(self.write.apply(transaction)?);
        Ok(())
    }

    fn conclude(mut self: Box<Self>, outcome: Result<()>) {
        let answer = outcome.and_then(|()| self.answer.take().ok_or_else(unanswered));
        // The caller waits for this; if its thread is gone, nobody is left to tell.
        let _ = self.reply.send(answer);
    }
}

fn unanswered() -> Error {
    Error::Engine {
        message: "the writing thread ended before it answered; whether the write was stored is unknown".into(),
        code: 0,
    }
}

impl<E: WriteEngine> Gate<E> {
    pub(crate) fn new() -> Self {
        Self {
            queue: Mutex::new(Queue { entries: VecDeque::new(), writes: 0, closed: false }),
            arrived: Condvar::new(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue<E>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a write and waits until it is durably stored, refused, or out of patience. While it waits, `interrupt` is
    /// asked from time to time whether the caller wants it no longer; a write that is being committed is past that.
    pub(crate) fn write<W: Write>(
        &self,
        write: W,
        patience: Duration,
        interrupt: Option<&Interrupt>,
    ) -> Result<W::Answer> {
        let (reply, answer) = sync_channel(1);
        let since = Instant::now();
        let job = Box::new(Typed { write, answer: None, reply });
        let number = self.push_write(|number| Pending { job, since, deadline: since + patience, number, alone: false });
        let Some(interrupt) = interrupt else { return answer.recv().unwrap_or_else(|_| Err(unanswered())) };
        loop {
            match answer.recv_timeout(ASK) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => return Err(unanswered()),
                Err(RecvTimeoutError::Timeout) if interrupt() && self.withdraw(number) => {
                    return Err(Error::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Takes a write out of the queue; `false` if it is not there any more.
    fn withdraw(&self, number: u64) -> bool {
        let mut queue = self.queue();
        let before = queue.entries.len();
        queue.entries.retain(|entry| !matches!(entry, Entry::Write(pending) if pending.number == number));
        queue.entries.len() < before
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

    fn push_write(&self, pending: impl FnOnce(u64) -> Pending) -> u64 {
        let number = {
            let mut queue = self.queue();
            queue.writes += 1;
            queue.writes
        };
        self.push(Entry::Write(pending(number)));
        number
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
                        pending.job.conclude(Err(error.clone()));
                    }
                    return;
                }
            }
        }
        let mut group = self.take_writes(GROUP);
        if group.len() == 1 {
            let pending = group.remove(0);
            self.commit_one(engine, pending);
        } else if !group.is_empty() {
            self.commit_group(engine, group);
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
                pending.job.conclude(Err(engine.busy(waited, holder.clone())));
            }
        }
        more
    }

    /// The writes at the head of the queue, at most `most`, one only if it has to go alone.
    fn take_writes(&self, most: usize) -> Vec<Pending> {
        let mut queue = self.queue();
        let mut taken = Vec::new();
        while taken.len() < most {
            match queue.entries.front() {
                Some(Entry::Write(pending)) if !pending.alone || taken.is_empty() => {}
                _ => break,
            }
            let Some(Entry::Write(pending)) = queue.entries.pop_front() else { unreachable!("seen above") };
            let alone = pending.alone;
            taken.push(pending);
            if alone {
                break;
            }
        }
        taken
    }

    fn commit_one(&self, engine: &mut E, mut pending: Pending) {
        let outcome = match pending.job.apply(engine.transaction()) {
            Ok(()) => self.commit(engine, pending.deadline, pending.since),
            Err(error) => {
                engine.rollback();
                Err(error)
            }
        };
        pending.job.conclude(outcome);
    }

    fn commit_group(&self, engine: &mut E, group: Vec<Pending>) {
        let mut stored: Vec<Pending> = Vec::with_capacity(group.len());
        let mut rest = VecDeque::from(group);
        while let Some(mut pending) = rest.pop_front() {
            let outcome = in_savepoint(engine.transaction(), |transaction| pending.job.apply(transaction));
            if outcome.is_err() && !engine.in_transaction() {
                // The engine gave up the whole transaction (disk full, I/O): nothing of it is stored. Whoever caused
                // it learns why; the others try again, each without company.
                pending.job.conclude(outcome);
                engine.rollback();
                self.again_alone(stored.into_iter().chain(rest));
                return;
            }
            match outcome {
                Ok(()) => stored.push(pending),
                Err(_) => pending.job.conclude(outcome),
            }
        }
        let Some(deadline) = stored.iter().map(|pending| pending.deadline).max() else {
            engine.rollback();
            return;
        };
        let since = stored.iter().map(|pending| pending.since).min().unwrap_or(deadline);
        let outcome = self.commit(engine, deadline, since);
        for pending in stored {
            pending.job.conclude(outcome.clone());
        }
    }

    fn commit(&self, engine: &mut E, deadline: Instant, since: Instant) -> Result<()> {
        match engine.commit(deadline) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let holder = engine.holder();
                engine.rollback();
                Err(engine.busy(since.elapsed(), holder))
            }
            Err(error) => {
                engine.rollback();
                Err(error)
            }
        }
    }

    fn again_alone(&self, writes: impl DoubleEndedIterator<Item = Pending>) {
        let mut queue = self.queue();
        for pending in writes.rev() {
            queue.entries.push_front(Entry::Write(Pending { alone: true, ..pending }));
        }
    }
}

enum Next<E> {
    Write(Operation),
    Task(Box<dyn FnOnce(&mut E) + Send>),
}

fn in_savepoint(
    transaction: &mut dyn Transaction,
    apply: impl FnOnce(&mut dyn Transaction) -> Result<()>,
) -> Result<()> {
    transaction.execute("SAVEPOINT one_write", &[])?;
    let outcome = apply(transaction);
    if outcome.is_err() {
        // If the engine has already given up the transaction there is no savepoint to go back to; the caller looks.
        let _ = transaction.execute("ROLLBACK TO one_write", &[]);
    }
    let released = transaction.execute("RELEASE one_write", &[]);
    outcome.and(released.map(drop))
}
