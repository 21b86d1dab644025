//! A prune that is killed at random leaves every session whole or gone, and the same call again does the rest.
#![cfg(target_os = "linux")]

mod support;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use hermes_state::{LockKind, NewMessage, NewSession, PruneFilter, SearchOptions, SessionDb};
use support::{play, python_says, role};

const NAME: &str = "a_killed_prune_leaves_sessions_whole_and_can_be_repeated";
const SESSIONS: usize = 450;

/// What must hold at any moment: the messages that were counted are there, with their entries in the index, and whoever
/// is delegated still has the session that delegated it.
const WHOLE: &str = "c = sqlite3.connect(path)\n\
    assert c.execute('PRAGMA integrity_check').fetchone()[0] == 'ok'\n\
    assert c.execute('PRAGMA foreign_key_check').fetchall() == []\n\
    assert c.execute('SELECT COUNT(*) FROM sessions s WHERE message_count <> (SELECT COUNT(*) FROM messages m WHERE m.session_id = s.id)').fetchone()[0] == 0\n\
    assert c.execute(\"SELECT COUNT(*) FROM sessions WHERE id LIKE 'agent%' AND parent_session_id IS NULL\").fetchone()[0] == 0\n\
    for table in ('messages_fts', 'messages_fts_trigram'): c.execute(f\"INSERT INTO {table}({table}) VALUES('integrity-check')\")\n\
    print(c.execute('SELECT COUNT(*) FROM sessions').fetchone()[0])";

fn prune(path: &Path) {
    let db = SessionDb::open(path).expect("opens");
    db.prune_sessions(&PruneFilter { source: Some("old".into()), ..PruneFilter::default() }, None).expect("prunes");
}

/// Begins a prune and kills it soon after it has deleted the first sessions, if it has not ended before.
fn kill_at_work(path: &Path, soon: Duration) {
    let onlooker = SessionDb::open_read_only(path).expect("opens");
    let messages = || onlooker.message_count(None).expect("counts");
    let before = messages();
    let mut child = play(NAME, "prune", path, LockKind::PrivateTable)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    while messages() == before && child.try_wait().expect("asked").is_none() {
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(soon);
    child.kill().expect("killed, or done");
    child.wait().expect("reaped");
}

#[test]
fn a_killed_prune_leaves_sessions_whole_and_can_be_repeated() {
    if let Some((_, path)) = role() {
        return prune(&path);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let db = SessionDb::open(&path).expect("opens");
    db.create_session(NewSession::new("stays", "cli")).expect("creates");
    let mut last = "stays".to_owned();
    for n in 0..SESSIONS {
        let id = format!("s{n}");
        db.create_session(NewSession::new(&id, "old").parent_session_id(&last)).expect("creates");
        let messages = (0..6).map(|k| NewMessage::new("user", format!("walrus {k} {}", "words ".repeat(100))));
        db.append_messages(id.as_str(), messages.collect()).expect("appends");
        if n % 3 == 0 {
            let agent = NewSession::new(format!("agent{n}"), "cli").parent_session_id(&id);
            db.create_session(agent.model_config(r#"{"_delegate_from": "x"}"#)).expect("creates");
            db.append_message(format!("agent{n}"), NewMessage::new("user", "walrus")).expect("appends");
        }
        db.end_session(id.as_str(), "done").expect("ends");
        last = id;
    }
    db.close().expect("closes");
    let mut left = vec![SESSIONS + SESSIONS / 3 + 1];
    while left[left.len() - 1] > 1 && left.len() < 100 {
        kill_at_work(&path, Duration::from_millis(left.len() as u64 % 7 * 3));
        left.push(python_says(&path, WHOLE).parse().expect("a number"));
    }
    let between = left.iter().filter(|left| (2..=SESSIONS).contains(*left)).count();
    assert!(between > 0, "no kill fell into the prune: {left:?}");
    prune(&path);
    assert_eq!(python_says(&path, WHOLE), "1", "{left:?}");
    let db = SessionDb::open(&path).expect("opens");
    assert!(db.search_messages("walrus", &SearchOptions::default()).expect("searches").is_empty());
}
