//! Backups and restorings that are killed at any moment: the names always lead to whole files, and the next one works.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "processes report, and tests say what they saw")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use hermes_state::{
    BackupOptions, LockKind, NewMessage, NewSession, OpenOptions, Patience, RestoreOptions, SessionDb, restore,
};
use support::{play, python_says, role};

fn make(path: &Path) {
    let db = SessionDb::open(path).expect("opens");
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    for batch in 0..15 {
        let texts = (0..200).map(|number| format!("marker{batch}x{number} {}", "filler ".repeat(40)));
        db.append_messages("s", texts.map(|text| NewMessage::new("user", text)).collect()).expect("appends");
    }
    db.close().expect("closes");
}

fn append(path: &Path) {
    let db = SessionDb::open(path).expect("opens");
    db.append_message("s", NewMessage::new("user", "one more")).expect("appends");
    db.close().expect("closes");
}

fn back_up(store: &Path, target: &Path) {
    let db = SessionDb::open_read_only(store).expect("opens");
    db.backup(target, &BackupOptions::default(), &mut |_| Ok(())).expect("backs up");
}

/// How many messages a whole file has; fails for any other. Looks at it as another program does.
fn count(path: &Path) -> usize {
    let said = python_says(
        path,
        "c = sqlite3.connect(path)
assert c.execute('PRAGMA quick_check').fetchone() == ('ok',)
assert c.execute('SELECT COUNT(*) FROM sessions s WHERE message_count <> (SELECT COUNT(*) FROM messages)').fetchone() == (0,)
print(c.execute('SELECT COUNT(content) FROM messages').fetchone()[0])",
    );
    said.parse().expect("a number")
}

/// Runs the role, kills it so long after it has begun, and says whether it was done.
fn run_and_kill(name: &str, role: &str, store: &Path, delay: Duration) -> bool {
    let (mut child, mut said) = begin(name, role, store);
    std::thread::sleep(delay);
    child.kill().expect("killed");
    child.wait().expect("reaped");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    rest.contains("done")
}

/// Runs the role until it has begun.
fn begin(name: &str, role: &str, store: &Path) -> (Child, BufReader<ChildStdout>) {
    let mut command = play(name, role, store, LockKind::PrivateTable);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("runs");
    let mut said = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("begun") {
        line.clear();
        assert!(said.read_line(&mut line).expect("text") > 0, "it ended before it began");
    }
    (child, said)
}

fn left(folder: &Path, mark: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("lists").map(|entry| entry.expect("an entry").path());
    entries.filter(|path| path.to_string_lossy().contains(mark)).collect()
}

