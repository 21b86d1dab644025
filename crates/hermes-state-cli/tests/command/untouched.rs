//! Looking never touches: every command that reads leaves files, times and inodes as they were, in whatever state the
//! store is found.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use hermes_state::{NewMessage, NewSession, SessionDb};

use crate::world::{Outcome, World, line, program};

/// Every command that reads, in both of its forms.
const LOOKS: [&str; 9] = [
    "list --all --limit -1",
    "show session7",
    "search harbour --limit -1",
    "status",
    "who",
    "check",
    "check --full",
    "export --all",
    "export session7",
];

/// What each says of a store with 200 sessions.
const SAID: [&str; 9] = ["session199", "harbour", "session42", "200", "", "well", "well", "session199", "session7"];

/// The files of a store that is open, by name.
const FILES: [&str; 4] = ["state.db", "state.db-shm", "state.db-siblings", "state.db-wal"];

/// 200 sessions, merged into the main file.
fn store(world: &World) {
    let db = SessionDb::open(world.store()).unwrap();
    for number in 0..200 {
        let id = format!("session{number}");
        db.create_session(NewSession::new(id.as_str(), "cli")).unwrap();
        db.append_message(id.as_str(), NewMessage::new("user", format!("harbour of {id}"))).unwrap();
    }
    db.close().unwrap();
}

/// A writer that has appended a message that stands in the log only, and does nothing more.
fn idle_writer(world: &World) -> (Child, ChildStdin) {
    let (mut child, mut stdin) = world.start("record --session session7");
    stdin.write_all(line("user", "the zebrafinch is in the log").as_bytes()).unwrap();
    let mut told = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    told.next().unwrap().unwrap();
    (child, stdin)
}

/// A file as looking could change it: inode, time, content. The times and bytes of the log's shared index and of the
/// register of those who share the store are their users' to change.
#[derive(Debug, PartialEq)]
struct Picture {
    name: String,
    inode: u64,
    mode: u32,
    written: Option<(i64, Vec<u8>)>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "this process has no connection on the store whose locks a close could drop"
)]
fn picture(folder: &Path) -> Vec<Picture> {
    let mut files: Vec<Picture> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let (found, name) = (entry.metadata().unwrap(), entry.file_name().into_string().unwrap());
            let time = found.mtime() * 1_000_000_000 + found.mtime_nsec();
            let written = (!name.ends_with("-shm")).then(|| (time, fs::read(entry.path()).unwrap()));
            Picture { inode: found.ino(), mode: found.mode(), written, name }
        })
        .collect();
    files.sort_by(|one, other| one.name.cmp(&other.name));
    files
}

/// The files that a process has open under a name that is gone. Each of its threads may have descriptors of its own.
fn deleted_files_of(child: &Child) -> Vec<PathBuf> {
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let threads = entries(PathBuf::from(format!("/proc/{}/task", child.id())));
    let targets = threads.flat_map(|thread| entries(thread.join("fd"))).filter_map(|open| fs::read_link(open).ok());
    let targets: Vec<PathBuf> = targets.collect();
    assert!(targets.iter().any(|target| target.ends_with("state.db")), "the writer has the store open: {targets:?}");
    targets.into_iter().filter(|target| target.to_string_lossy().ends_with("(deleted)")).collect()
}

/// Runs every look, in both forms.
fn look_at_everything(mut run: impl FnMut(&str) -> Outcome) {
    for (look, said) in LOOKS.into_iter().zip(SAID) {
        for words in [look.to_owned(), format!("{look} --json")] {
            let looked = run(&words).expect_code(0);
            assert!(looked.out.contains(said), "{words}: {looked:?}");
        }
    }
}

/// The command as a user that may read and not write, also where the tests are root's.
fn as_reader(copy: &Path, folder: &Path, words: &str) -> Command {
    let mut command = Command::new(copy);
    command
        .args(words.split_whitespace())
        .env("HERMES_HOME", folder)
        .env("HOME", folder)
        .env_remove("HERMES_STATE_URL");
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(65534).gid(65534);
    }
    command
}

/// A copy of the store's files that nobody may write, and a program that everybody may run.
struct Protected {
    folder: tempfile::TempDir,
}

