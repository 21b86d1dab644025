//! The processes of the demonstration: this program, started again in other roles, reporting by pipes.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::WRITERS;
use super::older::{Checked, Told};
use super::writer::Acknowledged;
use crate::error::{CommandError, Kind};

/// The place of the older release among the processes.
pub(super) const OLDER: usize = WRITERS;

/// Something that a process reported.
pub(super) enum Event {
    Acknowledged(usize, Acknowledged),
    Older(Told),
    Ended(usize),
}

/// The running processes. Dropping them ends them.
pub(super) struct Staff {
    children: Vec<Child>,
    events: Receiver<Event>,
    working: usize,
}

impl Staff {
    pub(super) fn start(path: &Path) -> Result<Self, CommandError> {
        let (report, events) = channel();
        let mut staff = Self { children: Vec::new(), events, working: 0 };
        for number in 0..WRITERS {
            let mut command = this_program("demo-writer", path)?;
            staff.employ(command.arg(number.to_string()), report.clone(), move |line| {
                Some(Event::Acknowledged(number, serde_json::from_str(line).ok()?))
            })?;
        }
        let mut command = this_program("demo-older", path)?;
        staff.employ(&mut command, report, |line| Some(Event::Older(serde_json::from_str(line).ok()?)))?;
        Ok(staff)
    }

    fn employ(
        &mut self,
        command: &mut Command,
        report: Sender<Event>,
        understand: impl Fn(&str) -> Option<Event> + Send + 'static,
    ) -> Result<(), CommandError> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(cannot_start)?;
        let (number, output) = (self.children.len(), child.stdout.take());
        self.children.push(child);
        self.working += 1;
        thread::spawn(move || {
            // A line that is not understood is left out, and so counts as a message nobody was promised; the rows in
            // the store would then outnumber the promises, which the check reports.
            let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines().map_while(Result::ok));
            for event in lines.filter_map(|line| understand(&line)) {
                let _ = report.send(event);
            }
            let _ = report.send(Event::Ended(number));
        });
        Ok(())
    }

    /// Whether any process still reports.
    pub(super) fn working(&self) -> bool {
        self.working > 0
    }

    /// The next report, if one comes in time.
    pub(super) fn next(&mut self, patience: Duration) -> Option<Event> {
        let event = match self.events.recv_timeout(patience) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => {
                self.working = 0;
                return None;
            }
        };
        if let Event::Ended(_) = event {
            self.working -= 1;
        }
        Some(event)
    }

    pub(super) fn tell_writers_to_stop(&mut self) {
        for child in &mut self.children {
            drop(child.stdin.take());
        }
    }

    /// Waits for the processes, which have closed their reports; says which of them failed, and how.
    pub(super) fn finish(mut self) -> Result<Vec<String>, CommandError> {
        let mut failed = Vec::new();
        for (number, mut child) in self.children.drain(..).enumerate() {
            let mut said = String::new();
            if let Some(mut errors) = child.stderr.take() {
                errors.read_to_string(&mut said)?;
            }
            let status = child.wait()?;
            if !status.success() {
                let who =
                    if number == OLDER { "the older release".to_owned() } else { format!("writer {}", number + 1) };
                failed.push(format!("{who} ended with {status}: {}", said.trim()));
            }
        }
        Ok(failed)
    }
}

impl Drop for Staff {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended by itself; either way it must be waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Lets an ordinary SQLite connection look over the finished store.
pub(super) fn check(path: &Path) -> Result<Checked, CommandError> {
    let output =
        this_program("demo-older", path)?.arg("--check").stdin(Stdio::null()).output().map_err(cannot_start)?;
    match serde_json::from_slice(&output.stdout) {
        Ok(Told::Checked(checked)) => Ok(checked),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(CommandError::new(Kind::Refused, format!("the finished store could not be checked: {}", said.trim())))
        }
    }
}

fn this_program(role: &str, path: &Path) -> Result<Command, CommandError> {
    let mut command = Command::new(std::env::current_exe().map_err(cannot_start)?);
    command.arg(role).arg(path);
    Ok(command)
}

fn cannot_start(error: std::io::Error) -> CommandError {
    CommandError::new(Kind::Refused, format!("a process of the demonstration cannot be started: {error}"))
}
