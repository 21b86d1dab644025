//! A session of 60,000 messages: its newest cost memory for themselves only, and what compactions keep of it counts once.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "a process reports")]

mod support;

use std::path::Path;

use hermes_state::{LockKind, NewMessage, NewSession, SessionDb};
use support::{must_succeed, play, role};

const MESSAGES: usize = 60_000;
/// How much more memory the newest 500 of them may cost, in kilobytes.
const MORE: i64 = 30 * 1024;

fn text(number: usize) -> String {
    format!("message {number:05} {}", "x".repeat(386))
}

fn fill(store: &Path) -> SessionDb {
    let db = SessionDb::open(store).expect("opens");
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    let all: Vec<usize> = (0..MESSAGES).collect();
    for part in all.chunks(2_000) {
        let messages = part.iter().map(|number| NewMessage::new("user", text(*number))).collect();
        db.append_messages("s", messages).expect("appends");
    }
    db
}

/// The most memory that this process has had so far, in kilobytes.
fn peak() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "a text of the kernel")]
    let status = std::fs::read_to_string("/proc/self/status").expect("reads");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// A process that reads the newest messages, or all, and says how much memory that took.
fn act(part: &str, store: &Path) {
    let db = SessionDb::open(store).expect("opens");
    assert_eq!(db.recent_messages("s", 1).expect("reads").len(), 1);
    let before = peak();
    let (limit, expected) = if part == "newest" { (500, 500) } else { (-1, MESSAGES) };
    let found = db.recent_messages("s", limit).expect("reads");
    assert_eq!(found.len(), expected);
    assert_eq!(found.last().and_then(|last| last.content().text().map(str::to_owned)), Some(text(MESSAGES - 1)));
    println!("\nmore {};", peak() - before);
}

fn cost(test: &str, part: &str, store: &Path) -> i64 {
    let output = play(test, part, store, LockKind::PrivateTable).output().expect("runs");
    must_succeed(&output);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    told.lines().find_map(|line| line.strip_prefix("more ")?.strip_suffix(';')?.parse().ok()).expect("a number")
}

fn scene(test: &str, store: &Path) {
    let db = fill(store);
    let (newest, all) = (cost(test, "newest", store), cost(test, "all", store));
    println!("the newest 500: {newest} kB more, all: {all} kB");
    assert!(newest <= MORE, "{newest} kB");
    assert!(all > MORE, "the measure measures nothing: {all} kB");

    let kept: Vec<NewMessage> = db
        .recent_messages("s", 20)
        .expect("reads")
        .iter()
        .map(|row| NewMessage::new(row.role(), row.content()).timestamp(row.timestamp()))
        .collect();
    for round in 1..=3 {
        let mut messages = vec![NewMessage::new("user", format!("summary {round}"))];
        messages.extend(kept.clone());
        db.archive_and_compact("s", messages).expect("compacts");
        let expected = i64::try_from(MESSAGES).expect("fits") + round;
        assert_eq!(db.distinct_message_count("s").expect("counts"), expected, "after {round}");
    }
    assert_eq!(db.message_count(Some("s")).expect("counts"), 60_063);
    assert_eq!(db.recent_messages("s", 500).expect("reads").len(), 21);
}

#[test]
fn the_newest_of_many_messages_cost_little_and_copies_count_once() {
    if let Some((part, store)) = role() {
        return act(&part, &store);
    }
    let folder = tempfile::tempdir().expect("a folder");
    scene("the_newest_of_many_messages_cost_little_and_copies_count_once", &folder.path().join("state.db"));
}

#[cfg(feature = "postgres")]
#[test]
fn the_newest_of_many_messages_on_a_server_cost_little_and_copies_count_once() {
    if let Some((part, store)) = role() {
        return act(&part, &store);
    }
    let Some(server) = hermes_state_testkit::shared() else { return };
    let space = server.fresh();
    scene("the_newest_of_many_messages_on_a_server_cost_little_and_copies_count_once", Path::new(&space.url()));
}
