//! A process with plain SQLite that works on the file by its shared rules while ours does: neither breaks the other.

mod support;

use std::collections::HashSet;
use std::process::{Child, Stdio};

use hermes_state::{Error, NewMessage, NewSession, SearchOptions, SessionDb, SessionQuery};
use support::python;

/// Runs beside until it is told to stop, and then must have met no error.
struct Stranger(Child);

impl Stranger {
    /// Does this again and again; the script has a connection `c` that is in no transaction.
    fn doing(path: &std::path::Path, again: &str) -> Self {
        let script = format!(
            "import select\n\
             c = sqlite3.connect(path, timeout=60, isolation_level=None)\n\
             c.execute('PRAGMA foreign_keys = ON')\n\
             n = 0\n\
             while not select.select([sys.stdin], [], [], 0.002)[0]:\n    \
                 {}\n    \
                 n += 1\n    \
                 if n == 1: print('begun', flush=True)\n",
            again.replace('\n', "\n    ")
        );
        let mut child =
            python(path, &script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 is installed");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("is piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).expect("reads");
        assert_eq!(line, "begun\n");
        Self(child)
    }

    fn stop(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().expect("ends").success(), "the stranger met an error");
    }
}

fn store() -> (tempfile::TempDir, SessionDb) {
    let folder = tempfile::tempdir().expect("a folder");
    let db = SessionDb::open(folder.path().join("state.db")).expect("opens");
    (folder, db)
}

#[test]
fn titles_stay_unique_while_a_stranger_drops_the_index_and_makes_it_again() {
    let (_folder, db) = store();
    let stranger = Stranger::doing(
        db.path(),
        "c.execute('DROP INDEX IF EXISTS idx_sessions_title_unique')\n\
         time.sleep(0.002)\n\
         c.execute('CREATE UNIQUE INDEX IF NOT EXISTS idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL')",
    );
    let db = &db;
    std::thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || {
                for n in 0..50 {
                    let id = format!("s{writer}-{n}");
                    db.create_session(NewSession::new(id.as_str(), "cli")).expect("creates");
                    match db.set_session_title(id.as_str(), Some(&format!("Plan {}", n % 10))) {
                        Ok(true) | Err(Error::TitleInUse { .. }) => {}
                        answer => panic!("{answer:?}"),
                    }
                    db.set_auto_title_if_empty(id.as_str(), Some("Harbour")).expect("takes the next number");
                }
            });
        }
    });
    stranger.stop();
    let all = SessionQuery { limit: -1, ..SessionQuery::default() };
    let sessions = db.list_sessions(&all).expect("lists");
    let titles: Vec<_> = sessions.iter().filter_map(|session| session.record().text("title")).collect();
    assert_eq!(titles.len(), 200, "each has one");
    assert_eq!(titles.iter().collect::<HashSet<_>>().len(), 200, "of its own");
}

#[test]
fn what_a_stranger_writes_through_the_triggers_is_found_and_what_he_removes_is_not() {
    let (_folder, db) = store();
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    let stranger = Stranger::doing(
        db.path(),
        "c.execute('BEGIN IMMEDIATE')\n\
         c.execute(\"INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', ?, 1)\", (f'stranger kept{n}q',))\n\
         c.execute(\"INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', ?, 1)\", (f'stranger gone{n}q',))\n\
         c.execute(\"UPDATE messages SET content = content || ' changed' WHERE content LIKE 'stranger kept%q'\")\n\
         c.execute(\"DELETE FROM messages WHERE content LIKE 'stranger gone%'\")\n\
         c.execute(\"UPDATE sessions SET message_count = message_count + 1 WHERE id = 's'\")\n\
         c.execute('COMMIT')",
    );
    let mut ours = 0;
    for n in 0..100 {
        db.append_message("s", NewMessage::new("user", format!("ours number{n}q"))).expect("appends");
        ours += 1;
    }
    stranger.stop();
    let all = SearchOptions { limit: -1, ..SearchOptions::default() };
    let found = |query: &str| db.search_messages(query, &all).expect("searches").len() as i64;
    let stored = db.message_count(Some("s")).expect("counts");
    assert_eq!((found("ours"), found("gone0q"), found("kept0q"), found("number99q")), (ours, 0, 1, 1));
    assert_eq!(found("stranger"), stored - ours);
    assert_eq!(found("changed"), stored - ours);
    assert_eq!(db.session("s").expect("reads").expect("is there").message_count(), stored);
    assert_eq!(
        support::python_says(db.path(), "print(sqlite3.connect(path).execute('PRAGMA integrity_check').fetchone()[0])"),
        "ok"
    );
}

