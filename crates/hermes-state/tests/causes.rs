//! Each cause that keeps a message from being stored, made for real, is told from the others, with the sentence that the
//! page of the command lists for it.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "processes report, and tests say what they saw")]
#![expect(clippy::disallowed_methods, reason = "no connection of this process is on the file, or it is no store")]

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hermes_state::{Error, ErrorKind, LockKind, NewMessage, NewSession, OpenOptions, Patience, SessionDb};
use support::{must_succeed, play, python_says, python_started, role};

const PAGE: &str = include_str!("../../../docs/command.md");

/// The sentence of a cause as the page has it.
fn sentence(cause: &str) -> &'static str {
    let start = format!("| {cause} | ");
    let line = PAGE.lines().find(|line| line.starts_with(&start)).expect("the page lists the cause");
    line[start.len()..].trim_end_matches(" |")
}

/// What a process that may meet the cause does: it says what its error is.
fn report(error: &Error) {
    println!("cause {}|{}|{error}", error.kind(), error.kind().sentence());
}

/// Opens, writes, and tells of the first error; a megabyte at a time, so that whatever is small is filled.
fn write(path: &Path) -> Result<(), Error> {
    let patience = Duration::from_millis(300);
    let db =
        OpenOptions::new().spool(false).patience(Patience { routine: patience, transcript: patience }).open(path)?;
    db.ensure_session(NewSession::new("s", "cli"))?;
    for _ in 0..16 {
        db.append_message("s", NewMessage::new("user", "filler ".repeat(150_000)))?;
    }
    Ok(())
}

/// Plays the role of this process in the test `name`, if it has one.
fn in_role() -> bool {
    let Some((role, path)) = role() else { return false };
    let mut open = Vec::new();
    if role == "crowded" {
        while let Ok(file) = fs::File::open("/dev/null") {
            open.push(file);
        }
    }
    match write(&path) {
        Ok(()) => println!("no error"),
        Err(error) => report(&error),
    }
    true
}

struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        let world = Self(tempfile::tempdir().expect("a folder"));
        let db = SessionDb::open(world.path()).expect("opens");
        db.create_session(NewSession::new("s", "cli")).expect("creates");
        let texts = (0..200).map(|number| format!("marker{number} {}", "filler ".repeat(60)));
        db.append_messages("s", texts.map(|text| NewMessage::new("user", text)).collect()).expect("appends");
        db.close().expect("closes");
        world
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("state.db")
    }

    /// Has another process write, wrapped into `shell` that ends with `exec "$@"`, and compares the cause.
    fn fails_in(&self, test: &str, role: &str, shell: &str, cause: &str) {
        let said = self.says(test, role, shell, LockKind::PrivateTable);
        let told = said.lines().find_map(|line| line.split_once("cause ")).unwrap_or_else(|| panic!("{said}")).1;
        let parts: Vec<&str> = told.splitn(3, '|').collect();
        assert_eq!(parts[..2], [cause, sentence(cause)], "{told}");
        assert!(cause == "locked" || parts[2].contains("state.db"), "{told}");
    }

    fn says(&self, test: &str, role: &str, shell: &str, locks: LockKind) -> String {
        let played = play(test, role, &self.path(), locks);
        let mut command = Command::new("bash");
        command.args(["-c", shell, "bash"]).arg(played.get_program()).args(played.get_args());
        command.envs(played.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = command.current_dir("/").output().expect("runs");
        must_succeed(&output);
        String::from_utf8(output.stdout).expect("text")
    }

    /// Compares the cause of an error of this process.
    fn fails(&self, error: &Error, cause: &str) {
        assert_eq!((error.kind().name(), error.kind().sentence()), (cause, sentence(cause)), "{error}");
    }

    fn holds(&self, messages: i64) {
        let found = python_says(
            &self.path(),
            "c = sqlite3.connect(path)
print(c.execute('SELECT COUNT(*) FROM messages').fetchone()[0], c.execute('PRAGMA quick_check').fetchone()[0])",
        );
        assert_eq!(found, format!("{messages} ok"));
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Permissions do not bind root.
fn as_nobody() -> &'static str {
    if is_root() { r#"exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@""# } else { r#"exec "$@""# }
}

#[test]
fn the_page_lists_each_cause_with_its_sentence() {
    for kind in ErrorKind::ALL {
        assert_eq!(sentence(kind.name()), kind.sentence());
    }
}

#[test]
fn somebody_else_who_writes_is_told_as_locked() {
    if in_role() {
        return;
    }
    let world = World::new();
    let mut holder = python_started(
        &world.path(),
        "c = sqlite3.connect(path, isolation_level=None)\nc.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\ntime.sleep(600)",
    );
    world.fails_in("somebody_else_who_writes_is_told_as_locked", "writer", r#"exec "$@""#, "locked");
    holder.kill().expect("killed");
    holder.wait().expect("ends");
    world.holds(200);
}

#[test]
fn a_disk_without_room_is_told_as_disk() {
    if in_role() {
        return;
    }
    let world = World::new();
    let small = world.0.path().join("small");
    fs::create_dir(&small).expect("makes");
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=6m", "none"]).arg(&small).status();
    if !mount.is_ok_and(|done| done.success()) {
        eprintln!("SKIPPED: this user may not mount a small file system");
        return;
    }
    let error = write(&small.join("state.db")).expect_err("no room");
    let unmounted = Command::new("umount").arg("-l").arg(&small).status();
    assert!(unmounted.is_ok_and(|done| done.success()));
    world.fails(&error, "disk");
}

#[test]
fn a_limit_on_the_size_of_files_is_told_as_disk() {
    if in_role() {
        return;
    }
    let world = World::new();
    let limited = r#"trap '' XFSZ; ulimit -f 4096; exec "$@""#;
    world.fails_in("a_limit_on_the_size_of_files_is_told_as_disk", "writer", limited, "disk");
    let stored =
        python_says(&world.path(), "c = sqlite3.connect(path)\nprint(c.execute('PRAGMA quick_check').fetchone()[0])");
    assert_eq!(stored, "ok");
}

#[test]
fn a_file_and_a_folder_that_may_not_be_written_are_told_as_readonly() {
    if in_role() {
        return;
    }
    let name = "a_file_and_a_folder_that_may_not_be_written_are_told_as_readonly";
    let world = World::new();
    let set = |folder: u32, file: u32| {
        fs::set_permissions(world.0.path(), Permissions::from_mode(folder)).expect("sets");
        fs::set_permissions(world.path(), Permissions::from_mode(file)).expect("sets");
    };
    let _ = fs::remove_file(world.0.path().join("state.db-siblings"));
    for (folder, file) in [(0o555, 0o444), (0o555, 0o666), (0o777, 0o444), (0o755, 0o600), (0o700, 0o644)] {
        set(folder, file);
        world.fails_in(name, "writer", as_nobody(), "readonly");
    }
    set(0o755, 0o600);
    fs::remove_file(world.path()).expect("removes");
    world.fails_in(name, "writer", as_nobody(), "readonly");
    assert!(!world.path().exists());
    fs::set_permissions(world.0.path(), Permissions::from_mode(0o700)).expect("sets");
}

#[test]
fn a_handle_that_only_reads_is_told_as_readonly() {
    let world = World::new();
    let db = SessionDb::open_read_only(world.path()).expect("opens");
    let error = db.append_message("s", NewMessage::new("user", "x")).expect_err("reads only");
    world.fails(&error, "readonly");
}

#[test]
fn zeroed_pages_are_told_as_corrupt() {
    if in_role() {
        return;
    }
    let world = World::new();
    let bytes = fs::read(world.path()).expect("reads");
    let mut zeroed = bytes.clone();
    zeroed[4096..].fill(0);
    fs::write(world.path(), &zeroed).expect("writes");
    world.fails_in("zeroed_pages_are_told_as_corrupt", "writer", r#"exec "$@""#, "corrupt");
    let error = OpenOptions::new().spool(false).open(world.path()).expect_err("is damaged");
    assert_eq!(error.to_string().matches("malformed").count(), 1, "{error}");
    fs::write(world.path(), "Dear diary, ".repeat(400)).expect("writes");
    world.fails_in("zeroed_pages_are_told_as_corrupt", "writer", r#"exec "$@""#, "corrupt");
}

#[test]
fn a_file_that_another_took_the_place_of_is_told_as_replaced() {
    let (world, other) = (World::new(), World::new());
    let db = OpenOptions::new().spool(false).open(world.path()).expect("opens");
    fs::rename(other.path(), world.path()).expect("renames");
    let error = db.append_message("s", NewMessage::new("user", "x")).expect_err("replaced");
    world.fails(&error, "replaced");
    db.close().expect("closes");
    world.holds(200);
}

#[test]
fn a_file_of_a_newer_release_is_told_as_too_new() {
    if in_role() {
        return;
    }
    let world = World::new();
    python_says(
        &world.path(),
        "c = sqlite3.connect(path)\nc.execute('UPDATE schema_version SET version = 99')\nc.commit()",
    );
    world.fails_in("a_file_of_a_newer_release_is_told_as_too_new", "writer", r#"exec "$@""#, "too_new");
    world.holds(200);
}

#[test]
fn a_process_with_128_files_open_is_told_as_descriptors() {
    if in_role() {
        return;
    }
    let name = "a_process_with_128_files_open_is_told_as_descriptors";
    let limited = r#"ulimit -n 128; exec "$@""#;
    let world = World::new();
    let told = world.says(name, "crowded", limited, LockKind::OpenFileDescription);
    assert!(told.contains(&format!("cause descriptors|{}", sentence("descriptors"))), "{told}");
    world.holds(200);
    // Threads with descriptors of their own have room for the store whatever the rest of the process has open.
    let told = world.says(name, "crowded", limited, LockKind::PrivateTable);
    assert!(told.contains("no error"), "{told}");
    world.holds(216);
}

#[test]
fn an_empty_file_that_is_only_looked_at_is_an_empty_store_and_not_a_replaced_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    fs::write(&path, "").expect("writes");
    let db = SessionDb::open_read_only(&path).expect("opens");
    assert_eq!(db.status().expect("looks").messages, 0);
    assert_eq!(fs::metadata(&path).expect("there").len(), 0);
}
