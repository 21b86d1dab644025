//! Storing what is spooled: in order, each write exactly once, however many try it and whenever they are killed.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::folder::{self, Turn};
use super::frame::{HEAD, frame};
use super::{Contents, Entry, LogState, Spool, SpooledWrite, Ticket, read_log, read_records};
use crate::error::{Error, Result};
use crate::op::spooled::{Fate, StoreSpooled};

/// What is stored by one transaction at most, so that it holds the lock but a short while.
const WRITES_AT_ONCE: usize = 32;
const BYTES_AT_ONCE: u64 = 1 << 18;

/// What became of the writes that were spooled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayReport {
    /// Those that are stored now.
    pub stored: u64,
    /// Those that turned out to be stored already.
    pub found_stored: u64,
    /// Those that the store refused, each with the reason. They are kept aside.
    pub refused: Vec<(Ticket, String)>,
}

/// Commits spooled writes within the time that is given.
pub(crate) type Commit<'a> = dyn Fn(StoreSpooled, Duration) -> Result<Vec<Fate>> + 'a;

/// Whether an error is the fault of what was to be written, so that no store would ever take it.
fn is_own_fault(error: &Error) -> bool {
    const TOO_BIG: i32 = 18;
    match error {
        Error::Constraint { .. } | Error::ClientKeyInUse { .. } | Error::Invalid(_) => true,
        Error::Engine { code, .. } => *code == TOO_BIG,
        _ => false,
    }
}

impl Spool {
    /// Waits for the turn of one who changes what is spooled.
    pub(super) fn turn(&self, deadline: Instant) -> Result<Turn> {
        let started = Instant::now();
        let turn = folder::take_turn(&self.folder, deadline).map_err(|error| self.failed(&error))?;
        turn.ok_or_else(|| Error::Busy { path: self.folder.clone(), waited: started.elapsed(), holder: None })
    }

    /// Stores what is spooled, in the order in which it was. An error of the store ends it; what is not stored by then stays.
    pub(crate) fn replay(&self, deadline: Instant, commit: &Commit<'_>) -> Result<ReplayReport> {
        let mut report = ReplayReport::default();
        let failed = |error| self.failed(&error);
        let _turn = self.turn(deadline)?;
        if !self.holds_logs().map_err(failed)? {
            folder::remove_if_empty(&self.folder);
            return Ok(report);
        }
        // While the store takes nothing, what is spooled need not be read for each write that is to be added to it.
        commit(StoreSpooled::new(Vec::new()), deadline.saturating_duration_since(Instant::now()))?;
        // Others may spool meanwhile.
        loop {
            let contents = self.waiting().map_err(failed)?;
            if contents.logs.is_empty() {
                break;
            }
            let understood = self.store(&contents, deadline, commit, &mut report)?;
            for (log, understood) in contents.logs.iter().zip(understood) {
                self.settle(log, understood).map_err(failed)?;
            }
        }
        folder::remove_if_empty(&self.folder);
        Ok(report)
    }

    /// Tries once more what the store has refused.
    pub(crate) fn replay_refused(&self, deadline: Instant, commit: &Commit<'_>) -> Result<ReplayReport> {
        let mut report = ReplayReport::default();
        let failed = |error| self.failed(&error);
        let _turn = self.turn(deadline)?;
        for path in folder::files(&self.folder).map_err(failed)?.refused {
            let mut entries = Vec::new();
            let Some(log) = read_log(&path, 0, &mut entries).map_err(failed)? else { continue };
            let contents = Contents { logs: vec![log], entries };
            self.store(&contents, deadline, commit, &mut report)?;
            if !report.refused.iter().any(|(ticket, _)| contents.entries.iter().any(|entry| entry.ticket == *ticket)) {
                folder::remove(&path).map_err(failed)?;
            }
        }
        folder::remove_if_empty(&self.folder);
        Ok(report)
    }

    /// The logs with something that is not stored yet.
    fn unsettled(&self) -> io::Result<Vec<PathBuf>> {
        let settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        let mut logs = folder::files(&self.folder)?.logs;
        logs.retain(|path| {
            let length = std::fs::metadata(path).map_or(0, |found| found.len());
            settled.get(path) != Some(&length)
        });
        Ok(logs)
    }

