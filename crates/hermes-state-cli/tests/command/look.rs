//! Reading commands: what they show, and that looking does not touch.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::world::{World, line, program};

const LOOKS: [&str; 6] = ["list", "list --json", "search harbour", "search harbour --json", "status", "status --json"];

#[test]
fn a_missing_store_is_an_empty_result_and_stays_missing() {
    let world = World::new();
    for look in LOOKS {
        let looked = world.run(look).expect_code(0);
        if look.ends_with("--json") {
            assert_eq!(looked.err, "", "{look}");
            assert_eq!(looked.json()["store"], json!(world.store()));
        } else {
            assert_eq!(looked.out, "", "{look}");
            assert!(looked.err.contains("there is no store at"), "{looked:?}");
        }
    }
    let shown = world.run("show s1 --json").expect_code(1);
    assert_eq!(shown.error()["kind"], "not-found");
    assert!(!world.folder().exists());
}

#[test]
fn a_search_that_finds_nothing_says_so_beside_the_output() {
    let world = World::new();
    world.run_with_input("record --session s", line("user", "harbour")).expect_code(0);
    let looked = world.run("search zebrafinch").expect_code(0);
    assert_eq!((looked.out.as_str(), looked.err.trim()), ("", "Note: no message matches"));
    assert_eq!(world.run("search zebrafinch --json").expect_code(0).err, "");
}

#[test]
fn a_search_can_be_given_a_time_to_end() {
    let world = World::new();
    world.run_with_input("record --session s", line("user", "harbour")).expect_code(0);
    let ended = world.run("search harbour --timeout 0 --json").expect_code(0).json();
    assert_eq!((&ended["partial"], &ended["hits"]), (&json!(true), &json!([])), "{ended:#}");
    let whole = world.run("search harbour --timeout 60 --json").expect_code(0).json();
    assert_eq!((&whole["partial"], whole["hits"].as_array().unwrap().len()), (&json!(false), 1), "{whole:#}");
    world.run("search harbour --timeout soon").expect_code(2);
}

