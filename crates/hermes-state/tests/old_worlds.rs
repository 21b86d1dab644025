//! Files written by older releases: each opens, keeps every row, is searched, and goes on being shared with processes
//! that write it through its triggers with another SQLite.

mod support;

use std::path::{Path, PathBuf};

use hermes_state::{MessageQuery, NewMessage, NewSession, SearchOptions, SessionDb, SessionQuery};
use support::python_says;

/// The releases' schema versions, with the sessions and messages in their files.
const WORLDS: [(&str, i64, i64); 7] = [
    ("v2", 10, 257),
    ("v6", 10, 190),
    ("v11", 10, 215),
    ("v16", 10, 213),
    ("v20", 10, 239),
    ("v22", 10, 310),
    ("v23", 10, 252),
];

/// A copy to work on: opening changes it.
fn copy_of(version: &str, folder: &Path) -> PathBuf {
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/state-{version}.db"));
    let copy = folder.join("state.db");
    #[expect(clippy::disallowed_methods, reason = "nobody has either file open")]
    std::fs::copy(original, &copy).expect("copied");
    copy
}

fn everything() -> SessionQuery {
    SessionQuery { limit: -1, include_children: true, include_archived: true, ..SessionQuery::default() }
}

/// A word of five letters or more that stands in a message of the file, with the number of messages of the table.
const A_WORD: &str = "import re\n\
    c = sqlite3.connect(path)\n\
    for (text,) in c.execute(\"SELECT content FROM messages WHERE role = 'user' AND content IS NOT NULL ORDER BY id DESC\"):\n    \
        words = re.findall(r'[a-z]{5,}', text)\n    \
        if words: print(words[-1]); break";

#[test]
fn every_older_file_opens_keeps_its_rows_and_is_searched() {
    for (version, sessions, messages) in WORLDS {
        let folder = tempfile::tempdir().expect("a folder");
        let path = copy_of(version, folder.path());
        let word = python_says(&path, A_WORD);
        let db = SessionDb::open(&path).unwrap_or_else(|error| panic!("{version}: {error}"));
        assert_eq!(db.session_count(&everything()).expect("counts"), sessions, "{version}");
        assert_eq!(db.message_count(None).expect("counts"), messages, "{version}");
        assert_eq!(db.status().expect("looks").schema_version, Some(23), "{version}");
        let hits = db.search_messages(&word, &SearchOptions::default()).expect("searches");
        assert!(!hits.is_empty(), "{version}: {word:?}");
        for session in db.list_sessions(&everything()).expect("lists") {
            let query = MessageQuery { include_inactive: true, ..MessageQuery::default() };
            db.messages(session.id(), &query).expect("reads");
        }
    }
}

#[test]
fn an_older_file_is_searched_without_being_touched() {
    for (version, sessions, messages) in WORLDS {
        let folder = tempfile::tempdir().expect("a folder");
        let path = copy_of(version, folder.path());
        let digest = "import hashlib\nprint(hashlib.sha256(open(path, 'rb').read()).hexdigest())";
        let before = python_says(&path, digest);
        let db = SessionDb::open_read_only(&path).unwrap_or_else(|error| panic!("{version}: {error}"));
        assert_eq!(db.message_count(None).expect("counts"), messages, "{version}");
        drop(db);
        assert_eq!(python_says(&path, digest), before, "{version}, {sessions} sessions");
    }
}

#[test]
fn a_migrated_file_is_shared_with_a_writer_of_another_sqlite_in_both_directions() {
    for (version, _, messages) in WORLDS {
        let folder = tempfile::tempdir().expect("a folder");
        let path = copy_of(version, folder.path());
        let db = SessionDb::open(&path).unwrap_or_else(|error| panic!("{version}: {error}"));
        db.create_session(NewSession::new("shared", "cli")).expect("creates");
        python_says(
            &path,
            "c = sqlite3.connect(path)\n\
             c.execute(\"INSERT INTO messages (session_id, role, content, timestamp) VALUES ('shared', 'user', 'quokkaone from outside', 1.0)\")\n\
             c.execute(\"INSERT INTO messages (session_id, role, content, timestamp) VALUES ('shared', 'user', 'quokkagone', 1.0)\")\n\
             c.execute(\"UPDATE messages SET content = 'quokkachanged' WHERE content = 'quokkagone'\")\n\
             c.commit()",
        );
        let found = |word: &str| db.search_messages(word, &SearchOptions::default()).expect("searches").len();
        assert_eq!((found("quokkaone"), found("quokkachanged"), found("quokkagone")), (1, 1, 0), "{version}");

        let calls = serde_json::json!([{"id": "k", "function": {"name": "wombattool"}}]);
        db.append_message("shared", NewMessage::new("user", "wombatone from inside").tool_calls(calls))
            .expect("appends");
        let says = python_says(
            &path,
            "c = sqlite3.connect(path)\n\
             print([c.execute(f\"SELECT COUNT(*) FROM {t} WHERE {t} MATCH ?\", (w,)).fetchone()[0] for t, w in (('messages_fts', 'wombatone'), ('messages_fts_trigram', 'ombaton'))])\n\
             for t in ('messages_fts', 'messages_fts_trigram'): c.execute(f\"INSERT INTO {t}({t}) VALUES('integrity-check')\")\n\
             print(c.execute('PRAGMA integrity_check').fetchone()[0], c.execute('SELECT COUNT(*) FROM messages').fetchone()[0])",
        );
        assert_eq!(says, format!("[1, 1]\nok {}", messages + 3), "{version}");
        drop(db);
        SessionDb::open(&path).unwrap_or_else(|error| panic!("{version}, again: {error}"));
    }
}
