//! More processes than have places in line: each still gets its turn within its patience.
#![cfg(target_os = "linux")]

mod support;

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use hermes_state::{LockKind, NewMessage, NewSession, OpenOptions, Patience, SessionDb};
use support::{must_succeed, play, role};

/// Without a line they only have SQLite's lock to go by; this many once left the holder of it no time to work.
const CROWD: usize = 100;

#[test]
fn a_crowd_without_places_in_line_gets_through() {
    if let Some((_, path)) = role() {
        let mut start = [0];
        std::io::stdin().read_exact(&mut start).expect("the start");
        for n in 0..3 {
            // All of it takes about two seconds; a crowd that hinders itself takes more than ten.
            let patience = Patience { transcript: Duration::from_secs(8), routine: Duration::from_secs(8) };
            let db = OpenOptions::new().patience(patience).open(&path).expect("opens");
            db.append_message("s", NewMessage::new("user", format!("{n}"))).expect("appends");
        }
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    // Where a folder stands in the place of the siblings' file, nobody has a place.
    std::fs::create_dir(folder.path().join("state.db-siblings")).expect("a folder");
    let db = SessionDb::open(&path).expect("opens");
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    let mut crowd: Vec<_> = (0..CROWD)
        .map(|_| {
            play("a_crowd_without_places_in_line_gets_through", "one", &path, LockKind::PrivateTable)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("runs")
        })
        .collect();
    for one in &mut crowd {
        std::io::Write::write_all(one.stdin.as_mut().expect("piped"), b"!").expect("starts");
    }
    for one in crowd {
        must_succeed(&one.wait_with_output().expect("ends"));
    }
    assert_eq!(db.message_count(None).expect("counts"), i64::try_from(CROWD * 3).expect("few"));
}
