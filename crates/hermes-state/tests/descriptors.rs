//! However often a store is opened and by however many threads it is used, the process has few descriptors on it.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "processes report, and tests say what they saw")]

mod support;

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Barrier};

use hermes_state::{LockKind, NewMessage, NewSession, SessionDb};
use support::{must_succeed, play, role};

/// Descriptors on files of the store in every descriptor table of this process.
fn on_store(path: &Path) -> usize {
    let prefix = path.to_str().expect("text");
    let mut tables: Vec<HashSet<String>> = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task").expect("threads").flatten() {
        let table: HashSet<String> = std::fs::read_dir(thread.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten()
            .filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().starts_with(prefix)))
            .map(|fd| fd.file_name().to_string_lossy().into_owned())
            .collect();
        // Threads of one table show the same descriptors; a table is told by what is in it.
        if !tables.contains(&table) {
            tables.push(table);
        }
    }
    tables.iter().map(HashSet::len).max().unwrap_or(0)
}

const LIMIT: usize = 16;

fn for_each_kind(test: &str, body: fn(&Path)) {
    if let Some((_, path)) = role() {
        return body(&path);
    }
    for kind in [LockKind::PrivateTable, LockKind::OpenFileDescription] {
        let folder = tempfile::tempdir().expect("a folder");
        must_succeed(&play(test, "body", &folder.path().join("state.db"), kind).output().expect("runs"));
    }
}

#[test]
fn ten_thousand_opens_and_closes_leave_no_descriptors_behind() {
    for_each_kind("ten_thousand_opens_and_closes_leave_no_descriptors_behind", |path| {
        let kept = SessionDb::open(path).expect("opens");
        kept.create_session(NewSession::new("s", "cli")).expect("creates");
        let mut most = 0;
        for cycle in 0..5_000 {
            let db = SessionDb::open(path).expect("opens");
            if cycle % 50 == 0 {
                db.append_message("s", NewMessage::new("user", "joined")).expect("appends");
                most = most.max(on_store(path));
            }
            drop(db);
        }
        drop(kept);
        for cycle in 0..5_000 {
            let db = SessionDb::open(path).expect("opens");
            if cycle % 50 == 0 {
                db.append_message("s", NewMessage::new("user", "alone")).expect("appends");
                most = most.max(on_store(path));
            }
            drop(db);
        }
        let left = on_store(path);
        println!("most {most}, left {left}");
        assert!(most > 0 && most < LIMIT, "{most} descriptors");
        assert!(left <= 2, "{left} descriptors left after the last close");
    });
}

#[test]
fn two_hundred_threads_share_a_few_descriptors() {
    for_each_kind("two_hundred_threads_share_a_few_descriptors", |path| {
        let db = SessionDb::open(path).expect("opens");
        db.create_session(NewSession::new("s", "cli")).expect("creates");
        let all_done = Arc::new(Barrier::new(201));
        let threads: Vec<_> = (0..200)
            .map(|thread| {
                let (path, all_done) = (path.to_owned(), all_done.clone());
                std::thread::spawn(move || {
                    let db = SessionDb::open(&path).expect("opens");
                    db.append_message("s", NewMessage::new("user", format!("thread {thread}"))).expect("appends");
                    db.message_count(None).expect("counts");
                    all_done.wait();
                    all_done.wait();
                })
            })
            .collect();
        all_done.wait();
        let most = on_store(path);
        all_done.wait();
        for thread in threads {
            thread.join().expect("ends well");
        }
        println!("{most} descriptors");
        assert!(most > 0 && most < LIMIT, "{most} descriptors");
        assert_eq!(db.message_count(None).expect("counts"), 200);
    });
}
