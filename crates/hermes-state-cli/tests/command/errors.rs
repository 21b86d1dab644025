//! Exit codes and errors, as programs rely on them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use crate::world::{World, line};

/// A process that holds the write lock through another SQLite library, until it is dropped.
pub(crate) struct Holder(Child);

impl Holder {
    pub(crate) fn of(world: &World) -> Self {
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

/// Takes a little longer than the two seconds after which it is told.
#[test]
fn a_record_that_waits_says_who_is_in_the_way_once_and_goes_on_waiting() {
    let world = World::new();
    world.say("s1", &["first"]);
    let holder = Holder::of(&world);
    let busy =
        world.run_with_input("record --session s1 --no-spool --patience 3.5", line("user", "second")).expect_code(3);
    let told: Vec<&str> = busy.err.lines().filter(|line| line.contains("has waited 2.")).collect();
    assert_eq!(told.len(), 1, "{busy:?}");
    assert!(told[0].contains(&format!("pid {}", holder.0.id())), "{busy:?}");
}

#[test]
fn a_busy_store_is_code_3_and_names_the_holder() {
    let world = World::new();
    world.say("s1", &["first"]);
    let holder = Holder::of(&world);
    let started = std::time::Instant::now();
    let busy = world
        .run_with_input("record --session s1 --no-spool --patience 0.5 --json", line("user", "second"))
        .expect_code(3);
    assert!(started.elapsed().as_secs() < 10, "patience ends");
    let error = busy.error();
    assert_eq!(error["kind"], "busy");
    assert_eq!(error["retryable"], true);
    assert_eq!(error["exit_code"], 3);
    assert!(error["message"].as_str().unwrap().contains(&format!("pid {}", holder.0.id())), "{error}");
    let told =
        world.run_with_input("record --session s1 --no-spool --patience 0.2", line("user", "second")).expect_code(3);
    assert!(
        told.err.starts_with("Error: ")
            && told.err.contains("\nHint: Another program is writing")
            && told.err.contains("\nHint: Run the command again"),
        "{told:?}"
    );
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
    let (mut child, mut stdin) = world.start("record --session s1 --no-spool --patience 0.3");
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
    for words in ["list", "search x", "status", "record --no-spool --session s"] {
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
    let recorded = world.run_with_input("record --session s1 --no-spool --json", line("user", "x")).expect_code(4);
    assert_eq!(recorded.out, "", "nothing is acknowledged");
    assert!(
        world
            .run("list")
            .expect_code(4)
            .err
            .contains("Hint: The session store is damaged; stop the programs that use it")
    );
}

#[test]
fn a_folder_in_the_place_of_the_store_is_code_1() {
    let world = World::new();
    fs::create_dir_all(world.store()).unwrap();
    for words in ["list --json", "record --session s --json"] {
        assert_eq!(world.run(words).expect_code(1).error()["kind"], "stopped");
    }
}

/// The sentence of a cause as the page has it.
fn sentence(cause: &str) -> &'static str {
    const PAGE: &str = include_str!("../../../../docs/command.md");
    let start = format!("| {cause} | ");
    PAGE.lines().find_map(|line| line.strip_prefix(&start)).unwrap().trim_end_matches(" |")
}

#[test]
fn an_error_has_the_name_of_its_cause_and_its_sentence() {
    let expect = |told: crate::world::Outcome, cause: &str| {
        let error = told.error();
        assert_eq!((&error["cause"], &error["sentence"]), (&cause.into(), &sentence(cause).into()), "{error:#}");
    };
    let world = World::new();
    world.say("s1", &["first"]);
    let record = "record --session s1 --json --no-spool --patience 0.2";
    let holder = Holder::of(&world);
    expect(world.run_with_input(record, line("user", "second")), "locked");
    drop(holder);
    // A limit on the size of files is a disk that takes no more.
    let long = line("user", &"filler ".repeat(300_000));
    let mut limited = Command::new("bash");
    limited.args(["-c", r#"trap '' XFSZ; ulimit -f 512; exec "$@""#, "bash"]).arg(crate::world::program());
    limited.args(record.split_whitespace()).arg("--db").arg(world.store());
    let mut limited = limited.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = limited.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || drop(std::io::Write::write_all(&mut input, long.as_bytes())));
    expect(crate::world::Outcome::of(limited.wait_with_output().unwrap()), "disk");
    feeding.join().unwrap();
    let outside = |script: &str| crate::health::outside(&world, script);
    outside("c.execute('UPDATE schema_version SET version = 99')");
    expect(world.run_with_input(record, line("user", "second")), "too_new");
    outside(
        "c.close()\nwith open(path, 'r+b') as f: f.seek(100); f.write(bytes(3996))\nc = sqlite3.connect(':memory:')",
    );
    expect(world.run("list --json"), "corrupt");
    let told = world.run("list").expect_code(4).err;
    assert!(told.contains(&format!("Hint: {}", sentence("corrupt"))), "{told}");
    let usage = world.run("show --json").expect_code(2).error();
    assert!(usage.get("cause").is_none(), "{usage:#}");
}
