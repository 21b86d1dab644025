//! What the process tests share: the test binary run again in a role of its own, and a Python with its own SQLite.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of this")]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use hermes_state::{LockKind, require_lock_kind};

/// The variable that names the role a re-run test binary plays.
const ROLE: &str = "HERMES_STATE_TEST_ROLE";
/// The variable that names the store it works on.
const STORE: &str = "HERMES_STATE_TEST_STORE";
/// The variable that names the kind of locks it uses.
const LOCKS: &str = "HERMES_STATE_TEST_LOCKS";

/// Runs the test `name` of this binary again, alone and in a process of its own, as `role`.
pub fn play(name: &str, role: &str, store: &Path, locks: LockKind) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test binary"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(STORE, store).env(LOCKS, locks.name());
    command
}

/// The names of the files in a folder, in order.
pub fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("lists").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The role this process was started in, with its store; locks are set up as asked. `None` in the test itself.
pub fn role() -> Option<(String, std::path::PathBuf)> {
    let role = std::env::var(ROLE).ok()?;
    let locks = std::env::var(LOCKS).ok().and_then(|name| LockKind::from_name(&name)).expect("a kind of locks");
    require_lock_kind(locks).expect("this system has the kind of locks asked for");
    Some((role, std::env::var_os(STORE).expect("a store").into()))
}

/// Fails with everything the process printed unless it succeeded.
pub fn must_succeed(output: &Output) {
    assert!(
        output.status.success(),
        "{}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A Python process with the SQLite of its standard library, `path` and `sqlite3` at hand.
pub fn python(store: &Path, script: &str) -> Command {
    let mut command = Command::new("python3");
    command.arg("-c").arg(format!("import os, sqlite3, sys, time\npath = sys.argv[1]\n{script}")).arg(store);
    command
}

/// Runs a Python script to its end and gives what it printed.
pub fn python_says(store: &Path, script: &str) -> String {
    let output = python(store, script).output().expect("python3 is installed");
    must_succeed(&output);
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// Starts a Python script and returns once it has printed a line.
pub fn python_started(store: &Path, script: &str) -> Child {
    let mut child = python(store, script).stdout(Stdio::piped()).spawn().expect("python3 is installed");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().expect("piped")), &mut line)
        .expect("a line");
    child
}
