//! `backup` and `restore`.

use std::io::{BufRead as _, BufReader, Write as _};

use hermes_state_testkit::shared;
use serde_json::json;

use crate::world::{World, line};

#[test]
fn a_backup_is_made_once_and_brought_back() {
    let world = World::new();
    let missing = world.run("backup x.db --json").expect_code(1).error();
    assert_eq!(missing["kind"], "not-found");
    assert!(!world.folder().exists());
    world.say("s1", &["Where is the harbour?"; 3]);
    let target = world.folder().join("backup.db");
    let backup = format!("backup {}", target.display());
    let first = world.run(&format!("{backup} --json")).expect_code(0).json();
    assert_eq!((&first["copied"], &first["messages"], &first["problems"]), (&json!(true), &json!(3), &json!([])));
    let second = world.run(&backup).expect_code(0);
    assert!(second.out.contains("nothing: the backup holds what the store holds"), "{second:?}");
    assert_eq!(world.run(&format!("{backup} --always --full --json")).expect_code(0).json()["copied"], true);
    let found = world.run(&format!("--db {} search harbour --json", target.display())).expect_code(0).json();
    assert_eq!(found["hits"].as_array().unwrap().len(), 3);
    world.say("s1", &["And the lighthouse?"]);
    let told = world.run(&format!("restore {}", target.display())).expect_code(0);
    assert!(told.out.contains("what was there") && told.out.contains("before-restore"), "{told:?}");
    assert_eq!(world.contents("s1").len(), 3);
    let again = world.run(&format!("restore {} --json", target.display())).expect_code(0).json();
    let kept = again["kept"].as_str().unwrap();
    assert_eq!((&again["messages"], &again["kept_log"]), (&json!(3), &json!(null)));
    world.run(&format!("--db {kept} check --full")).expect_code(0);
}

#[test]
fn what_cannot_be_done_says_what_to_do() {
    let world = World::new();
    world.say("s1", &["Where is the harbour?"; 3]);
    let target = world.folder().join("backup.db");
    std::fs::create_dir(&target).unwrap();
    assert_eq!(world.run(&format!("backup {} --json", target.display())).expect_code(1).error()["kind"], "stopped");
    std::fs::remove_dir(&target).unwrap();
    let diary = world.folder().join("diary");
    world.shell(&format!("yes 'Dear diary' | head -99 > {}", diary.display()));
    let refused = world.run(&format!("backup {} --json", diary.display())).expect_code(1).error();
    assert_eq!(refused["kind"], "refused");
    assert_eq!(world.run(&format!("restore {} --json", diary.display())).expect_code(4).error()["kind"], "damaged");
    for missing in ["restore nowhere.db --json", "repair --json --db nowhere.db", "backup b.db --json --db nowhere.db"]
    {
        assert_eq!(world.run(missing).expect_code(1).error()["kind"], "not-found", "{missing}");
    }
    world.run("backup").expect_code(2);
    world.run("restore").expect_code(2);
    assert_eq!(world.contents("s1").len(), 3);
}

#[test]
fn who_is_in_the_way_of_restoring_is_named() {
    let world = World::new();
    world.say("s1", &["Where is the harbour?"; 3]);
    let target = world.folder().join("backup.db");
    world.run(&format!("backup {}", target.display())).expect_code(0);
    let (mut recorder, mut stdin) = world.start("record --session s2");
    stdin.write_all(line("user", "I am at work").as_bytes()).unwrap();
    let mut said = String::new();
    BufReader::new(recorder.stdout.take().unwrap()).read_line(&mut said).unwrap();
    // A backup is in nobody's way.
    assert_eq!(world.run(&format!("backup {} --json", target.display())).expect_code(0).json()["messages"], 4);
    let refused = world.run(&format!("restore {} --json", target.display())).expect_code(3).error();
    assert_eq!((&refused["kind"], &refused["retryable"]), (&json!("busy"), &json!(true)));
    assert!(refused["message"].as_str().unwrap().contains(&format!("pid {}", recorder.id())), "{refused:#}");
    drop(stdin);
    recorder.wait().unwrap();
    world.run(&format!("restore {}", target.display())).expect_code(0);
}

#[test]
fn a_store_on_a_server_has_its_own_tools() {
    let Some(server) = shared() else { return };
    let (space, world) = (server.fresh(), World::new());
    let url = space.url();
    world.run_with_input(&format!("record --session s1 --db {url}"), line("user", "Where?")).expect_code(0);
    let refused = world.run(&format!("backup backup.db --json --db {url}")).expect_code(1).error();
    let said = refused["message"].as_str().unwrap();
    assert!(said.contains("pg_dump") && said.contains("hermes-state migrate"), "{refused:#}");
    world.run(&format!("restore backup.db --db {url}")).expect_code(1);
}
