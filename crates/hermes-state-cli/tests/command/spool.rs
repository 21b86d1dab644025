//! `spool`: what the store could not take is acknowledged all the same, seen, and stored later.

use std::fs;

use serde_json::json;

use crate::health::outside;
use crate::world::{Outcome, World, line};

/// What is no store, in the place of one, which is put aside.
#[expect(clippy::disallowed_methods, reason = "this process holds no lock on the store that a close could drop")]
fn spoil(world: &World) {
    fs::rename(world.store(), world.folder().join("good")).unwrap();
    fs::write(world.store(), "Dear diary,\n".repeat(100)).unwrap();
}

fn mend(world: &World) {
    fs::rename(world.folder().join("good"), world.store()).unwrap();
}

fn ticket(recorded: &Outcome) -> String {
    recorded.out.trim().rsplit(' ').next().unwrap().to_owned()
}

#[test]
fn what_the_store_cannot_take_is_spooled_shown_and_stored_before_what_comes_next() {
    let world = World::new();
    world.say("s1", &["first"]);
    spoil(&world);
    let spooled = world.run_with_input("record --session s1", line("user", "second")).expect_code(0);
    assert!(spooled.out.starts_with("1 spooled "), "{spooled:?}");
    assert!(spooled.err.contains("1 messages are spooled"), "{spooled:?}");
    let third = world.run_with_input("record --session s2 --json", line("user", "third")).expect_code(0).json();
    assert_eq!((&third["line"], &third["message_id"]), (&json!(1), &json!(null)));

    let list = world.run("spool list --json").expect_code(0).json();
    assert_eq!((&list["waiting"], &list["refused"]), (&json!(2), &json!(0)), "{list}");
    assert_eq!(list["writes"][1]["ticket"], third["spooled"]);
    assert_eq!(list["writes"][1]["session_id"], "s2");
    assert!(world.run("spool list").out.contains(&ticket(&spooled)));
    let shown = world.run(&format!("spool show {} --json", ticket(&spooled))).expect_code(0).json();
    assert_eq!(shown["messages"][0]["content"], "second");
    assert!(world.run(&format!("spool show {}", ticket(&spooled))).out.contains("user:  second"));

    mend(&world);
    assert_eq!(world.run("status --json").expect_code(0).json()["spool"]["waiting"], 2);
    assert!(world.run("status").expect_code(0).out.contains("2 waiting"));
    world.say("s1", &["fourth"]);
    assert_eq!(world.contents("s1"), ["first", "second", "fourth"]);
    assert_eq!(world.contents("s2"), ["third"]);
    assert_eq!(world.run("spool list").expect_code(0).out, "");
    assert!(!world.folder().join("state.db-spool").exists());
}

#[test]
fn what_is_spooled_is_stored_when_asked_and_dropped_only_when_confirmed() {
    let world = World::new();
    world.say("s1", &["first"]);
    spoil(&world);
    let spooled: Vec<_> = ["second", "third", "fourth"]
        .iter()
        .map(|text| ticket(&world.run_with_input("record --session s1", line("user", text)).expect_code(0)))
        .collect();
    let refused = world.run("spool replay --json").expect_code(4);
    assert_eq!(refused.error()["kind"], "damaged");
    let discard = format!("spool discard {}", spooled[1]);
    let kept = world.run(&discard).expect_code(2);
    assert!(kept.err.contains("--yes"), "{kept:?}");
    world.run(&format!("{discard} --yes")).expect_code(0);
    world.run(&format!("{discard} --yes")).expect_code(1);
    world.run(&format!("spool show {}", spooled[1])).expect_code(1);
    world.run("spool discard --yes").expect_code(2);
    mend(&world);
    let replayed = world.run("spool replay --json").expect_code(0).json();
    assert_eq!((&replayed["stored"], &replayed["refused"]), (&json!(2), &json!([])));
    assert_eq!(world.contents("s1"), ["first", "second", "fourth"]);
    spoil(&world);
    world.run_with_input("record --session s1", line("user", "fifth")).expect_code(0);
    let dropped = world.run("spool discard --all --yes --json").expect_code(0).json();
    assert_eq!((&dropped["discarded"], dropped["store"].as_str()), (&json!(1), world.store().to_str()));
}

#[test]
fn restoring_tells_of_what_is_spooled_and_it_gets_into_the_restored_store() {
    let world = World::new();
    world.say("s1", &["first"]);
    world.run("backup b.db").expect_code(0);
    spoil(&world);
    world.run_with_input("record --session s1", line("user", "second")).expect_code(0);
    let told = world.run("restore b.db").expect_code(0);
    assert!(told.err.contains("1 write(s) wait") && told.err.contains("spool replay"), "{told:?}");
    world.run_with_input("record --session s1", line("user", "third")).expect_code(0);
    assert_eq!(world.contents("s1"), ["first", "second", "third"]);
}

#[test]
fn looking_at_a_spool_that_is_not_there_makes_nothing() {
    let world = World::new();
    world.run("spool list").expect_code(0);
    world.run("spool replay").expect_code(0);
    assert!(!world.folder().exists());
}

