//! Files written by older releases: each opens, keeps every row, is searched, and goes on being shared with processes
//! that write it through its triggers with another SQLite.

mod support;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use hermes_state::{
    AnchoredViewOptions, CheckDepth, ConversationOptions, GatewayPeer, GatewaySessionQuery, MessageQuery, NewMessage,
    NewSession, PageQuery, PruneFilter, ResumeOptions, SearchOptions, Session, SessionDb, SessionOrigin, SessionQuery,
};
use support::{python, python_says};

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
        let before = python_says(&path, DIGEST);
        let db = SessionDb::open_read_only(&path).unwrap_or_else(|error| panic!("{version}: {error}"));
        assert_eq!(db.message_count(None).expect("counts"), messages, "{version}");
        drop(db);
        assert_eq!(python_says(&path, DIGEST), before, "{version}, {sessions} sessions");
    }
}

const DIGEST: &str = "import hashlib\nprint(hashlib.sha256(open(path, 'rb').read()).hexdigest())";

/// The ids, a line each; then the folders, a line each.
const IDS_AND_FOLDERS: &str = "\
    c = sqlite3.connect(path)\n\
    print('\\n'.join(row[0] for row in c.execute('SELECT id FROM sessions')))\n\
    print('--')\n\
    if any(row[1] == 'cwd' for row in c.execute('PRAGMA table_info(sessions)')):\n    \
        for row in c.execute(\"SELECT DISTINCT cwd FROM sessions WHERE trim(cwd) <> '' ORDER BY cwd\"): print(row[0])";

#[test]
fn sessions_of_an_older_file_that_is_only_looked_at_are_found() {
    for (version, sessions, _) in WORLDS {
        let folder = tempfile::tempdir().expect("a folder");
        let path = copy_of(version, folder.path());
        let known = python_says(&path, IDS_AND_FOLDERS);
        let (ids, folders) = known.split_once("--").expect("both");
        let ids: Vec<&str> = ids.lines().collect();
        assert_eq!(i64::try_from(ids.len()).expect("few"), sessions, "{version}");
        let db = SessionDb::open_read_only(&path).unwrap_or_else(|error| panic!("{version}: {error}"));
        for id in ids {
            let row = db.session(id).expect("reads").expect("is there");
            let title = db.session_title(id).expect("reads");
            assert_eq!(title.as_deref(), row.title(), "{version}");
            if let Some(title) = title {
                let holder = db.session_by_title(&title).expect("reads").expect("is there");
                assert_eq!(holder.id(), id, "{version}");
                assert!(db.resolve_session_by_title(&title).expect("reads").is_some(), "{version}");
            }
            assert_eq!(db.resolve_session_id(id).expect("reads").as_deref(), Some(id), "{version}");
            assert_eq!(db.rich_session(id, true).expect("reads").expect("is there").id(), id, "{version}");
            assert!(db.session(db.compression_tip(id).expect("reads")).expect("reads").is_some(), "{version}");
        }
        assert_eq!(db.session_by_title("nobody's").expect("reads"), None, "{version}");
        assert_eq!(db.resolve_session_by_title("nobody's").expect("reads"), None, "{version}");
        assert_eq!(db.next_title_in_lineage("nobody's #3").expect("reads"), "nobody's", "{version}");
        let found: Vec<String> =
            db.working_folders(true).expect("reads").into_iter().map(|folder| folder.cwd).collect();
        assert_eq!(found, folders.trim().lines().collect::<Vec<_>>(), "{version}");
        db.working_folders(false).expect("reads");
    }
}

/// What every method that reads answers, a text for each, of every session and message of the file.
fn every_answer(db: &SessionDb, word: &str) -> Vec<String> {
    let mut answers = Vec::new();
    macro_rules! ask {
        ($($asked:expr),* $(,)?) => {
            $(answers.push(format!("{}: {:?}", stringify!($asked), $asked.unwrap_or_else(|error| panic!("{}: {error}", stringify!($asked)))));)*
        };
    }
    let compact = SessionQuery { compact_rows: true, ..everything() };
    let archived = SessionQuery { archived_only: true, ..everything() };
    let any = PruneFilter { started_before: Some(4e9), ..PruneFilter::default() };
    ask!(
        db.list_sessions(&everything()),
        db.list_sessions(&compact),
        db.list_sessions(&archived),
        db.session_count(&everything()),
        db.session_count(&SessionQuery::default()),
        db.list_sessions_page(&PageQuery { titled: Some(false), ..PageQuery::default() }).map(|page| page.sessions),
        db.list_cron_job_runs("job", 10, 0),
        db.search_sessions(None, 50, 0),
        db.search_sessions_by_id("2", 50, true),
        db.working_folders(true),
        db.count_empty_sessions(),
        db.list_prune_candidates(&any),
        db.plan_prune(&any),
        db.list_gateway_sessions(&GatewaySessionQuery::default()),
        db.find_session_by_origin(&SessionOrigin::new("telegram", "1")),
        db.load_gateway_routing_entries(""),
        db.list_pending_handoffs(),
        db.meta("nothing"),
        db.message_count(None),
        db.telegram_topic_binding("1", "2"),
        db.list_telegram_topic_bindings_for_chat("1"),
        db.is_telegram_topic_mode_enabled("1", "2"),
        db.list_unlinked_telegram_sessions_for_user("1", 10),
        db.export_all(None)
            .map(|all| all.map(|one| one.expect("exports").session().id().to_owned()).collect::<Vec<_>>()),
        db.search_messages(word, &SearchOptions::default())
            .map(|hits| hits.iter().map(|hit| hit.id).collect::<Vec<_>>()),
        db.next_title_in_lineage("some title"),
    );
    let sessions: Vec<Session> = db.list_sessions(&everything()).expect("lists");
    for session in &sessions {
        let id = session.id();
        let inactive = MessageQuery { include_inactive: true, ..MessageQuery::default() };
        let peer = GatewayPeer::new(session.source(), "key").chat_id("1");
        ask!(
            db.session(id),
            db.rich_session(id, true),
            db.rich_session(id, false),
            db.session_title(id),
            db.resolve_session_id(id),
            db.compression_tip(id),
            db.session_lineage(id),
            db.conversation_root(id),
            db.compression_lineage(id),
            db.resolve_resume_session_id(id),
            db.ancestor_display_prefix(id),
            db.conversation(id, &ConversationOptions::default()),
            db.resume_conversations(id, &ResumeOptions::default()),
            db.messages(id, &MessageQuery::default()),
            db.messages(id, &inactive),
            db.recent_messages(id, 5),
            db.recent_user_messages(id, 5, true),
            db.distinct_message_count(id),
            db.message_count(Some(id)),
            db.has_archived_messages(id),
            db.has_platform_message_id(id, "1"),
            db.compression_lock_holder(id),
            db.compression_failure_cooldown(id),
            db.compression_fallback_streak(id),
            db.handoff_state(id),
            db.telegram_topic_binding_by_session(id),
            db.is_telegram_session_linked_to_topic(id),
            db.find_latest_gateway_session_for_peer(&peer),
            db.export_session(id).map(|export| export.map(|export| export.message_count())),
            db.export_session_lineage(id).map(|export| export.map(|export| export.segments().len())),
        );
        for message in db.recent_messages(id, 2).expect("reads") {
            ask!(
                db.messages_around(id, message.id(), 3),
                db.anchored_view(id, message.id(), &AnchoredViewOptions::default()),
            );
        }
    }
    answers
}