/// Everything about a folder's files that looking could change.
#[expect(clippy::disallowed_methods, reason = "this process holds no lock on the store that a close could drop")]
fn picture(folder: &Path, names: &[&str]) -> Vec<(String, u64, i64, Vec<u8>)> {
    names
        .iter()
        .map(|name| {
            let path = folder.join(name);
            let metadata = fs::metadata(&path).unwrap();
            let time = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
            ((*name).to_owned(), metadata.ino(), time, fs::read(path).unwrap())
        })
        .collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn looking_at_a_store_that_a_writer_holds_open_changes_nothing() {
    let world = World::new();
    let (mut child, mut stdin) = world.start("record --session s1");
    let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..20 {
        stdin.write_all(line("user", "Where is the harbour?").as_bytes()).unwrap();
        told.next().unwrap().unwrap();
    }
    let before = (names(&world.folder()), picture(&world.folder(), &["state.db", "state.db-wal"]));
    let shm = fs::metadata(world.folder().join("state.db-shm")).unwrap().ino();
    for look in LOOKS {
        world.run(look).expect_code(0);
    }
    let status = world.run("status --json").expect_code(0).json();
    let pids: Vec<u64> = status["open_by"].as_array().unwrap().iter().filter_map(|user| user["pid"].as_u64()).collect();
    assert_eq!(pids, [u64::from(child.id())], "{status:#}");
    let after = (names(&world.folder()), picture(&world.folder(), &["state.db", "state.db-wal"]));
    assert!(before == after, "a look changed the store's files");
    assert_eq!(fs::metadata(world.folder().join("state.db-shm")).unwrap().ino(), shm);
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn looking_at_a_store_that_nobody_has_open_leaves_one_unchanged_file() {
    let world = World::new();
    world.say("s1", &["Where is the harbour?"]);
    let before = (names(&world.folder()), picture(&world.folder(), &["state.db"]));
    for look in LOOKS {
        world.run(look).expect_code(0);
    }
    assert!(before == (names(&world.folder()), picture(&world.folder(), &["state.db"])), "a look changed the files");
}

#[test]
fn a_store_in_a_protected_folder_can_be_looked_at() {
    let world = World::new();
    world.say("s1", &["Where is the harbour?"]);
    let folder = world.folder();
    for name in names(&folder) {
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o444)).unwrap();
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(folder.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let before = names(&folder);
    // The build folder may be closed to other users.
    let copy = folder.parent().unwrap().join("hermes-state-copy");
    #[expect(clippy::disallowed_methods, reason = "a program is no store file")]
    fs::copy(program(), &copy).unwrap();
    for look in LOOKS {
        let mut command = Command::new(&copy);
        command.args(look.split_whitespace()).env("HERMES_HOME", &folder).env("HOME", &folder);
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            // Rights do not bind root, so the look is another user's.
            command.uid(65534);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{look}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(look.starts_with("status") || String::from_utf8_lossy(&output.stdout).contains("s1"), "{look}");
    }
    assert_eq!(names(&folder), before);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_listing_can_be_filtered_and_paged() {
    let world = World::new();
    world.say("alpha-1", &["one"]);
    world.say("alpha-2", &["two"]);
    world.run_with_input("record --session beta --source telegram", line("user", "three")).expect_code(0);
    let ids = |words: &str| {
        let listed = world.run(&format!("list --json {words}")).expect_code(0).json();
        let ids =
            listed["sessions"].as_array().unwrap().iter().map(|session| session["id"].as_str().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(ids(""), ["beta", "alpha-2", "alpha-1"]);
    assert_eq!(ids("--limit 1 --offset 1"), ["alpha-2"]);
    assert_eq!(ids("--limit -1 --all"), ["beta", "alpha-2", "alpha-1"]);
    assert_eq!(ids("--source telegram"), ["beta"]);
    assert_eq!(ids("--titled alpha"), ["alpha-2", "alpha-1"]);
    assert!(ids("--archived").is_empty());
    let listed = world.run("list").expect_code(0);
    assert!(listed.out.lines().nth(1).unwrap().starts_with(" beta"), "{listed:?}");
}

#[test]
fn the_beginning_of_an_id_is_enough_if_no_other_begins_so() {
    let world = World::new();
    for session in ["alpha-1", "alpha-2", "alpha"] {
        world.say(session, &[session]);
    }
    assert_eq!(world.contents("alpha"), [json!("alpha")], "an exact id wins");
    assert_eq!(world.contents("alpha-2"), [json!("alpha-2")]);
    let ambiguous = world.run("show alph --json").expect_code(1).error();
    assert_eq!(ambiguous["message"], "3 sessions have an id that begins with \"alph\"");
    assert!(ambiguous["hints"][0].as_str().unwrap().contains("alpha-2"));
    world.run("show beta").expect_code(1);
    world.run("show _lpha").expect_code(1);
}

#[test]
fn a_transcript_cannot_steer_the_terminal() {
    let world = World::new();
    world.say("s1", &["harmless\u{1b}]0;owned\u{7} text"]);
    for look in ["show s1", "list", "search harmless"] {
        let looked = world.run(look).expect_code(0);
        assert!(looked.out.contains("harmless"), "{looked:?}");
        assert!(!looked.out.contains(['\u{1b}', '\u{7}']), "{looked:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let world = World::new();
    let long = "x".repeat(2000);
    world.say("s1", &[long.as_str(); 200]);
    for line in
        ["show s1 | head -1", "show s1 --json | head -c 10", "list | head -1", "--help | head -1", "man | head -1"]
    {
        let output = world.shell(&format!("$hermes {line}"));
        assert!(output.status.success(), "{line}: {output:?}");
        assert!(!output.stdout.is_empty());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line}");
    }
}

#[test]
fn the_store_is_found_as_the_page_says() {
    let world = World::new();
    world.say("s1", &["hello"]);
    let user_home = world.folder().parent().unwrap().join("user");
    let default = user_home.join(".hermes");
    fs::create_dir_all(&default).unwrap();
    let run = |home: &str, words: &str| {
        let mut command = world.command(words);
        crate::world::Outcome::of(command.env("HOME", &user_home).env("HERMES_HOME", home).output().unwrap())
    };
    let folder = world.folder().display().to_string();
    assert!(run(&format!("  {folder} "), "list").out.contains("s1"));
    let by_default = run("  ", "status --json");
    assert_eq!(by_default.json()["store"], json!(default.join("state.db")));
    assert_eq!(by_default.err, "");
    let named = run("", &format!("list --db {folder}/state.db"));
    assert!(named.out.contains("s1"), "{named:?}");

    #[expect(clippy::disallowed_methods, reason = "not a store file")]
    fs::write(default.join("active_profile"), "work\n").unwrap();
    let warned = run("", "status --json");
    assert!(warned.err.contains("'work'") && warned.err.contains(&default.display().to_string()), "{warned:?}");
    assert_eq!(warned.json()["store"], json!(default.join("state.db")));
}
