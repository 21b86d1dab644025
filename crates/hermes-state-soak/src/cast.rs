//! The processes of a soak: starting, listening to, killing and ending them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::ledger::{Heard, Told};
use crate::signal;

/// How long a process may take to end once it is told to.
const END: Duration = Duration::from_secs(240);

/// A running process and the thread that listens to it.
#[derive(Debug)]
pub(crate) struct Player {
    name: String,
    child: Child,
    listener: Option<JoinHandle<()>>,
    begun: Receiver<()>,
    heard: Arc<Mutex<Heard>>,
}

impl Player {
    /// This program in one of its roles.
    pub(crate) fn role(
        role: &str,
        name: &str,
        seed: u64,
        path: &Path,
        heard: &Arc<Mutex<Heard>>,
    ) -> Result<Self, String> {
        let this = std::env::current_exe().map_err(|error| format!("this program is nowhere: {error}"))?;
        let mut command = Command::new(this);
        command.args([&format!("role:{role}"), name, &seed.to_string()]).arg(path);
        // With an arena for each thread, glibc keeps what any of them once had, and memory grows for minutes without a leak.
        command.env("MALLOC_ARENA_MAX", "1");
        Self::start(name, command, heard)
    }

    pub(crate) fn start(name: &str, mut command: Command, heard: &Arc<Mutex<Heard>>) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{name} does not start: {error}"))?;
        let output = child.stdout.take().ok_or("a child without output")?;
        let (from, all, (begins, begun)) = (name.to_owned(), heard.clone(), channel());
        let listener = std::thread::spawn(move || {
            for told in BufReader::new(output).lines().map_while(Result::ok).filter_map(|line| Told::read(&line)) {
                if told == Told::Begun {
                    let _ = begins.send(());
                }
                all.lock().unwrap_or_else(PoisonError::into_inner).hear(&from, told);
            }
        });
        Ok(Self { name: name.to_owned(), child, listener: Some(listener), begun, heard: heard.clone() })
    }

    /// Whether it has begun, within so long.
    pub(crate) fn begins(&self, within: Duration) -> bool {
        self.begun.recv_timeout(within).is_ok()
    }

    pub(crate) fn stop(&self) {
        signal::stop(&self.child);
    }

    pub(crate) fn go_on(&self) {
        signal::go_on(&self.child);
    }

    /// Kills it where it stands; what it had said by then is heard.
    pub(crate) fn kill(mut self) {
        self.notice_end();
        let _ = self.child.kill();
        self.reap();
    }

    /// A process that ends before it is told to has failed.
    pub(crate) fn notice_end(&mut self) -> bool {
        let ended = self.child.try_wait().ok().flatten();
        if let Some(status) = ended {
            self.fault(format!("ended by itself: {status}"));
        }
        ended.is_some()
    }

    /// Tells it to end.
    pub(crate) fn dismiss(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits until it has ended and all that it said is heard.
    pub(crate) fn end(mut self) {
        self.dismiss();
        let told = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => break,
                Ok(Some(status)) => {
                    self.fault(format!("ended badly: {status}"));
                    break;
                }
                _ if told.elapsed() > END => {
                    self.fault(format!("does not end within {} s", END.as_secs()));
                    let _ = self.child.kill();
                    break;
                }
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        self.reap();
    }

    fn reap(&mut self) {
        let _ = self.child.wait();
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }

    fn fault(&self, what: String) {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).hear(&self.name, Told::Fault(what));
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        if self.listener.is_some() {
            let _ = self.child.kill();
            self.reap();
        }
    }
}
