//! The reading connections of a store: a few threads, each with a session of its own, that are started when they are
//! needed and leave when they are not.

use std::collections::VecDeque;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::connect::Role;
use super::session::Session;
use super::transaction::ServerTransaction;
use super::url::Address;
use crate::backend::sqlite::lock::while_not_forking;
use crate::error::{Error, Result};
use crate::transaction::Transaction;

/// More would be unkind to a server that serves many hosts.
const MOST: usize = 4;

/// A connection that nobody has needed for so long is closed.
const IDLE: Duration = Duration::from_secs(60);

/// How a read begins: all its statements see the same state of the store.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// What a reading thread works with.
pub(super) struct Reader {
    pub(super) session: Session,
}

type Job = Box<dyn FnOnce(&mut Reader) + Send>;

/// The pool of one store.
pub(super) struct Readers {
    address: Arc<Address>,
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Readers {
    pub(super) fn new(address: Arc<Address>) -> Arc<Self> {
        Arc::new(Self { address, queue: Mutex::default(), arrived: Condvar::new() })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `read` in one read transaction, again and again until `patience` is over while the connection breaks or the
    /// server cannot be reached.
    pub(super) fn read<T: Send + 'static>(
        self: &Arc<Self>,
        patience: Duration,
        read: impl Fn(&mut dyn Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let deadline = Instant::now() + patience;
        self.run(move |reader, reply| {
            let outcome = reader.read(deadline, &read);
            // The caller need not wait for the end of a transaction that changed nothing.
            reply(outcome);
            reader.session.rollback();
        })
    }

    /// As [`read`](Readers::read), but `patience` is for each query. A connection that breaks ends a long read at most
    /// this often before that is its answer.
    pub(super) fn read_at_length<T: Send + 'static>(
        self: &Arc<Self>,
        patience: Duration,
        read: impl Fn(&mut dyn Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        const ATTEMPTS: usize = 3;
        self.run(move |reader, reply| {
            let mut outcome = Err(no_thread("it did not begin"));
            for _ in 0..ATTEMPTS {
                let deadline = Instant::now() + patience;
                outcome = match reader.session.connect(deadline) {
                    Ok(true) => reader.attempt(deadline, Some(patience), &read),
                    Ok(false) => Err(reader.session.unreachable(false)),
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                };
                let again = outcome.is_err() && reader.session.is_passing();
                reader.session.rollback();
                if !again {
                    break;
                }
            }
            reply(outcome);
        })
    }

    /// Runs a job on a reading thread and waits for what it replies.
    pub(super) fn run<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&mut Reader, &mut dyn FnMut(Result<T>)) + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = sync_channel(1);
        let job: Job = Box::new(move |reader| {
            job(reader, &mut |outcome| {
                // If the caller's thread is gone, nobody is left to tell.
                let _ = reply.send(outcome);
            });
        });
        let wanted = {
            let mut queue = self.queue();
            queue.jobs.push_back(job);
            let wanted = queue.jobs.len() > queue.idle && queue.threads < MOST;
            queue.threads += usize::from(wanted);
            wanted
        };
        if wanted {
            self.start()?;
        } else {
            self.arrived.notify_one();
        }
        answer.recv().unwrap_or_else(|_| Err(no_thread("it ended before it answered")))
    }

    fn start(self: &Arc<Self>) -> Result<()> {
        let readers = self.clone();
        let started =
            while_not_forking(|| thread::Builder::new().name("hermes-reader".into()).spawn(move || readers.serve()));
        match started {
            Ok(_) => Ok(()),
            Err(error) => {
                let mut queue = self.queue();
                queue.threads -= 1;
                // Another thread will come to the job, if there is one.
                if queue.threads == 0 {
                    queue.jobs.clear();
                    return Err(no_thread(&error.to_string()));
                }
                Ok(())
            }
        }
    }

    /// The life of a reading thread.
    fn serve(&self) {
        let reader = Session::new(self.address.clone(), Role::Reader).map(|session| Reader { session });
        let Ok(mut reader) = reader else {
            let mut queue = self.queue();
            queue.threads -= 1;
            if queue.threads == 0 {
                // Dropped without an answer, which their senders take for one.
                queue.jobs.clear();
            }
            return;
        };
        while let Some(job) = self.next() {
            job(&mut reader);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.queue();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                queue.threads -= 1;
                return None;
            }
            queue.idle += 1;
            let (woken, timed_out) = self.arrived.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if timed_out.timed_out() && queue.jobs.is_empty() {
                queue.threads -= 1;
                return None;
            }
        }
    }

    /// Lets the threads go, once they are done.
    pub(super) fn close(&self) {
        self.queue().closed = true;
        self.arrived.notify_all();
    }
}

impl Reader {
    fn read<T>(&mut self, deadline: Instant, read: &dyn Fn(&mut dyn Transaction) -> Result<T>) -> Result<T> {
        loop {
            if !self.session.connect(deadline)? {
                return Err(self.session.unreachable(false));
            }
            match self.attempt(deadline, None, read) {
                Err(_) if self.session.is_passing() && Instant::now() < deadline => self.session.rollback(),
                outcome => return outcome,
            }
        }
    }

    /// Runs `read` once on the connection; with `renewed`, each query has that time.
    fn attempt<T>(
        &mut self,
        deadline: Instant,
        renewed: Option<Duration>,
        read: &dyn Fn(&mut dyn Transaction) -> Result<T>,
    ) -> Result<T> {
        // Between the queries of a long read somebody works with what they gave, which may take its time.
        let begin = match renewed {
            Some(_) => format!("{BEGIN}; SET LOCAL idle_in_transaction_session_timeout = '15min'"),
            None => BEGIN.to_owned(),
        };
        self.session.begin(&begin, deadline)?;
        read(&mut ServerTransaction { session: &mut self.session, renewed })
    }
}

fn no_thread(why: &str) -> Error {
    Error::Engine {
        message: format!("no thread to read from the server: {why}; this process may have too many"),
        code: 0,
    }
}
