//! Forking: a child gets a clear error on what it inherited, can open its own, keeps no lock of its parent, and no
//! number of forks costs a row, a hang or a crash.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "processes report, and tests say what they saw")]
#![expect(unsafe_code, reason = "fork(2)")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hermes_state::{Error, LockKind, MessageQuery, NewMessage, NewSession, OpenOptions, Patience, SessionDb};
use support::{must_succeed, play, python_says, role};

/// Forks; the child runs `child` and ends with its answer, without unwinding into the test harness.
fn fork(child: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child runs only this closure and `_exit`; the library is made to be used after a fork, which is what
    // is tested here.
    match unsafe { libc::fork() } {
        0 => {
            let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(if well { 0 } else { 1 }) }
        }
        pid => {
            assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
            pid
        }
    }
}

/// Waits for a child; a child that has not ended in time hangs and is killed.
fn wait(pid: libc::pid_t, limit: Duration) -> Result<(), String> {
    let started = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: a child of ours and a valid place for its status.
        match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
            0 if started.elapsed() > limit => {
                // SAFETY: kills and reaps that child.
                unsafe {
                    libc::kill(pid, libc::SIGKILL);
                    libc::waitpid(pid, &raw mut status, 0);
                }
                return Err("hung".into());
            }
            0 => std::thread::sleep(Duration::from_micros(200)),
            _ if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 => return Ok(()),
            _ if libc::WIFSIGNALED(status) => return Err(format!("signal {}", libc::WTERMSIG(status))),
            _ => return Err(format!("exit {}", libc::WEXITSTATUS(status))),
        }
    }
}

fn new_store(path: &Path) {
    let db = SessionDb::open(path).expect("opens");
    db.create_session(NewSession::new("s", "cli")).expect("creates");
}

const BOTH: [LockKind; 2] = [LockKind::PrivateTable, LockKind::OpenFileDescription];

/// Runs each kind of locks in a process of its own.
fn for_each_kind(test: &str, journal: Option<&str>, body: fn(&Path)) {
    if let Some((_, path)) = role() {
        return body(&path);
    }
    for kind in BOTH {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state.db");
        if let Some(mode) = journal {
            // Made by another process, so that this one has no store open before the child of the test does.
            must_succeed(&play("make_a_store", mode, &path, LockKind::Ordinary).output().expect("runs"));
        }
        let output = play(test, "body", &path, kind).output().expect("runs");
        print!("{kind:?}: {}", String::from_utf8_lossy(&output.stdout));
        must_succeed(&output);
    }
}

/// Not a guarantee: the role in which a store is made for the tests that need one in a certain journal mode.
#[test]
fn make_a_store() {
    if let Some((mode, path)) = role() {
        new_store(&path);
        if mode == "delete" {
            assert_eq!(
                python_says(&path, "print(sqlite3.connect(path).execute('PRAGMA journal_mode=DELETE').fetchone()[0])"),
                "delete"
            );
        }
    }
}

#[test]
fn an_inherited_handle_says_so_and_the_child_can_open_its_own() {
    for_each_kind("an_inherited_handle_says_so_and_the_child_can_open_its_own", None, |path| {
        let db = SessionDb::open(path).expect("opens");
        db.create_session(NewSession::new("s", "cli")).expect("creates");
        let child = fork(|| {
            let refused = db.append_message("s", NewMessage::new("user", "inherited"));
            let own = SessionDb::open(path).expect("opens in the child");
            own.append_message("s", NewMessage::new("user", "own")).expect("writes in the child");
            own.close().expect("closes");
            drop(own);
            let refused_again = db.message_count(None);
            matches!(refused, Err(Error::Forked { .. })) && matches!(refused_again, Err(Error::Forked { .. }))
        });
        wait(child, Duration::from_secs(20)).expect("the child ends well");
        db.append_message("s", NewMessage::new("user", "parent")).expect("the parent goes on");
        let texts: Vec<_> = db.messages("s", &MessageQuery::default()).expect("reads");
        assert_eq!(
            texts.iter().map(|m| m.content().text().unwrap_or_default().to_owned()).collect::<Vec<_>>(),
            ["own", "parent"]
        );
    });
}