#[test]
fn an_older_file_that_is_only_looked_at_answers_as_after_a_writable_open() {
    for (version, sessions, _) in WORLDS {
        let folder = tempfile::tempdir().expect("a folder");
        let path = copy_of(version, folder.path());
        let word = python_says(&path, A_WORD);
        // With this number a writable open changes the shape of the file and none of its rows.
        python_says(
            &path,
            "c = sqlite3.connect(path)\nc.execute('UPDATE schema_version SET version = 23')\nc.commit()",
        );
        let before = python_says(&path, DIGEST);
        let looking = SessionDb::open_read_only(&path).expect("opens");
        let seen = every_answer(&looking, &word);
        assert!(seen.len() > 30 * usize::try_from(sessions).expect("few"), "{version}");
        SessionDb::check_file(&path, CheckDepth::Quick).expect("checks");
        looking.status().expect("looks");
        assert_eq!(python_says(&path, DIGEST), before, "{version}");
        // The handle that looks stays open, and sees what became of the file.
        let db = SessionDb::open(&path).expect("opens");
        for (seen, read) in seen.iter().zip(every_answer(&db, &word)) {
            assert_eq!(*seen, read, "{version}");
        }
        let id = db.list_sessions(&everything()).expect("lists")[0].id().to_owned();
        db.set_session_title(id.as_str(), Some("a title of today")).expect("sets");
        assert_eq!(
            looking.session_title(id.as_str()).expect("reads").as_deref(),
            Some("a title of today"),
            "{version}"
        );
        assert_eq!(looking.session(id.as_str()).expect("reads"), db.session(id.as_str()).expect("reads"), "{version}");
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

#[test]
fn a_migrated_file_knows_keys_of_callers_while_older_writers_go_on() {
    for (version, _, messages) in WORLDS {
        let folder = tempfile::tempdir().expect("a folder");
        let path = copy_of(version, folder.path());
        // It was open before the column came.
        let mut older = python(
            &path,
            "import sys\n\
             c = sqlite3.connect(path, timeout=60, isolation_level=None)\n\
             insert = \"INSERT INTO messages (session_id, role, content, timestamp) VALUES ((SELECT MIN(id) FROM sessions), 'user', 'older', 1.0)\"\n\
             c.execute(insert)\n\
             print('ready', flush=True)\n\
             sys.stdin.readline()\n\
             c.execute(insert)",
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is installed");
        let mut ready = String::new();
        BufReader::new(older.stdout.as_mut().expect("piped")).read_line(&mut ready).expect("a line");
        let db = SessionDb::open(&path).unwrap_or_else(|error| panic!("{version}: {error}"));
        db.create_session(NewSession::new("keyed", "cli")).expect("creates");
        let message = || NewMessage::new("user", "once").client_key("k");
        let id = db.append_message("keyed", message()).expect("appends");
        drop(older.stdin.take());
        assert!(older.wait().expect("ends").success(), "{version}");
        assert_eq!(db.append_message("keyed", message()).expect("appends"), id, "{version}");
        assert_eq!(db.message_count(None).expect("counts"), messages + 3, "{version}");
        let stored = &db.messages("keyed", &MessageQuery::default()).expect("reads")[0];
        assert_eq!((stored.client_key(), stored.record().get("client_key")), (Some("k"), None), "{version}");
        drop(db);
        let again = SessionDb::open(&path).unwrap_or_else(|error| panic!("{version}, again: {error}"));
        assert_eq!(again.append_message("keyed", message()).expect("appends"), id, "{version}");
        assert_eq!(again.status().expect("looks").schema_version, Some(23), "{version}");
    }
}
