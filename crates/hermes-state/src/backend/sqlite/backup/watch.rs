//! How work on the crew tells its caller how far it is, and learns that it is wanted no longer. The caller's code runs on
//! the caller's thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::super::lock::crew;
use super::super::readers::no_thread;
use crate::backup::{BackupPhase, BackupProgress};
use crate::error::{Error, Result};

/// How often the caller is told again how far it is, so that it can say that it wants no more.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// What the caller is told by.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(&BackupProgress) -> Result<()>;

/// Whether the caller wants no more.
#[derive(Clone, Default)]
pub(super) struct Cancelled(Arc<AtomicBool>);

impl Cancelled {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The crew's end.
pub(super) struct Watch {
    told: Sender<BackupProgress>,
    cancelled: Cancelled,
}

impl Watch {
    /// Tells the caller; an error if it wants no more.
    pub(super) fn tell(&self, phase: BackupPhase, done: u64, total: u64) -> Result<()> {
        let _ = self.told.send(BackupProgress::new(phase, done, total));
        self.check()
    }

    /// An error if the caller wants no more.
    pub(super) fn check(&self) -> Result<()> {
        if self.cancelled.is_set() { Err(Error::Interrupted { perhaps_stored: false }) } else { Ok(()) }
    }

    pub(super) fn cancelled(&self) -> Cancelled {
        self.cancelled.clone()
    }
}

/// Runs `work` on the crew, and `progress` here. An error of `progress` ends the work as soon as it can be ended, and is
/// the answer.
pub(super) fn attended<T: Send + 'static>(
    progress: Progress<'_>,
    work: impl FnOnce(&Watch) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (told, news) = channel();
    let (answer, answered) = channel();
    let cancelled = Cancelled::default();
    let watch = Watch { told, cancelled: cancelled.clone() };
    let started = crew::owners().start(move || {
        let _ = answer.send(work(&watch));
    });
    started.map_err(|error| no_thread(&error))?;
    let mut last = None;
    let mut unwanted = None;
    loop {
        match news.recv_timeout(HEARTBEAT) {
            Ok(now) => last = Some(now),
            Err(RecvTimeoutError::Timeout) => {}
            // The work has ended, and with it the other end.
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if let (Some(now), None) = (&last, &unwanted)
            && let Err(error) = progress(now)
        {
            cancelled.0.store(true, Ordering::Relaxed);
            unwanted = Some(error);
        }
    }
    let outcome = answered.recv().map_err(|_| no_thread(&std::io::Error::other("the work was given up")))?;
    match (outcome, unwanted) {
        // It was done before it could be ended.
        (Ok(done), _) => Ok(done),
        (Err(_), Some(unwanted)) => Err(unwanted),
        (Err(error), None) => Err(error),
    }
}
