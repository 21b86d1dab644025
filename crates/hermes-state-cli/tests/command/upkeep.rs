//! Upkeep that somebody ends.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use hermes_state::{NewMessage, NewSession, SessionDb};

use crate::world::{Outcome, World};

/// Takes the write lock, and holds it until it is told.
const HOLDER: &str = "import sqlite3, sys\n\
    c = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
    c.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.readline(); c.execute('COMMIT')";

#[test]
fn ctrl_c_ends_giving_space_back_behind_a_step_and_the_same_command_does_the_rest() {
    let world = World::new();
    let db = SessionDb::open(world.store()).unwrap();
    db.create_session(NewSession::new("gone", "cli")).unwrap();
    let text = |n| NewMessage::new("user", format!("{n} {}", "words of a message ".repeat(200)));
    db.append_messages("gone", (0..400).map(text).collect()).unwrap();
    db.delete_session("gone", None).unwrap();
    db.close().unwrap();

    let mut holder = Command::new("python3")
        .args(["-c", HOLDER])
        .arg(world.store())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let (child, _) = world.start("vacuum --gently");
    let waits = || {
        let users = world.run("who --json").expect_code(0).json();
        let waiting = |user: &serde_json::Value| user["pid"] == child.id() && !user["waiting_seconds"].is_null();
        users["users"].as_array().unwrap().iter().any(waiting)
    };
    while !waits() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    holder.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(holder.wait().unwrap().success());

    let ended = Outcome::of(child.wait_with_output().unwrap()).expect_code(1);
    assert!(ended.err.contains("ended by Ctrl-C") && ended.err.contains("for the rest"), "{ended:?}");
    let report = world.run("vacuum --gently --json").expect_code(0).json();
    assert!(report["after_bytes"].as_u64() < report["before_bytes"].as_u64(), "{report:#}");
    let again = world.run("vacuum --gently --json").expect_code(0).json();
    assert_eq!(again["after_bytes"], again["before_bytes"]);
}