    fn holds_logs(&self) -> io::Result<bool> {
        Ok(!self.unsettled()?.is_empty())
    }

    fn waiting(&self) -> io::Result<Contents> {
        self.contents(&self.unsettled()?)
    }

    /// Stores the records; says of which logs all was understood.
    fn store(
        &self,
        contents: &Contents,
        deadline: Instant,
        commit: &Commit<'_>,
        report: &mut ReplayReport,
    ) -> Result<Vec<bool>> {
        let mut understood: Vec<bool> = contents.logs.iter().map(|log| !log.foreign).collect();
        let mut rest = &contents.entries[..];
        while !rest.is_empty() {
            let (some, others) = rest.split_at(part(rest));
            rest = others;
            let read = read_records(contents, some).map_err(|error| self.failed(&error))?;
            for (entry, _) in some.iter().zip(&read).filter(|(_, write)| write.is_none()) {
                understood[entry.log] = false;
            }
            let writes: Vec<_> = read.into_iter().flatten().map(Arc::new).collect();
            let left = || deadline.saturating_duration_since(Instant::now());
            match commit(StoreSpooled::new(writes.clone()), left()) {
                Ok(fates) => report.count(&fates),
                Err(error) if !is_own_fault(&error) => return Err(error),
                // One of them is at fault.
                Err(_) => {
                    for write in writes {
                        match commit(StoreSpooled::new(vec![write.clone()]), left()) {
                            Ok(fates) => report.count(&fates),
                            Err(error) if is_own_fault(&error) => self.refuse(&write, &error, report)?,
                            Err(error) => return Err(error),
                        }
                    }
                }
            }
        }
        Ok(understood)
    }

    /// Keeps aside what the store refuses.
    fn refuse(&self, write: &SpooledWrite, error: &Error, report: &mut ReplayReport) -> Result<()> {
        let refused = SpooledWrite { refused: Some(error.to_string()), ..write.clone() };
        let content = [HEAD, &frame(write.ticket, &refused.to_json())].concat();
        let path = self.folder.join(folder::refused_name(write.ticket));
        folder::replace_file(&path, &content).map_err(|error| self.failed(&error))?;
        report.refused.push((write.ticket, error.to_string()));
        Ok(())
    }

    /// Removes a log all of whose records are stored, unless its writer has added to it.
    fn settle(&self, log: &LogState, understood: bool) -> io::Result<()> {
        if understood && let Some(file) = lock_whole(log)? {
            if log.damaged == 0 {
                folder::remove(&log.path)?;
            } else {
                std::fs::rename(&log.path, folder::damaged_path(&log.path))?;
            }
            folder::sync(&self.folder)?;
            drop(file);
            return Ok(());
        }
        // Its writer may have stopped in the middle of a record: until it goes on there is nothing more to be had here.
        let length = std::fs::metadata(&log.path).map_or(0, |found| found.len());
        if read_log(&log.path, 0, &mut Vec::new())?.is_some_and(|now| now.length == log.length) {
            self.settled.lock().unwrap_or_else(PoisonError::into_inner).insert(log.path.clone(), length);
        }
        Ok(())
    }
}

/// Locks a log if it holds no more than what was read of it; the torn end of a record that nobody was told of is nothing.
fn lock_whole(log: &LogState) -> io::Result<Option<io::BufReader<std::fs::File>>> {
    let input = match folder::read_file(&log.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        input => input?,
    };
    match input.get_ref().try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => return Ok(None),
        Err(std::fs::TryLockError::Error(error)) => return Err(error),
    }
    let now = read_log(&log.path, 0, &mut Vec::new())?;
    Ok(now.filter(|now| now.length == log.length).map(|_| input))
}

impl ReplayReport {
    fn count(&mut self, fates: &[Fate]) {
        let stored = fates.iter().filter(|fate| matches!(fate, Fate::Stored)).count();
        self.stored += stored as u64;
        self.found_stored += (fates.len() - stored) as u64;
    }
}

/// How many of the records one transaction takes.
fn part(entries: &[Entry]) -> usize {
    let mut bytes = 0;
    let fitting = entries.iter().take(WRITES_AT_ONCE).take_while(|entry| {
        bytes += entry.length;
        bytes <= BYTES_AT_ONCE
    });
    fitting.count().max(1)
}