/// The newest messages of a store are on a page that turns to noise: what is recorded then is spooled, and is in the store
/// once when that is repaired.
#[test]
#[expect(clippy::disallowed_methods, reason = "this process holds no lock on the store that a close could drop")]
fn what_is_recorded_into_a_damaged_store_is_spooled_and_stored_once_after_a_repair() {
    let world = World::new();
    let texts: Vec<String> = (0..200).map(|number| format!("old{number} {}", "filler ".repeat(40))).collect();
    world.say("s1", &texts.iter().map(String::as_str).collect::<Vec<_>>());
    let root = "root = c.execute(\"SELECT rootpage FROM sqlite_master WHERE name = 'messages'\").fetchone()[0]";
    let page: usize = outside(
        &world,
        &format!(
            "{root}\nc.close()\ndata = open(path, 'rb').read()\nn = lambda page, at, size: int.from_bytes(data[(page - 1) * 4096 + at:][:size], 'big')\n\
             while n(root, 0, 1) == 5: root = n(root, 8, 4)\nprint(root)\nc = sqlite3.connect(path)"
        ),
    )
    .parse()
    .unwrap();
    let mut bytes = fs::read(world.store()).unwrap();
    bytes[(page - 1) * 4096..page * 4096].fill(0xa5);
    fs::write(world.store(), bytes).unwrap();

    for (session, text) in [("s1", "one"), ("s2", "two"), ("s1", "three")] {
        let spooled = world.run_with_input(&format!("record --session {session}"), line("user", text)).expect_code(0);
        assert!(spooled.out.starts_with("1 spooled "), "{spooled:?}");
    }
    assert_eq!(world.run("check --json").expect_code(4).json()["well"], false);
    assert_eq!(world.run("spool replay --json").expect_code(4).error()["kind"], "damaged");
    let repaired = world.run("repair --json");
    let strategy = serde_json::from_str::<serde_json::Value>(&repaired.out).unwrap()["strategy"].clone();
    assert_eq!(strategy, "salvage_rows", "{repaired:?}");
    world.run_with_input("record --session s1", line("user", "four")).expect_code(0);
    let kept = world.contents("s1");
    let kept: Vec<&str> = kept.iter().filter_map(|text| text.as_str()?.split(' ').next()).collect();
    let (old, new) = kept.split_at(kept.len() - 3);
    assert_eq!(new, ["one", "three", "four"]);
    assert!(old.len() > 150 && old.iter().enumerate().all(|(number, text)| *text == format!("old{number}")), "{old:?}");
    assert_eq!(world.contents("s2"), ["two"]);
    assert!(!world.folder().join("state.db-spool").exists());
}

#[test]
fn a_migration_tells_of_what_waits_in_the_spool_of_its_source() {
    let world = World::new();
    world.say("s1", &["first"]);
    spoil(&world);
    world.run_with_input("record --session s1", line("user", "second")).expect_code(0);
    mend(&world);
    let store = world.store().display().to_string();
    let told = world.run(&format!("migrate --from {store} --to {store}.copy --json")).expect_code(0);
    assert!(told.err.contains("1 write(s) wait in the spool of the source and are not copied"), "{told:?}");
    let stored = world.run("spool replay --json").expect_code(0).json();
    assert_eq!(stored["stored"], 1);
    let told = world.run(&format!("migrate --from {store} --to {store}.whole --json")).expect_code(0);
    assert!(!told.err.contains("spool"), "{told:?}");
    let shown = world.run(&format!("--db {store}.whole show s1 --json")).expect_code(0).json();
    assert_eq!(shown["messages"].as_array().unwrap().len(), 2);
}

/// Making the session, storing what was spooled before and storing the message are one wait to whoever sent the line.
#[test]
fn a_line_waits_its_patience_once_and_says_so_once() {
    let world = World::new();
    world.say("s1", &["first"]);
    let _holder = crate::errors::Holder::of(&world);
    for text in ["second", "third"] {
        let started = std::time::Instant::now();
        let told = world.run_with_input("record --session s1 --patience 4", line("user", text)).expect_code(0);
        let took = started.elapsed().as_secs_f64();
        assert!((4.0..8.0).contains(&took), "{took}");
        assert!(told.out.starts_with("1 spooled "), "{told:?}");
        assert_eq!(told.err.matches("has waited").count(), 1, "{told:?}");
    }
}

/// A recorder that was begun while the store was busy is not worse off for it.
#[test]
fn a_line_that_comes_when_the_store_is_free_again_is_stored_in_a_session_of_its_source() {
    use std::io::Write as _;
    let world = World::new();
    world.say("s1", &["first"]);
    let holder = crate::errors::Holder::of(&world);
    let (mut recorder, mut stdin) = world.start("record --session s2 --source telegram --patience 1");
    let is_there = || {
        let users = world.run("who --json").expect_code(0).json();
        users["users"].as_array().unwrap().iter().any(|user| user["pid"] == recorder.id())
    };
    while !is_there() {}
    std::thread::sleep(std::time::Duration::from_secs(2));
    drop(holder);
    stdin.write_all(line("user", "late").as_bytes()).unwrap();
    drop(stdin);
    assert!(recorder.wait().unwrap().success());
    assert_eq!(world.contents("s2"), ["late"]);
    assert_eq!(world.run("show s2 --json").expect_code(0).json()["session"]["source"], "telegram");
}