#[test]
fn a_backup_that_is_killed_leaves_the_earlier_one_whole() {
    const NAME: &str = "a_backup_that_is_killed_leaves_the_earlier_one_whole";
    if let Some((_, path)) = role() {
        println!("begun");
        back_up(&path, &path.with_file_name("backup.db"));
        println!("done");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (store, target) = (folder.path().join("state.db"), folder.path().join("backup.db"));
    make(&store);
    back_up(&store, &target);
    let mut kills = 0;
    for step in 0.. {
        let before = count(&target);
        append(&store);
        let done = run_and_kill(NAME, "backup", &store, Duration::from_micros(600 * step * step));
        let after = count(&target);
        assert!(after == before || after == 3001 + kills, "{after} after {before}, step {step}");
        if done {
            assert_eq!(after, 3001 + kills);
            break;
        }
        kills += 1;
    }
    println!("{kills} kills");
    assert!(kills > 3, "the backup was over too soon to be killed");
    // What the killed ones left is in nobody's way, and gone with the next one.
    append(&store);
    back_up(&store, &target);
    assert_eq!(count(&target), 3002 + kills);
    assert_eq!(left(folder.path(), "unfinished"), Vec::<PathBuf>::new());
    assert_eq!(count(&store), 3002 + kills);
}

#[test]
fn a_restoring_that_is_killed_leaves_one_store_or_the_other() {
    const NAME: &str = "a_restoring_that_is_killed_leaves_one_store_or_the_other";
    if let Some((_, path)) = role() {
        println!("begun");
        restore(path.with_file_name("backup.db"), &path, &RestoreOptions::default(), &mut |_| Ok(()))
            .expect("restores");
        println!("done");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (store, backup) = (folder.path().join("state.db"), folder.path().join("backup.db"));
    make(&store);
    back_up(&store, &backup);
    let mut kills = 0;
    for step in 0.. {
        append(&store);
        let before = count(&store);
        let done = run_and_kill(NAME, "restore", &store, Duration::from_micros(600 * step * step));
        let after = count(&store);
        assert!(after == before || after == 3000, "{after} after {before}, step {step}");
        if after != before {
            let kept = left(folder.path(), "before-restore");
            assert!(kept.iter().any(|kept| count(kept) == before), "the {before} are gone, step {step}");
        }
        assert_eq!(count(&backup), 3000);
        if done {
            assert_eq!(after, 3000);
            break;
        }
        kills += 1;
    }
    println!("{kills} kills");
    assert!(kills > 3, "the restoring was over too soon to be killed");
    append(&store);
    let report = restore(&backup, &store, &RestoreOptions::default(), &mut |_| Ok(())).expect("restores");
    assert_eq!((count(&store), count(&report.kept.expect("kept"))), (3000, 3001));
    assert_eq!(left(folder.path(), "unfinished"), Vec::<PathBuf>::new());
    // No name is left that leads to the store itself.
    use std::os::unix::fs::MetadataExt as _;
    assert_eq!(store.metadata().expect("there").nlink(), 1);
}

/// Sends a signal to a process of this test.
fn signal(child: &std::process::Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill");
    assert!(sent.success(), "{name}");
}

#[test]
fn a_backup_that_is_stopped_at_any_moment_keeps_no_writer_waiting() {
    const NAME: &str = "a_backup_that_is_stopped_at_any_moment_keeps_no_writer_waiting";
    if let Some((_, path)) = role() {
        println!("begun");
        back_up(&path, &path.with_file_name("backup.db"));
        println!("done");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (store, target) = (folder.path().join("state.db"), folder.path().join("backup.db"));
    make(&store);
    let short = Duration::from_secs(15);
    let patience = Patience { transcript: short, routine: short };
    let db = OpenOptions::new().patience(patience).open(&store).expect("opens");
    let mut stopped = 0;
    for step in 0.. {
        let (mut child, _said) = begin(NAME, "backup", &store);
        std::thread::sleep(Duration::from_micros(400 * step * step));
        let over = child.try_wait().expect("asked").is_some();
        if !over {
            signal(&child, "-STOP");
        }
        db.append_message("s", NewMessage::new("user", "meanwhile")).expect("nobody is in the way");
        db.checkpoint().expect("nobody is in the way");
        if !over {
            signal(&child, "-CONT");
        }
        assert!(child.wait().expect("ends").success());
        let (found, stored) = (count(&target), 3001 + stopped);
        assert!(found == stored || found == stored - 1, "{found} of {stored}");
        if over {
            break;
        }
        stopped += 1;
    }
    println!("{stopped} stops");
    assert!(stopped > 3, "the backup was over too soon to be stopped");
}

#[test]
fn two_backups_into_one_file_are_not_made_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, target) = (folder.path().join("state.db"), folder.path().join("backup.db"));
    make(&store);
    let all_at_once: Vec<_> = (0..4)
        .map(|_| {
            let (store, target) = (store.clone(), target.clone());
            std::thread::spawn(move || {
                let db = SessionDb::open_read_only(store).expect("opens");
                db.backup(target, &BackupOptions::default(), &mut |_| Ok(()))
            })
        })
        .collect();
    let outcomes: Vec<_> = all_at_once.into_iter().map(|one| one.join().expect("ends")).collect();
    assert!(outcomes.iter().any(Result::is_ok), "{outcomes:?}");
    for outcome in &outcomes {
        assert!(matches!(outcome, Ok(_) | Err(hermes_state::Error::InUse { .. })), "{outcome:?}");
    }
    assert_eq!(count(&target), 3000);
    assert_eq!(left(folder.path(), "unfinished"), Vec::<PathBuf>::new());
}