impl Protected {
    #[expect(
        clippy::disallowed_methods,
        reason = "this process has no connection on these files, and a program is none"
    )]
    fn of(world: &World, names: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        fs::create_dir(&store).unwrap();
        for name in names {
            let to = store.join(name);
            if fs::copy(world.folder().join(name), &to).is_ok() {
                fs::set_permissions(to, Permissions::from_mode(0o444)).unwrap();
            }
        }
        fs::set_permissions(&store, Permissions::from_mode(0o555)).unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        fs::copy(program(), folder.path().join("hermes-state-copy")).unwrap();
        Self { folder }
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn run(&self, words: &str) -> Outcome {
        let copy = self.folder.path().join("hermes-state-copy");
        Outcome::of(as_reader(&copy, &self.store(), words).output().unwrap())
    }

    /// An append is refused at once, by the name of the file.
    fn refuses_an_append(&self) {
        let started = Instant::now();
        let copy = self.folder.path().join("hermes-state-copy");
        let mut record = as_reader(&copy, &self.store(), "record --session session7");
        let mut child = record.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // It may have given up before it reads.
        let _ = child.stdin.take().unwrap().write_all(line("user", "no").as_bytes());
        let refused = Outcome::of(child.wait_with_output().unwrap());
        // A write that waited would wait a minute.
        assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
        assert_ne!(refused.code, Some(0), "{refused:?}");
        assert!(refused.err.contains(&*self.store().join("state.db").to_string_lossy()), "{refused:?}");
    }
}

impl Drop for Protected {
    fn drop(&mut self) {
        let _ = fs::set_permissions(self.store(), Permissions::from_mode(0o755));
    }
}

#[test]
fn in_an_empty_folder_every_look_finds_nothing_and_makes_nothing() {
    let world = World::new();
    fs::create_dir(world.folder()).unwrap();
    for look in LOOKS.into_iter().filter(|look| !look.contains("session7")) {
        for words in [look.to_owned(), format!("{look} --json")] {
            world.run(&words).expect_code(0);
            assert_eq!(fs::read_dir(world.folder()).unwrap().count(), 0, "{words}");
        }
        assert!(world.run(look).err.contains("there is no store at"), "{look}");
    }
}

#[test]
fn beside_an_idle_writer_every_look_leaves_files_times_and_inodes() {
    let world = World::new();
    store(&world);
    let (mut child, stdin) = idle_writer(&world);
    let before = picture(&world.folder());
    assert_eq!(before.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), FILES);
    look_at_everything(|words| world.run(words));
    assert!(world.run("search zebrafinch").expect_code(0).out.contains("session7"));
    assert!(before == picture(&world.folder()), "a look changed the store's files");
    assert!(deleted_files_of(&child).is_empty());
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_a_killed_writer_left_in_the_log_is_read_there_and_stays_there() {
    let world = World::new();
    store(&world);
    let (mut child, _stdin) = idle_writer(&world);
    child.kill().unwrap();
    child.wait().unwrap();
    // With the log's index and without: whoever copies a store may leave it out.
    for lost in [None, Some("state.db-shm")] {
        if let Some(name) = lost {
            fs::remove_file(world.folder().join(name)).unwrap();
        }
        let before = picture(&world.folder());
        look_at_everything(|words| world.run(words));
        assert!(world.run("search zebrafinch").expect_code(0).out.contains("session7"), "without {lost:?}");
        assert!(before == picture(&world.folder()), "a look changed the store's files, without {lost:?}");
    }
    world.say("session7", &["and the next writer goes on"]);
    assert_eq!(world.contents("session7").len(), 3);
}

#[test]
fn a_protected_copy_is_looked_at_by_another_user_and_refuses_an_append_by_name() {
    let world = World::new();
    store(&world);
    let closed = Protected::of(&world, &FILES);
    let (mut child, _stdin) = idle_writer(&world);
    let live = Protected::of(&world, &FILES);
    let without_index = Protected::of(&world, &["state.db", "state.db-wal"]);
    child.kill().unwrap();
    child.wait().unwrap();
    for (copy, has_log) in [(closed, false), (live, true), (without_index, true)] {
        let before = picture(&copy.store());
        look_at_everything(|words| copy.run(words));
        assert_eq!(copy.run("search zebrafinch").expect_code(0).out.contains("session7"), has_log);
        copy.refuses_an_append();
        assert!(before == picture(&copy.store()), "a look changed the files");
    }
}