#[test]
fn a_child_keeps_no_lock_of_a_parent_that_was_killed_inside_a_write() {
    const NAME: &str = "a_child_keeps_no_lock_of_a_parent_that_was_killed_inside_a_write";
    if let Some((_, path)) = role() {
        // A big batch is being written by a thread while the process forks; the child sleeps, the parent is killed.
        let db = Arc::new(SessionDb::open(&path).expect("opens"));
        let writer = db.clone();
        std::thread::spawn(move || {
            loop {
                let batch = (0..2000).map(|n| NewMessage::new("user", format!("word{n} ").repeat(50))).collect();
                writer.append_messages("s", batch).expect("writes");
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        fork(|| {
            std::thread::sleep(Duration::from_secs(20));
            true
        });
        println!("forked");
        std::thread::sleep(Duration::from_secs(20));
        return;
    }
    for kind in BOTH {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state.db");
        must_succeed(&play("make_a_store", "wal", &path, LockKind::Ordinary).output().expect("runs"));
        let mut parent = play(NAME, "parent", &path, kind).stdout(std::process::Stdio::piped()).spawn().expect("runs");
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(parent.stdout.take().expect("piped")));
        // The harness may print the name of the test before it on the same line.
        while !lines.next().expect("the parent forks").expect("text").ends_with("forked") {}
        std::thread::sleep(Duration::from_millis(50));
        parent.kill().expect("killed");
        parent.wait().expect("reaped");
        let db = SessionDb::open(&path).expect("opens");
        db.set_patience(Patience { transcript: Duration::from_secs(5), routine: Duration::from_secs(5) });
        db.append_message("s", NewMessage::new("user", "after")).expect("the lock died with the parent");
        assert_eq!(
            python_says(&path, "print(sqlite3.connect(path).execute('PRAGMA integrity_check').fetchone()[0])"),
            "ok"
        );
    }
}

/// How often the storm forks: as often as a busy gateway in some days.
const FORKS: usize = 3000;

fn storm(path: &Path) {
    // A file without a write-ahead log stays without one.
    let open = || OpenOptions::new().rollback_journal(true).open(path);
    let db = Arc::new(open().expect("opens"));
    let stop = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = (0..3)
        .map(|thread| {
            let (db, stop, written) = (db.clone(), stop.clone(), written.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    db.append_message("s", NewMessage::new("user", format!("thread {thread}"))).expect("writes");
                    written.fetch_add(1, Ordering::Relaxed);
                    db.message_count(None).expect("reads");
                }
            })
        })
        .collect();
    let mut failures = Vec::new();
    let mut from_children = 0;
    for number in 0..FORKS {
        // Most children only come and go; every tenth does what a forked worker does.
        let works = number % 10 == 0;
        let child = fork(|| {
            if !works {
                return true;
            }
            let own = open().expect("opens in the child");
            own.append_message("s", NewMessage::new("user", "child")).is_ok() && own.close().is_ok()
        });
        match wait(child, Duration::from_secs(30)) {
            Ok(()) => from_children += usize::from(works),
            Err(how) => failures.push(format!("child {number}: {how}")),
        }
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.join().expect("no writer failed");
    }
    assert!(failures.is_empty(), "{failures:?}");
    let acknowledged = written.load(Ordering::Relaxed) + from_children;
    assert_eq!(db.message_count(None).expect("counts"), i64::try_from(acknowledged).expect("few"));
    assert_eq!(
        python_says(
            path,
            "c = sqlite3.connect(path)\nprint(c.execute('SELECT COUNT(*) FROM messages').fetchone()[0], c.execute('PRAGMA integrity_check').fetchone()[0])"
        ),
        format!("{acknowledged} ok")
    );
    println!("{FORKS} forks, {acknowledged} rows, {:?}", db.status().expect("looks").engine);
}

#[test]
fn three_thousand_forks_while_threads_write_lose_nothing_with_a_write_ahead_log() {
    for_each_kind("three_thousand_forks_while_threads_write_lose_nothing_with_a_write_ahead_log", Some("wal"), storm);
}

#[test]
fn three_thousand_forks_while_threads_write_lose_nothing_with_a_rollback_journal() {
    for_each_kind(
        "three_thousand_forks_while_threads_write_lose_nothing_with_a_rollback_journal",
        Some("delete"),
        storm,
    );
}
