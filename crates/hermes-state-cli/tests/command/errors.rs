//! Exit codes and errors, as programs rely on them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use crate::world::{World, line};

/// A process that holds the write lock through another SQLite library, until it is dropped.
struct Holder(Child);

impl Holder {
    fn of(world: &World) -> Self {
        const HOLD: &str = "import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute('BEGIN IMMEDIATE')
print('held', flush=True)
sys.stdin.read()";
        let mut python = Command::new("python3");
        python.args(["-c", HOLD]).arg(world.store()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "held\n");
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn a_busy_store_is_code_3_and_names_the_holder() {
    let world = World::new();
    world.say("s1", &["first"]);
    let holder = Holder::of(&world);
    let started = std::time::Instant::now();
    let busy = world.run_with_input("record --session s1 --patience 0.5 --json", line("user", "second")).expect_code(3);
    assert!(started.elapsed().as_secs() < 10, "patience ends");
    let error = busy.error();
    assert_eq!(error["kind"], "busy");
    assert_eq!(error["retryable"], true);
    assert_eq!(error["exit_code"], 3);
    assert!(error["message"].as_str().unwrap().contains(&format!("pid {}", holder.0.id())), "{error}");
    let told = world.run_with_input("record --session s1 --patience 0.2", line("user", "second")).expect_code(3);
    assert!(told.err.starts_with("Error: ") && told.err.contains("\nHint: Run the command again"), "{told:?}");
    assert_eq!(world.contents("s1").len(), 1, "reading waits for nobody");
    let status = world.run("status --json").expect_code(0).json();
    assert_eq!(status["open_by"][0]["pid"], holder.0.id(), "{status:#}");
    assert_eq!(status["open_by"][0]["takes_turns"], false, "{status:#}");
    drop(holder);
    world.say("s1", &["second"]);
    assert_eq!(world.contents("s1").len(), 2);
}

#[test]
fn a_store_that_gets_busy_in_mid_stream_stops_the_stream_at_a_named_line() {
    let world = World::new();
    let (mut child, mut stdin) = world.start("record --session s1 --patience 0.3");
    let mut told = BufReader::new(child.stdout.take().unwrap());
    std::io::Write::write_all(&mut stdin, line("user", "first").as_bytes()).unwrap();
    told.read_line(&mut String::new()).unwrap();
    let holder = Holder::of(&world);
    std::io::Write::write_all(&mut stdin, [line("user", "second"), line("user", "third")].concat().as_bytes()).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3), "{said}");
    assert!(said.contains("line 2: ") && said.contains("Nothing was stored from line 2 on"), "{said}");
    drop(holder);
    assert_eq!(world.contents("s1").len(), 1);
}

#[test]
fn arguments_that_are_not_understood_are_code_2() {
    let world = World::new();
    for words in
        ["lst", "record", "list --limit x", "show", "search", "record --session s --patience -1", "man nothing"]
    {
        let plain = world.run(words).expect_code(2);
        assert!(plain.err.to_lowercase().starts_with("error: "), "{plain:?}");
        let json = world.run(&format!("{words} --json")).expect_code(2);
        assert_eq!(json.error()["kind"], "usage", "{words}");
    }
    assert!(world.run("lst").err.contains("list"), "the nearest name is suggested");
    world.run_with_input("record --session s --db :memory:", "").expect_code(2);
    assert!(!world.folder().exists());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "these files are not stores")]
fn a_file_that_is_no_store_is_code_4() {
    let world = World::new();
    fs::create_dir_all(world.folder()).unwrap();
    fs::write(world.store(), "Dear diary,\n".repeat(100)).unwrap();
    for words in ["list", "search x", "status", "record --session s"] {
        let refused = world.run(&format!("{words} --json")).expect_code(4);
        assert_eq!(refused.error()["kind"], "damaged");
        assert!(refused.err.contains("state.db"), "{refused:?}");
    }
    assert_eq!(fs::read(world.store()).unwrap(), "Dear diary,\n".repeat(100).as_bytes());
    fs::write(world.store(), "").unwrap();
    world.run("list").expect_code(0);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "this process holds no lock on the store that a close could drop")]
fn a_damaged_store_is_code_4() {
    let world = World::new();
    world.say("s1", &["Where is the harbour?"; 300]);
    let mut bytes = fs::read(world.store()).unwrap();
    // All but the page that says what is where.
    bytes[4096..].fill(0);
    fs::write(world.store(), bytes).unwrap();
    for words in ["list", "show s1"] {
        assert_eq!(world.run(&format!("{words} --json")).expect_code(4).error()["kind"], "damaged");
    }
    let recorded = world.run_with_input("record --session s1 --json", line("user", "x")).expect_code(4);
    assert_eq!(recorded.out, "", "nothing is acknowledged");
    assert!(world.run("list").expect_code(4).err.contains("Hint: Stop the programs that use"));
}

#[test]
fn a_folder_in_the_place_of_the_store_is_code_1() {
    let world = World::new();
    fs::create_dir_all(world.store()).unwrap();
    for words in ["list --json", "record --session s --json"] {
        assert_eq!(world.run(words).expect_code(1).error()["kind"], "stopped");
    }
}
