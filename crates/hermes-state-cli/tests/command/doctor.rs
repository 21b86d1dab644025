//! `doctor`: what it tells of real surroundings, and that it leaves them as they were.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use hermes_state_testkit::shared;
use serde_json::{Value as Json, json};

use crate::health::{damage, outside};
use crate::world::{Outcome, World, line, program};

/// The files of the folder by name, inode, time and content; the log's shared index, in which every reader leaves a mark,
/// by name and inode.
pub(crate) fn seen(world: &World) -> String {
    let script = "import hashlib
for name in sorted(os.listdir(path)):
    with open(os.path.join(path, name), 'rb') as file: content = hashlib.sha256(file.read()).hexdigest()
    found = os.stat(os.path.join(path, name))
    print(name, found.st_ino, *(() if name.endswith('-shm') else (found.st_mtime_ns, oct(found.st_mode), content)))";
    let script = format!("import os, sys\npath = sys.argv[1]\n{script}");
    let output = Command::new("python3").args(["-c", &script]).arg(world.folder()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn findings(document: &Json) -> Vec<(String, String)> {
    let text = |finding: &Json, name: &str| finding[name].as_str().unwrap().to_owned();
    for finding in document["findings"].as_array().unwrap() {
        assert!(!text(finding, "next_step").is_empty() && !text(finding, "message").is_empty());
    }
    let all = document["findings"].as_array().unwrap().iter();
    all.map(|finding| (text(finding, "severity"), text(finding, "about"))).collect()
}

/// The command in a shell that ends with `exec "$@"`.
fn wrapped(world: &World, shell: &str, words: &str) -> Outcome {
    let told = world.command(words);
    let mut command = Command::new("bash");
    command.args(["-c", shell, "bash"]).arg(program()).args(words.split_whitespace()).current_dir("/");
    command.envs(told.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Outcome::of(command.output().unwrap())
}

#[test]
fn it_tells_all_of_a_store_in_use_and_changes_nothing() {
    let world = World::new();
    world.say("s1", &["Where is the harbour?"; 20]);
    let (mut recorder, mut stdin) = world.start("record --session s2");
    std::io::Write::write_all(&mut stdin, line("user", "x").as_bytes()).unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(recorder.stdout.as_mut().unwrap()), &mut String::new())
        .unwrap();
    let before = seen(&world);
    let found = world.run("doctor --json").expect_code(0).json();
    assert_eq!(seen(&world), before, "looking touches nothing");
    let file = &found["file"];
    assert_eq!((&found["exists"], &found["engine"]), (&json!(true), &json!("sqlite")));
    assert_eq!((&found["schema_version"], &found["schema_supported"]), (&json!(23), &json!(23)));
    assert_eq!(found["open_by"][0]["pid"], recorder.id());
    assert_eq!(found["index"], json!({ "filled": 100, "unindexed": 0, "degraded": false }));
    assert!((0.0..600.0).contains(&found["newest_message_age_seconds"].as_f64().unwrap()), "{found:#}");
    for probe in ["locks", "shared_memory"] {
        assert_eq!(file["file_system"][probe]["outcome"], "works", "{found:#}");
    }
    assert!(file["file_system"]["free_bytes"].as_u64() > Some(0) && file["file_system"]["kind"].is_string());
    assert_eq!((&file["journal_configured"], &file["journal_effective"]), (&json!("wal"), &json!("wal")));
    let frames = file["wal_frames"].as_u64().unwrap();
    assert!(frames > 0 && file["wal_unmerged"].as_u64().unwrap() <= frames, "{found:#}");
    assert!(file["main_bytes"].as_u64() > Some(0) && file["wal_bytes"].as_u64() > Some(0));
    let modes = file["permissions"].as_array().unwrap();
    assert!(modes.iter().any(|mode| mode["path"] == json!(world.store()) && mode["mode"] == "0600"), "{found:#}");
    let told = world.run("doctor").expect_code(0).out;
    for words in
        ["file system", "locks           works", "journal mode    wal (wanted: wal)", "newest message", "open in"]
    {
        assert!(told.contains(words), "{words}: {told}");
    }
    drop(stdin);
    recorder.wait().unwrap();
    let before = seen(&world);
    world.run("doctor").expect_code(0);
    assert_eq!(seen(&world), before, "nor when nobody has the store open");
}

#[test]
fn a_store_that_is_not_there_is_no_problem_and_not_made() {
    let world = World::new();
    let found = world.run("doctor --json").expect_code(0).json();
    assert_eq!((&found["exists"], &found["newest_message"]), (&json!(false), &Json::Null));
    assert!(findings(&found).contains(&("notice".into(), "store".into())), "{found:#}");
    assert_eq!(found["file"]["file_system"]["locks"]["outcome"], "not tested");
    assert!(!world.folder().exists());
}

/// Records a message while somebody sits on the lock.
fn spool_one(world: &World) {
    let _holder = crate::errors::Holder::of(world);
    let told = world.run_with_input("record --session s1 --patience 0.1", line("user", "waits")).expect_code(0);
    assert!(told.out.contains("spooled"), "{told:?}");
}

#[test]
fn what_asks_for_care_is_told_with_a_next_step() {
    let world = World::new();
    world.say("s1", &["Where is the harbour?"; 20]);
    assert_eq!(findings(&world.run("doctor --json").expect_code(0).json()), []);
    fs::set_permissions(world.store(), Permissions::from_mode(0o644)).unwrap();
    spool_one(&world);
    outside(
        &world,
        "for table in ('messages_fts', 'messages_fts_trigram'):\n    \
             c.execute(f\"INSERT INTO {table}({table}) VALUES('delete-all')\")\n\
         c.execute(\"INSERT INTO state_meta (key, value) VALUES ('fts_rebuild_high_water', '20'), ('fts_rebuild_progress', '5')\")\n\
         c.commit()\nc.execute('PRAGMA journal_mode=DELETE')",
    );
    let found = world.run("doctor --json").expect_code(0).json();
    for about in ["permissions", "spool", "index", "journal"] {
        assert!(findings(&found).contains(&("warning".into(), about.into())), "{about}: {found:#}");
    }
    assert_eq!(found["index"], json!({ "filled": 25, "unindexed": 15, "degraded": true }));
    assert_eq!((&found["spool"]["waiting"], &found["spool"]["damaged"]), (&json!(1), &json!(0)));
    assert_eq!(found["file"]["journal_effective"], "delete");
    let told = world.run("doctor").expect_code(0).out;
    assert!(told.contains("Run `chmod go= '"), "{told}");
}

#[test]
fn damage_is_code_4_and_a_newer_schema_code_1() {
    let world = World::new();
    world.say("s1", &["Where is the harbour?"; 20]);
    outside(&world, "c.execute('UPDATE schema_version SET version = 99')");
    let newer = world.run("doctor --json").expect_code(1);
    assert_eq!(findings(&newer.json())[0], ("problem".into(), "schema".into()));
    assert_eq!(newer.error()["kind"], "stopped");
    outside(
        &world,
        "c.close()\nwith open(path, 'r+b') as f: f.seek(100); f.write(bytes(3996))\nc = sqlite3.connect(':memory:')",
    );
    let broken = world.run("doctor --json").expect_code(4);
    assert_eq!(findings(&broken.json())[0], ("damage".into(), "store".into()));
    assert!(broken.error()["message"].as_str().unwrap().contains("state.db"));
    // What only a look at every page shows is for `check`.
    let other = World::new();
    other.say("s1", &["Where is the harbour?"; 20]);
    damage(&other);
    other.run("doctor").expect_code(0);
}

#[test]
fn where_nothing_can_be_made_locks_are_not_tested_and_why() {
    let world = World::new();
    world.say("s1", &["Where is the harbour?"; 20]);
    let _ = fs::remove_file(world.folder().join("state.db-siblings"));
    let home = world.folder().parent().unwrap().to_owned();
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    set(&home, 0o755);
    set(&world.store(), 0o444);
    set(&world.folder(), 0o555);
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let shell = if root { r#"exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@""# } else { r#"exec "$@""# };
    let before = seen(&world);
    let found = wrapped(&world, shell, "doctor --json").expect_code(0).json();
    for probe in ["locks", "shared_memory"] {
        let probe = &found["file"]["file_system"][probe];
        assert_eq!(probe["outcome"], "not tested", "{found:#}");
        assert!(probe["reason"].as_str().unwrap().contains("Permission denied"), "{found:#}");
    }
    assert!(found["newest_message"].is_string(), "the store is read all the same: {found:#}");
    for words in ["check --json", "check --full --json"] {
        assert_eq!(wrapped(&world, shell, words).expect_code(0).json()["verdict"], "well", "{words}");
    }
    assert_eq!(seen(&world), before);
    set(&world.folder(), 0o700);
}

#[test]
#[expect(clippy::print_stderr, reason = "where no file system can be mounted the test says so")]
fn a_full_disk_is_a_problem() {
    let world = World::new();
    fs::create_dir_all(world.folder()).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(world.folder()).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: this user may not mount a small file system");
        return;
    }
    world.say("s1", &["Where is the harbour?"; 20]);
    let found = world.run("doctor --json").expect_code(1);
    let unmounted = Command::new("umount").arg("-l").arg(world.folder()).status();
    assert!(unmounted.is_ok_and(|done| done.success()));
    let found = found.json();
    assert_eq!(found["file"]["file_system"]["kind"], "tmpfs", "{found:#}");
    assert_eq!(findings(&found)[0], ("problem".into(), "space".into()), "{found:#}");
}

#[test]
fn of_a_server_it_tells_what_applies() {
    let Some(server) = shared() else { return };
    let (space, world) = (server.fresh(), World::new());
    let url = space.url();
    let run = |words: &str| world.run(&format!("{words} --db {url}"));
    let none = run("doctor --json").expect_code(0).json();
    assert_eq!((&none["exists"], findings(&none)), (&json!(false), vec![("notice".into(), "store".into())]));
    world.run_with_input(&format!("record --session s1 --db {url}"), line("user", "Where?")).expect_code(0);
    let found = run("doctor --json").expect_code(0).json();
    let server = &found["server"];
    assert_eq!((&found["engine"], &found["file"]), (&json!("postgresql"), &Json::Null));
    assert!(server["latency_ms"].as_f64() > Some(0.0) && server["connections"].as_i64() > Some(0), "{found:#}");
    assert_eq!((&server["may_write"], &server["may_upgrade"]), (&json!(true), &json!(true)), "{found:#}");
    assert!(server["max_connections"].as_i64() >= server["connections"].as_i64());
    assert!(found["newest_message"].is_string() && found["index"]["filled"] == 100, "{found:#}");
    assert!(run("doctor").expect_code(0).out.contains("answers in"));
}

/// A record that cannot be read is a message that somebody was told is kept: nobody is to hear that all is well.
#[test]
fn a_record_of_the_spool_that_cannot_be_read_is_told_by_check_and_doctor() {
    let world = World::new();
    world.say("s1", &["first"]);
    spool_one(&world);
    assert_eq!(world.run("check --json").expect_code(0).json()["well"], true, "what waits is no damage");
    let log = fs::read_dir(world.folder().join("state.db-spool"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.metadata().unwrap().len() > 60)
        .unwrap();
    #[expect(clippy::disallowed_methods, reason = "not a store file")]
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() - 20;
    bytes[middle] ^= 1;
    #[expect(clippy::disallowed_methods, reason = "not a store file")]
    fs::write(&log, bytes).unwrap();
    let checked = world.run("check --json").expect_code(4).json();
    assert_eq!((&checked["well"], &checked["verdict"]), (&json!(false), &json!("spool damaged, store intact")));
    let part = checked["parts"].as_array().unwrap().iter().find(|part| part["part"] == "spool").unwrap();
    assert_eq!((&part["state"], &part["findings"]), (&json!("damaged"), &json!(["1 records cannot be read"])));
    assert!(part["next_step"].as_str().unwrap().contains("spool discard"), "{part}");
    let told = world.run("check").expect_code(4);
    assert!(told.out.contains("1 records cannot be read") && !told.err.contains("repair"), "{told:?}");
    let examined = world.run("doctor --json").expect_code(1).json();
    assert!(findings(&examined).contains(&("problem".into(), "spool".into())), "{examined:#}");
    assert_eq!(examined["spool"]["damaged"], 1);
}