#[test]
fn markers_of_a_rebuild_that_a_stranger_sets_are_heeded_at_once_and_the_rebuild_is_finished() {
    let (_folder, db) = store();
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    for n in 0..30 {
        db.append_message("s", NewMessage::new("user", format!("lamp number{n}q"))).expect("appends");
    }
    // As an older release begins one: the rows up to here are to be put into the index anew.
    support::python_says(
        db.path(),
        "c = sqlite3.connect(path, timeout=60)\n\
         c.execute(\"INSERT INTO messages_fts(messages_fts) VALUES('delete-all')\")\n\
         c.execute(\"INSERT INTO messages_fts_trigram(messages_fts_trigram) VALUES('delete-all')\")\n\
         c.execute(\"INSERT OR REPLACE INTO state_meta (key, value) VALUES ('fts_rebuild_high_water', '30'), ('fts_rebuild_progress', '0')\")\n\
         c.commit()",
    );
    let found = |query: &str| db.search_messages(query, &SearchOptions { limit: -1, ..SearchOptions::default() });
    assert_eq!(found("lamp").expect("searches").len(), 30, "the rows themselves are read");
    db.append_message("s", NewMessage::new("user", "one more lamp")).expect("appends");
    assert_eq!(found("lamp").expect("searches").len(), 31);
    assert!(db.fts_rebuild_status().expect("reads").is_some());
    while db.fts_rebuild_step(7).expect("steps") {}
    assert!(db.fts_rebuild_status().expect("reads").is_none());
    let hits = found("lamp").expect("searches");
    assert_eq!((hits.len(), hits.degraded, found("number7q").expect("searches").len()), (31, false, 1));
}

#[test]
fn rows_with_a_nul_may_be_removed_by_whoever_did_not_write_them() {
    let (_folder, db) = store();
    db.create_session(NewSession::new("a", "cli")).expect("creates");
    db.create_session(NewSession::new("b", "cli")).expect("creates");
    let picture = serde_json::json!([{"type": "text", "text": "picture of a porcupine"}]);
    let ours = db.append_message("a", NewMessage::new("user", picture)).expect("appends").stored().expect("stored");
    for n in 0..3 {
        db.append_message("a", NewMessage::new("user", format!("plain porcupines {n}"))).expect("appends");
    }
    support::python_says(
        db.path(),
        &format!(
            "c = sqlite3.connect(path, timeout=60)\n\
             c.execute('DELETE FROM messages WHERE id = {ours}')\n\
             c.execute(\"INSERT INTO messages (session_id, role, content, timestamp) VALUES ('b', 'user', ?, 1)\", ('x\\0 tail of a porcupine',))\n\
             c.commit()"
        ),
    );
    let found = |query: &str| {
        let results = db.search_messages(query, &SearchOptions::default()).expect("searches");
        assert!(!results.degraded, "{query}");
        results.len()
    };
    assert_eq!((found("rcupines"), found("porcupine")), (3, 1), "a part of a word, and a word behind a NUL");
    db.clear_messages("b").expect("removes what the other wrote");
    assert_eq!((found("rcupines"), found("tail")), (3, 0));
    let checked = support::python_says(
        db.path(),
        "c = sqlite3.connect(path)\n\
         for table in ('messages_fts', 'messages_fts_trigram'):\n    \
             c.execute(f\"INSERT INTO {table}({table}, rank) VALUES('integrity-check', 1)\")\n\
         print('whole')",
    );
    assert_eq!(checked, "whole");
}
