//! Programs that end, with everything they left in their folder, when this process dies by whatever means.
//!
//! Linux's own way (`PR_SET_PDEATHSIG`) looks at the thread that started the program, and a test's thread ends long
//! before the process. So a shell (`guard.sh`) watches a pipe of which this process has the other end.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

/// A program with its guard.
#[derive(Debug)]
pub(crate) struct Guarded {
    child: Child,
    guard: ChildStdin,
    ended: bool,
}

impl Guarded {
    /// Starts a program. Its output goes to the file; `prepare` says in which folder and as whom it runs.
    ///
    /// `goes_with_it` is the folder that the guard removes when this process is gone.
    pub(crate) fn start(
        goes_with_it: &Path,
        program: &Path,
        arguments: &[&OsStr],
        output: File,
        prepare: impl FnOnce(&mut Command),
    ) -> Self {
        let errors = output.try_clone().expect("a second descriptor of the log");
        let mut command = crate::installation::client("sh");
        command.args(["-c", include_str!("guard.sh"), "guard"]).arg(goes_with_it).arg(program).args(arguments);
        // Of its own, so that Ctrl-C in a terminal ends the tests and leaves it to the guard to clear up after them.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(output).stderr(errors);
        prepare(&mut command);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("sh does not start: {error}"));
        let guard = child.stdin.take().expect("piped");
        Self { child, guard, ended: false }
    }

    /// The program's process; of no meaning once it has ended.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How the program ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().expect("our own child");
        if status.is_some() && !self.ended {
            self.ended = true;
            self.tell("ended");
        }
        status
    }

    /// Waits for the end of the program.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let status = self.child.wait().expect("our own child");
        self.ended();
        status
    }

    /// The folder has another guard now.
    pub(crate) fn keep_folder(mut self) {
        self.tell("keep");
    }

    /// Has the guard end the program, if it runs, and remove the folder. A word, because the end of the pipe comes late
    /// where a process that was forked off this one still holds it.
    pub(crate) fn remove_folder(mut self) {
        self.ended();
        self.tell("remove");
    }

    fn tell(&mut self, word: &str) {
        // A guard that is not there any more cannot be told, and there is nothing it could do.
        let _ = writeln!(self.guard, "{word}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::deadline::wait_until;

    fn sleeper(folder: &Path) -> Guarded {
        std::fs::create_dir(folder).unwrap();
        let output = tempfile::tempfile().unwrap();
        Guarded::start(folder, Path::new("sleep"), &["600".as_ref()], output, |_| ())
    }

    #[test]
    fn what_loses_its_starter_ends_and_its_folder_goes() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("it's \"here\"");
        let guarded = sleeper(&folder);
        let pid = guarded.pid();
        assert!(!crate::process::is_gone(pid));
        drop(guarded);
        assert!(wait_until(Duration::from_secs(90), || crate::process::is_gone(pid) && !folder.exists()));
    }

    #[test]
    fn the_last_guard_alone_removes_the_folder() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("folder");
        let mut first = sleeper(&folder);
        crate::system_calls::send_signal(first.pid(), crate::system_calls::Signal::Kill).unwrap();
        first.wait();
        let output = tempfile::tempfile().unwrap();
        let mut second = Guarded::start(&folder, Path::new("true"), &[], output, |_| ());
        first.keep_folder();
        assert!(second.wait().success());
        assert!(folder.exists());
        second.remove_folder();
        assert!(wait_until(Duration::from_secs(30), || !folder.exists()));
    }
}
