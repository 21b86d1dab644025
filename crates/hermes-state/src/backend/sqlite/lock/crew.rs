//! The threads on which all SQLite calls of this process run, so that they own its locks together.
//!
//! The first one leaves the process's descriptor table (means A) and starts the others, which thereby share its table.
//! They never end: a thread that has nothing to do waits for the next job, whoever brings it. Jobs must not call
//! foreign code (loggers, Python, callbacks of the caller): on these threads descriptor 2 leads nowhere, and a number
//! that another library means for its log may be a store.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::sync_channel;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::{LockKind, PerProcess, fork, in_force};

static OWNERS: PerProcess<Crew> = PerProcess::new(|| Crew::new(enter_owners_table));
static BYSTANDER: PerProcess<Crew> = PerProcess::new(|| Crew::new(enter_own_table));

/// The threads that own this process's locks and run all of SQLite.
pub(crate) fn owners() -> &'static Crew {
    OWNERS.get()
}

/// One that owns no locks, in a table of its own, so that it may open and close store files freely; it starts none
/// where there are no such tables.
pub(crate) fn bystander() -> &'static Crew {
    BYSTANDER.get()
}

type Job = Box<dyn FnOnce() + Send>;

/// The crew of one process.
pub(crate) struct Crew {
    enter: fn() -> io::Result<()>,
    state: Mutex<State>,
    work: Condvar,
    recruits: Condvar,
    /// Whether the first thread is there. Held while it is being started: two of them would be two owners of locks.
    founded: Mutex<bool>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads that wait for a job.
    idle: usize,
    /// Threads that were asked for and have not begun yet.
    coming: usize,
    /// Of those, the ones that the first thread has still to start.
    wanted: usize,
}

impl Crew {
    fn new(enter: fn() -> io::Result<()>) -> Self {
        Self {
            enter,
            state: Mutex::default(),
            work: Condvar::new(),
            recruits: Condvar::new(),
            founded: Mutex::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `job` on a crew thread and waits for its result.
    ///
    /// # Errors
    /// When no thread could be had for it, or the job panicked.
    pub(crate) fn run<T: Send + 'static>(&'static self, job: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let (answer, result) = sync_channel(1);
        self.start(move || {
            let _ = answer.send(job());
        })?;
        result.recv().map_err(|_| io::Error::other("the job was given up: no thread for it, or it panicked"))
    }

    /// Hands `job` to a crew thread and returns at once; it may run as long as it likes.
    pub(crate) fn start(&'static self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.found()?;
        let mut state = self.state();
        state.jobs.push_back(Box::new(job));
        if state.jobs.len() > state.idle + state.coming {
            state.coming += 1;
            state.wanted += 1;
            self.recruits.notify_one();
        }
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// Starts the thread from which all others descend, unless it is there.
    fn found(&'static self) -> io::Result<()> {
        let mut founded = self.founded.lock().unwrap_or_else(PoisonError::into_inner);
        if *founded {
            return Ok(());
        }
        let (answer, result) = sync_channel(1);
        fork::while_not_forking(|| {
            thread::Builder::new().name("hermes-state".into()).spawn(move || {
                let entered = (self.enter)();
                let failed = entered.is_err();
                let _ = answer.send(entered);
                if !failed {
                    self.recruit();
                }
            })
        })?;
        result.recv().unwrap_or_else(|_| Err(io::Error::other("the first crew thread died")))?;
        *founded = true;
        Ok(())
    }

    /// The life of the first thread: start another whenever one is wanted.
    fn recruit(&'static self) {
        let mut failures = 0;
        loop {
            let mut state = self.state();
            while state.wanted == 0 {
                state = self.recruits.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            let started = fork::while_not_forking(|| {
                thread::Builder::new().name("hermes-state".into()).spawn(move || self.work())
            });
            if started.is_ok() {
                self.state().wanted -= 1;
                failures = 0;
                continue;
            }
            // Out of threads for now; the job waits in the queue, and those there are may come to it first. But not for
            // ever: all of them may be writers, which stay.
            thread::sleep(Duration::from_millis(10));
            failures += 1;
            if failures > 500 {
                failures = 0;
                let mut state = self.state();
                state.wanted -= 1;
                state.coming -= 1;
                drop(state.jobs.pop_front());
            }
        }
    }

    /// The life of every other thread.
    fn work(&'static self) {
        self.state().coming -= 1;
        loop {
            let mut state = self.state();
            state.idle += 1;
            while state.jobs.is_empty() {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.idle -= 1;
            let job = state.jobs.pop_front();
            drop(state);
            if let Some(job) = job {
                // A panic of one job must not cost the crew a thread; its caller learns of it by the missing answer.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        }
    }
}

fn enter_owners_table() -> io::Result<()> {
    if in_force() == LockKind::PrivateTable { enter_own_table() } else { Ok(()) }
}

#[cfg(target_os = "linux")]
fn enter_own_table() -> io::Result<()> {
    super::private_table::enter()
}

#[cfg(not(target_os = "linux"))]
fn enter_own_table() -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}
