//! `check`, `repair`, `vacuum` and `who`: real damage, and processes that are in the way.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Command;

use hermes_state_testkit::shared;
use serde_json::json;

use crate::doctor::seen;
use crate::world::{World, line};

/// Runs Python on the file, in a process of its own.
pub(crate) fn outside(world: &World, script: &str) -> String {
    let script = format!("import sqlite3, sys\npath = sys.argv[1]\nc = sqlite3.connect(path)\n{script}\nc.commit()");
    let output = Command::new("python3").args(["-c", &script]).arg(world.store()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Zeroes the blocks of the index of words.
pub(crate) fn damage(world: &World) {
    outside(world, "c.execute('UPDATE messages_fts_data SET block = zeroblob(64) WHERE id > 10')");
}

fn digest(world: &World) -> String {
    outside(world, "import hashlib; print(hashlib.sha256(open(path, 'rb').read()).hexdigest())")
}

fn backups(world: &World) -> Vec<String> {
    let names = std::fs::read_dir(world.folder()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("malformed-backup") || name.contains("repairing")).collect()
}

#[test]
fn a_check_tells_how_the_store_is_and_touches_nothing() {
    let world = World::new();
    let nothing = world.run("check").expect_code(0);
    assert!(nothing.err.contains("there is no store at"), "{nothing:?}");
    assert!(!world.folder().exists());
    world.say("s1", &["Where is the harbour?"; 20]);
    let well = world.run("check --full --json").expect_code(0).json();
    assert_eq!((&well["well"], &well["verdict"], &well["problems"]), (&json!(true), &json!("well"), &json!([])));
    damage(&world);
    let before = digest(&world);
    let told = world.run("check").expect_code(4);
    assert!(told.out.contains("index damaged, transcript intact"), "{told:?}");
    assert!(told.err.contains("Hint: Stop the programs") && told.err.contains("hermes-state repair"), "{told:?}");
    let damaged = world.run("check --json").expect_code(4);
    assert_eq!((&damaged.json()["well"], &damaged.json()["unreadable"]), (&json!(false), &json!([])));
    assert_eq!(damaged.error()["kind"], "damaged");
    assert_eq!(digest(&world), before);
}

#[test]
fn a_repair_mends_the_store_and_keeps_the_damaged_file() {
    let world = World::new();
    let missing = world.run("repair --json").expect_code(1).error();
    assert!(missing["message"].as_str().unwrap().contains("does not exist"), "{missing:#}");
    world.say("s1", &["Where is the harbour?"; 20]);
    let well = world.run("repair --json").expect_code(0).json();
    assert_eq!((&well["repaired"], &well["strategy"]), (&json!(false), &json!("already_healthy")));
    damage(&world);
    let told = world.run("repair").expect_code(0);
    assert!(told.out.contains("filled the search indexes anew") && told.out.contains("messages: 20 rows"), "{told:?}");
    assert_eq!(backups(&world).len(), 1);
    assert_eq!(world.run("search harbour --json").expect_code(0).json()["degraded"], false);
    assert_eq!(world.contents("s1").len(), 20);
    damage(&world);
    world.run("repair --no-backup").expect_code(0);
    assert_eq!(backups(&world).len(), 1);
    world.run("check --full").expect_code(0);
}

#[test]
fn an_index_that_is_not_filled_to_the_end_is_told_of_and_filled() {
    let world = World::new();
    world.say("s1", &["Where is the harbour?"; 20]);
    assert_eq!(world.run("check --json").expect_code(0).json()["index_filled"], 100);
    outside(
        &world,
        "for table in ('messages_fts', 'messages_fts_trigram'):\n    \
             c.execute(f\"INSERT INTO {table}({table}) VALUES('delete-all')\")\n\
         c.execute(\"INSERT INTO state_meta (key, value) VALUES ('fts_rebuild_high_water', '20'), ('fts_rebuild_progress', '0')\")",
    );
    let told = world.run("check").expect_code(0);
    assert!(told.out.contains("filled to 0 %") && told.out.contains("hermes-state repair"), "{told:?}");
    assert_eq!(world.run("search harbour --json --limit 99").expect_code(0).json()["degraded"], true);
    let told = world.run("repair").expect_code(0);
    assert!(told.out.contains("filled the search indexes to the end"), "{told:?}");
    assert_eq!(world.run("check --json").expect_code(0).json()["index_filled"], 100);
    let found = world.run("search harbour --json --limit 99").expect_code(0).json();
    assert_eq!((&found["degraded"], found["hits"].as_array().unwrap().len()), (&json!(false), 20));
    assert_eq!(world.run("repair --json").expect_code(0).json()["filled"], false);
}

#[test]
fn a_store_in_use_is_not_repaired_and_its_user_named() {
    let world = World::new();
    world.say("s1", &["Where is the harbour?"; 20]);
    damage(&world);
    let (mut recorder, mut stdin) = world.start("record --session s2");
    stdin.write_all(line("user", "").as_bytes()).unwrap();
    let mut told = BufReader::new(recorder.stdout.take().unwrap());
    let mut said = String::new();
    told.read_line(&mut said).unwrap();
    let users = world.run("who --json").expect_code(0).json();
    assert_eq!(users["users"][0]["pid"], recorder.id(), "{users:#}");
    assert_eq!(
        (&users["users"][0]["takes_turns"], &users["users"][0]["program"]),
        (&json!(true), &json!("hermes-state"))
    );
    assert!(world.run("who").expect_code(0).out.contains(&format!("pid {}", recorder.id())));
    let before = digest(&world);
    let refused = world.run("repair --json").expect_code(3).error();
    assert_eq!((&refused["kind"], &refused["retryable"]), (&json!("busy"), &json!(true)));
    assert!(refused["message"].as_str().unwrap().contains(&format!("pid {}", recorder.id())), "{refused:#}");
    assert_eq!((digest(&world), backups(&world)), (before, Vec::new()));
    drop(stdin);
    recorder.wait().unwrap();
    world.run("repair").expect_code(0);
    assert!(world.run("who").expect_code(0).out.is_empty());
}

#[test]
fn a_vacuum_gives_space_back_at_once_or_gently() {
    let world = World::new();
    assert_eq!(world.run("vacuum --json").expect_code(1).error()["kind"], "not-found");
    assert!(!world.folder().exists());
    let long = "harbour ".repeat(400);
    world.say("s1", &[long.as_str(); 200]);
    outside(&world, "c.execute('DELETE FROM messages WHERE id > 20')");
    let gently = world.run("vacuum --gently --json").expect_code(0).json();
    let number = |name: &str| gently[name].as_u64().unwrap();
    assert!(number("after_bytes") < number("before_bytes"), "{gently:#}");
    outside(&world, "c.execute('DELETE FROM messages WHERE id > 10')");
    let told = world.run("vacuum").expect_code(0);
    assert!(told.out.contains("before") && told.out.contains("after"), "{told:?}");
    assert_eq!(outside(&world, "print(c.execute('PRAGMA freelist_count').fetchone()[0])"), "0");
    assert_eq!(world.contents("s1").len(), 10);
    world.run("check --full").expect_code(0);
}

#[test]
fn on_a_server_these_say_what_they_can() {
    let Some(server) = shared() else { return };
    let (space, world) = (server.fresh(), World::new());
    let url = space.url();
    let run = |words: &str| world.run(&format!("{words} --db {url}"));
    assert!(run("check").expect_code(0).err.contains("there is no store at"));
    world.run_with_input(&format!("record --session s1 --db {url}"), line("user", "Where?")).expect_code(0);
    assert_eq!(run("check --json").expect_code(0).json()["verdict"], "well");
    let refused = run("repair --json").expect_code(1).error();
    assert_eq!(refused["kind"], "refused");
    assert!(refused["message"].as_str().unwrap().contains("looked after by the server"), "{refused:#}");
    let vacuumed = run("vacuum --json").expect_code(0).json();
    assert!(vacuumed["after_bytes"].as_u64().unwrap() > 0, "{vacuumed:#}");
    run("who").expect_code(0);
}

#[test]
fn a_check_leaves_the_files_of_a_store_in_use_and_of_one_at_rest_as_they_were() {
    let world = World::new();
    world.say("s1", &["Where is the harbour?"; 20]);
    let checks = || {
        let before = seen(&world);
        for words in ["check", "check --full --json"] {
            world.run(words).expect_code(0);
            assert_eq!(seen(&world), before, "{words}");
        }
    };
    checks();
    let (mut recorder, mut stdin) = world.start("record --session s2");
    stdin.write_all(line("user", "x").as_bytes()).unwrap();
    BufReader::new(recorder.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    checks();
    drop(stdin);
    recorder.wait().unwrap();
}

#[test]
fn each_part_has_a_verdict_and_a_path_in_json_is_absolute() {
    let world = World::new();
    world.say("s1", &["Where is the harbour?"; 20]);
    outside(&world, "c.execute(\"DELETE FROM sessions\")");
    let told = world.run("check --full").expect_code(0).out;
    assert!(told.contains("transcript  noted") && told.contains("20 rows of messages refer to"), "{told}");
    let mut relative = world.command("check --full --json --db state.db");
    let found = crate::world::Outcome::of(relative.current_dir(world.folder()).output().unwrap()).expect_code(0).json();
    assert_eq!(found["store"], json!(world.store().canonicalize().unwrap()));
    let parts: Vec<_> = found["parts"].as_array().unwrap().iter().map(|part| (&part["part"], &part["state"])).collect();
    let noted = |name: &str| if name == "transcript" { json!("noted") } else { json!("well") };
    let names = ["sessions", "transcript", "index", "others", "sidecars", "spool"];
    let expected: Vec<_> = names.map(|name| (json!(name), noted(name))).into();
    assert_eq!(parts, expected.iter().map(|(part, state)| (part, state)).collect::<Vec<_>>(), "{found:#}");
    let who = crate::world::Outcome::of(
        world.command("who --json --db state.db").current_dir(world.folder()).output().unwrap(),
    );
    assert_eq!(who.expect_code(0).json()["store"], found["store"]);
    let repaired = world.run("repair --json").expect_code(0).json();
    assert_eq!(repaired["strategy"], "adopt_orphans");
    let sessions = repaired["tables"].as_array().unwrap().iter().find(|table| table["table"] == "sessions").unwrap();
    assert_eq!((&sessions["before"], &sessions["rows"], &sessions["made"]), (&json!(0), &json!(1), &json!(1)));
    assert_eq!(world.contents("s1").len(), 20);
}

#[test]
fn a_repair_into_a_new_file_may_find_the_store_in_use() {
    let world = World::new();
    world.say("s1", &["Where is the harbour?"; 20]);
    damage(&world);
    let (mut recorder, stdin) = world.start("record --session s2");
    while world.run("who --json").expect_code(0).json()["users"].as_array().unwrap().is_empty() {
        assert_eq!(recorder.try_wait().unwrap(), None, "it waits for its input");
    }
    let before = digest(&world);
    let new = world.folder().join("new.db");
    let report = world.run(&format!("repair --json --into {}", new.display())).expect_code(0).json();
    assert_eq!((&report["into"], &report["backup"]), (&json!(new), &json!(null)));
    assert_eq!(digest(&world), before);
    let refused = world.run(&format!("repair --into {} --json", new.display())).expect_code(1).error();
    assert!(refused["message"].as_str().unwrap().contains("is there already"), "{refused:#}");
    // In its own place it is not repaired now, and nobody is told that it is well.
    let in_use = world.run("repair").expect_code(3);
    assert!(in_use.err.contains(&format!("in use by pid {}", recorder.id())), "{in_use:?}");
    assert!(!in_use.err.contains("store is well"), "{in_use:?}");
    drop(stdin);
    recorder.wait().unwrap();
    world.run(&format!("check --full --db {}", new.display())).expect_code(0);
    world.run("check").expect_code(4);
}

/// Zeros are no error to SQLite: the index just finds nothing. What a check sends to the repair, the repair mends.
#[test]
fn a_search_index_that_was_written_over_with_zeros_is_told_and_mended() {
    let world = World::new();
    world.say("s1", &["Where is the harbour?"; 20]);
    outside(
        &world,
        "for table in ('messages_fts', 'messages_fts_trigram'): c.execute(f'UPDATE {table}_data SET block = zeroblob(64)')\nc.commit()",
    );
    let found = world.run("check --json").expect_code(4).json();
    assert_eq!(found["verdict"], "index damaged, transcript intact");
    let repaired = world.run("repair --json").expect_code(0).json();
    assert_eq!(repaired["strategy"], "rebuild_fts", "{repaired:#}");
    assert_eq!(world.run("check --json").expect_code(0).json()["verdict"], "well");
    let hits = world.run("search harbour --json").expect_code(0).json();
    assert!(!hits["hits"].as_array().unwrap().is_empty() && hits["degraded"] == false, "{hits:#}");
}
