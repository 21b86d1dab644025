//! A home of its own for each test, and the command in it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use serde_json::Value as Json;
use tempfile::TempDir;

pub(crate) struct World {
    home: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.home.path().join("hermes")
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder().join("state.db")
    }

    /// The command with these words, split at spaces.
    pub(crate) fn command(&self, words: &str) -> Command {
        let mut command = Command::new(program());
        command.args(words.split_whitespace());
        self.settle(&mut command);
        command
    }

    /// A line of shell, in which `$hermes` is the command.
    pub(crate) fn shell(&self, line: &str) -> Output {
        let mut command = Command::new("bash");
        command.args(["-c", &format!("set -o pipefail; {line}")]).env("hermes", program());
        self.settle(&mut command);
        command.output().unwrap()
    }

    fn settle(&self, command: &mut Command) {
        for name in ["NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR", "LOCALAPPDATA", "HERMES_STATE_URL", "PGPASSWORD"] {
            command.env_remove(name);
        }
        command.env("HOME", self.home.path()).env("HERMES_HOME", self.folder()).env("TZ", "UTC").env("COLUMNS", "100");
        command.stdin(Stdio::null());
    }

    pub(crate) fn run(&self, words: &str) -> Outcome {
        Outcome::of(self.command(words).output().unwrap())
    }

    pub(crate) fn run_with_input(&self, words: &str, input: impl AsRef<[u8]>) -> Outcome {
        let (child, mut stdin) = self.start(words);
        let input = input.as_ref().to_vec();
        // Fed beside the reading: neither pipe may fill up while the other waits.
        let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        feeding.join().unwrap();
        Outcome::of(output)
    }

    /// Starts a command with pipes at all ends.
    pub(crate) fn start(&self, words: &str) -> (Child, ChildStdin) {
        let mut command = self.command(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        (child, stdin)
    }

    /// Stores user messages in a session.
    pub(crate) fn say(&self, session: &str, texts: &[&str]) {
        let lines: Vec<String> = texts.iter().map(|text| line("user", text)).collect();
        self.run_with_input(&format!("record --session {session}"), lines.concat()).expect_code(0);
    }

    /// The contents of a session's messages.
    pub(crate) fn contents(&self, session: &str) -> Vec<Json> {
        let shown = self.run(&format!("show {session} --json")).expect_code(0).json();
        shown["messages"].as_array().unwrap().iter().map(|message| message["content"].clone()).collect()
    }
}

pub(crate) fn program() -> PathBuf {
    assert_cmd::cargo::cargo_bin!("hermes-state").to_owned()
}

/// A line of input for `record`.
pub(crate) fn line(role: &str, content: &str) -> String {
    format!("{}\n", serde_json::json!({ "role": role, "content": content }))
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Outcome {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// The JSON document on standard output.
    #[track_caller]
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// The only error on standard error, as JSON.
    #[track_caller]
    pub(crate) fn error(&self) -> Json {
        let value: Json = serde_json::from_str(&self.err).unwrap_or_else(|error| panic!("{error}: {self:#?}"));
        value["error"].clone()
    }
}
