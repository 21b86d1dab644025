//! `prune`: what a dry run lists is what goes, what was left open is told of, and bad policies change nothing.

use std::process::Command;

use hermes_state_testkit::shared;
use serde_json::{Value as Json, json};

use crate::world::World;

/// A chain of which all but the last ended long ago, and one that never ended and whose owner is gone. Times are days
/// before now; each session began an hour before it ended.
const CHAIN: [(&str, &str, &str, f64, bool); 5] = [
    ("A", "NULL", "aardvark", 40.0, true),
    ("B", "'A'", "buffalo", 40.0, true),
    ("C", "'B'", "cormorant", 40.0, true),
    ("D", "'C'", "dormouse", 2.0, true),
    ("E", "NULL", "echidna", 50.0, false),
];

/// Makes the chain in the store of these arguments, whose SQL `change` runs.
fn chain(world: &World, store: &str, change: &dyn Fn(&str) -> String) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    for (id, ..) in CHAIN {
        let word = CHAIN.iter().find(|session| session.0 == id).unwrap().2;
        let line = crate::world::line("user", word);
        world.run_with_input(&format!("record --session {id}{store}"), line).expect_code(0);
    }
    let sql = CHAIN.map(|(id, parent, _, days, has_ended)| {
        let ended = now - days * 86_400.0;
        let (began, end) = if has_ended { (ended - 3600.0, ended.to_string()) } else { (ended, "NULL".to_owned()) };
        format!(
            "UPDATE sessions SET parent_session_id = {parent}, started_at = {began}, ended_at = {end} WHERE id = '{id}'; \
             UPDATE messages SET timestamp = {began} WHERE session_id = '{id}';"
        )
    });
    change(&sql.concat());
}

fn ids(list: &Json) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|session| session["id"].as_str().unwrap()).collect()
}

/// Prunes through the chain; `store` names it.
fn prunes_through_the_chain(world: &World, store: &str) {
    let dry = world.run(&format!("prune --older-than 30d --dry-run --json{store}")).expect_code(0).json();
    assert_eq!(ids(&dry["sessions"]), ["A", "B", "C"]);
    assert_eq!((ids(&dry["owner_gone"]), ids(&dry["open"])), (vec!["E"], vec![]));
    assert_eq!((&dry["deleted"], &dry["chosen"], &dry["messages"]), (&json!(0), &json!(3), &json!(3)));
    assert_eq!(dry["bytes"], "aardvarkbuffalocormorant".len());
    let told = world.run(&format!("prune --older-than 30d --dry-run{store}")).expect_code(0);
    assert!(told.out.contains("would delete 3 session(s): 3 message(s), 24 B of text"), "{told:?}");
    assert!(told.err.contains("E is open, owner gone"), "{told:?}");
    let unsaid = world.run(&format!("prune --older-than 30d{store}")).expect_code(2);
    assert!(unsaid.err.contains("--yes"), "{unsaid:?}");
    let done = world.run(&format!("prune --older-than 30d --yes --json{store}")).expect_code(0).json();
    assert_eq!((&done["deleted"], &done["dry_run"]), (&json!(3), &json!(false)));
    assert_eq!(done["sessions"], dry["sessions"], "what was listed is what went");
    let list = world.run(&format!("list --all --json{store}")).expect_code(0).json();
    assert_eq!(ids(&list["sessions"]), ["D", "E"]);
    assert_eq!(list["sessions"][0]["parent_session_id"], Json::Null);
    assert_eq!(list["sessions"][0]["message_count"], 1);
    let again = world.run(&format!("prune --older-than 30d --yes{store}")).expect_code(0);
    assert!(again.out.contains("deleted 0 session(s)"), "{again:?}");
    for (word, hits) in [("aardvark", 0), ("buffalo", 0), ("cormorant", 0), ("dormouse", 1), ("echidna", 1)] {
        let found = world.run(&format!("search {word} --json{store}")).expect_code(0).json();
        assert_eq!(found["hits"].as_array().unwrap().len(), hits, "{word}");
    }
    let asked =
        world.run(&format!("prune --older-than 30d --state owner-gone --yes --json{store}")).expect_code(0).json();
    assert_eq!((ids(&asked["sessions"]), &asked["deleted"]), (vec!["E"], &json!(1)));
}

fn outside(world: &World, script: &str) -> String {
    let script = format!("import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\n{script}\nc.commit()");
    let output = Command::new("python3").args(["-c", &script]).arg(world.store()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_prune_goes_through_a_chain_and_tells_of_what_was_left_open() {
    let world = World::new();
    chain(&world, "", &|sql| outside(&world, &format!("c.executescript({sql:?})")));
    prunes_through_the_chain(&world, "");
    let well =
        "print(c.execute('PRAGMA integrity_check').fetchall(), c.execute('PRAGMA foreign_key_check').fetchall())";
    assert_eq!(outside(&world, well), "[('ok',)] []");
}

#[test]
fn a_prune_on_a_server_does_the_same() {
    let Some(server) = shared() else { return };
    let space = server.fresh();
    let (world, store) = (World::new(), format!(" --db {}", space.url()));
    chain(&world, &store, &|sql| space.psql(sql));
    prunes_through_the_chain(&world, &store);
}

#[test]
fn a_policy_may_stand_in_a_file_and_a_bad_one_changes_nothing() {
    let world = World::new();
    chain(&world, "", &|sql| outside(&world, &format!("c.executescript({sql:?})")));
    let file = world.folder().join("policy.json");
    #[expect(clippy::disallowed_methods, reason = "a policy, which is no store")]
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    let prune = |more: &str| world.run(&format!("prune --policy {} {more}", file.display()));
    assert!(prune("--yes").expect_code(1).err.contains("cannot be read"));
    for (bad, reason) in [
        ("", "EOF"),
        (r#"{"rules": []}"#, "has no rules"),
        (r#"{"rules": [{"older_then": "1d"}]}"#, "older_then"),
        (r#"{"rules": [{"older_than": "soon"}]}"#, "'soon' is no age"),
        (r#"{"rules": [{"older_than": "1d", "states": ["dead"]}]}"#, "dead"),
    ] {
        write(bad);
        let refused = prune("--yes --json").expect_code(2).error();
        assert!(refused["message"].as_str().unwrap().contains(reason), "{refused}");
    }
    for bad in ["--older-than soon", "--older-than 1d --state dead", "--older-than 1d --source=", "--state ended", ""] {
        world.run(&format!("prune {bad} --yes")).expect_code(2);
    }
    assert_eq!(outside(&world, "print(c.execute('SELECT COUNT(*) FROM sessions').fetchone()[0])"), "5");
    write(
        r#"{"rules": [{"older_than": "45d", "states": ["owner-gone"]}, {"older_than": "1d", "except_sources": ["web"]}]}"#,
    );
    let listed = prune("--dry-run --json").expect_code(0).json();
    assert_eq!(ids(&listed["sessions"]), ["E", "A", "B", "C", "D"]);
    assert_eq!(prune("--yes --json").expect_code(0).json()["deleted"], 5);
}

#[test]
fn where_there_is_no_store_nothing_is_made() {
    let world = World::new();
    let dry = world.run("prune --older-than 1d --dry-run --json").expect_code(0).json();
    assert_eq!(dry["sessions"], json!([]));
    assert!(world.run("prune --older-than 1d --yes").expect_code(1).err.contains("there is no store"));
    assert!(!world.folder().exists());
}
