//! The demonstration: starts the processes, follows them, checks every acknowledged message, and reports.

pub(crate) mod older;
mod progress;
mod report;
mod sample;
mod staff;
mod verify;
pub(crate) mod writer;

use std::path::Path;
use std::time::{Duration, Instant};

use hermes_state::SessionDb;

use crate::error::{CommandError, Kind};
use crate::output::Output;
use progress::Progress;
use report::Report;
use staff::{Event, Staff};

/// How many processes record conversations.
const WRITERS: usize = 8;
/// How long the writers go on after the older release has ended.
const AFTERWARDS: Duration = Duration::from_millis(1500);
/// When the demonstration gives up waiting for its processes.
const LONGEST: Duration = Duration::from_secs(60);

pub(crate) fn run(keep: bool, out: &mut Output) -> Result<(), CommandError> {
    let mut folder = tempfile::Builder::new().prefix("hermes-state-demo-").tempdir()?;
    folder.disable_cleanup(keep);
    let path = folder.path().join("state.db");
    SessionDb::open(&path)?.close()?;

    let seen = watch(&path, out)?;
    let report = Report::new(&path, seen)?;
    if out.json {
        out.document(&report.json(keep))?;
    } else {
        report.write(out, keep)?;
    }
    match report.fault() {
        None => Ok(()),
        Some(fault) => Err(CommandError::new(Kind::Refused, format!("the demonstration failed: {fault}"))),
    }
}

/// What the processes reported while they ran.
#[derive(Debug, Default)]
struct Seen {
    acknowledged: Vec<writer::Acknowledged>,
    of_writer: [u64; WRITERS],
    older: Vec<older::Wrote>,
    longest_wait: Duration,
    took: Duration,
    /// Processes that did not end well, and what they said.
    failed: Vec<String>,
}

/// Starts the processes and follows them to their end.
fn watch(path: &Path, out: &Output) -> Result<Seen, CommandError> {
    let started = Instant::now();
    let mut progress = Progress::new(out.json);
    let mut staff = Staff::start(path)?;
    let mut seen = Seen::default();
    let mut stop_at = None;
    while staff.working() {
        match staff.next(Duration::from_millis(100)) {
            Some(Event::Acknowledged(writer, told)) => {
                seen.of_writer[writer] += 1;
                seen.longest_wait = seen.longest_wait.max(told.waited());
                seen.acknowledged.push(told);
            }
            Some(Event::Older(told)) => {
                progress.older(&told);
                if let older::Told::Wrote(wrote) = told {
                    seen.older.push(wrote);
                }
            }
            Some(Event::Ended(staff::OLDER)) => stop_at = Some(Instant::now() + AFTERWARDS),
            Some(Event::Ended(_)) | None => {}
        }
        progress.show(started.elapsed(), &seen);
        if stop_at.is_some_and(|at| Instant::now() >= at) {
            staff.tell_writers_to_stop();
        }
        if started.elapsed() > LONGEST {
            return Err(CommandError::new(Kind::Refused, "the processes of the demonstration did not end in time"));
        }
    }
    seen.failed = staff.finish()?;
    seen.took = started.elapsed();
    progress.done();
    Ok(seen)
}
