//! Upkeep goes in steps: others write between them, what is left of one that ended is gone on with and not begun again, and
//! at each moment everything is whole.

mod support;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hermes_state::{Error, NewMessage, NewSession, PruneFilter, SearchOptions, SessionDb, StepPace};
use support::{python_says, python_started};

const AT_ONCE: StepPace = StepPace { rows: 500, duty_factor: 0.0, min_pause: std::time::Duration::ZERO };

struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("state.db")
    }

    fn open(&self) -> SessionDb {
        SessionDb::open(self.path()).expect("opens")
    }

    /// With a session `long` of so many messages that has ended, and an open one.
    fn with_long(&self, messages: usize) -> SessionDb {
        let db = self.open();
        db.create_session(NewSession::new("other", "cli")).expect("creates");
        db.create_session(NewSession::new("long", "old")).expect("creates");
        fill(&db, "long", messages);
        db.end_session("long", "done").expect("ends");
        db
    }
}

fn fill(db: &SessionDb, session: &str, messages: usize) {
    let call = r#"[{"id": "c", "function": {"name": "f", "arguments": "{}"}}]"#;
    let calls: serde_json::Value = serde_json::from_str(call).expect("JSON");
    let one = |n: usize| {
        let message = NewMessage::new("assistant", format!("walrus {n} {}", "words ".repeat(30)));
        if n.is_multiple_of(3) { message.tool_calls(calls.clone()) } else { message }
    };
    for begin in (0..messages).step_by(500) {
        db.append_messages(session, (begin..messages.min(begin + 500)).map(one).collect()).expect("appends");
    }
}

fn old() -> PruneFilter {
    PruneFilter { source: Some("old".into()), min_messages: Some(1000), ..PruneFilter::default() }
}

/// As another SQLite sees it: what is left of `long` is its beginning, counted rightly, and the indexes hold it. Prints how
/// much is left, and adds a message to the other session, which takes the write lock.
const BEGINNING: &str = "c = sqlite3.connect(path, isolation_level=None, timeout=0)\n\
    c.execute(\"INSERT INTO messages (session_id, role, content, timestamp) VALUES ('other', 'user', 'seal', 1)\")\n\
    left = c.execute(\"SELECT COUNT(*), MAX(id) - MIN(id) + 1, MIN(id) FROM messages WHERE session_id = 'long'\").fetchone()\n\
    assert left[0] == left[1] and left[2] == 1, left\n\
    calls = c.execute(\"SELECT COUNT(*) FROM messages WHERE session_id = 'long' AND tool_calls IS NOT NULL\").fetchone()[0]\n\
    counted = c.execute(\"SELECT message_count, tool_call_count FROM sessions WHERE id = 'long'\").fetchone()\n\
    assert counted == (left[0], calls), (counted, left, calls)\n\
    for table in ('messages_fts', 'messages_fts_trigram'): c.execute(f\"INSERT INTO {table}({table}) VALUES('integrity-check')\")\n\
    print(left[0])";

fn left(path: &Path) -> usize {
    python_says(path, BEGINNING).parse().expect("a number")
}

#[test]
fn a_long_session_goes_in_pieces_between_which_others_write() {
    const MESSAGES: usize = 6000;
    let world = World::new();
    let db = world.with_long(MESSAGES);
    let (mut steps, mut seen) = (0, vec![MESSAGES]);
    let pruned = db.prune_sessions_with(&old(), None, &mut |progress| {
        assert_eq!((progress.done, progress.total), (0, Some(1)), "the session is not done before its row is gone");
        steps += 1;
        if steps % 8 == 2 {
            seen.push(left(&world.path()));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(pruned.expect("prunes"), 1);
    assert!(seen.windows(2).all(|two| two[1] < two[0]) && seen.len() > 1, "{seen:?}");
    assert!(db.session("long").expect("reads").is_none());
    assert_eq!(db.message_count(None).expect("counts"), i64::try_from(seen.len() - 1).expect("few"));
    assert!(db.search_messages("walrus", &SearchOptions::default()).expect("searches").is_empty());
    assert_eq!(marks(&world.path()), "0");
}

/// How many notes of prunes that have begun there are.
fn marks(path: &Path) -> String {
    python_says(
        path,
        "print(sqlite3.connect(path).execute(\"SELECT COUNT(*) FROM state_meta WHERE key LIKE 'hermes_state_%'\").fetchone()[0])",
    )
}

/// Prunes two steps of it.
fn begin_to_prune(db: &SessionDb) {
    let mut steps = 0;
    db.prune_sessions_with(&old(), None, &mut |_| {
        steps += 1;
        if steps > 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .expect("prunes");
}

#[test]
fn a_prune_that_was_ended_is_finished_by_the_same_call_although_few_messages_are_left() {
    let world = World::new();
    let db = world.with_long(1001);
    begin_to_prune(&db);
    let rest = left(&world.path());
    assert!(rest < 1000, "the filter asks for a thousand: {rest}");
    let few = PruneFilter { min_messages: Some(1000), source: Some("cli".into()), ..PruneFilter::default() };
    assert_eq!(db.prune_sessions(&few, None).expect("prunes"), 0, "it met another filter");
    assert_eq!(db.prune_sessions(&old(), None).expect("prunes"), 1);
    assert!(db.session("long").expect("reads").is_none());
    assert_eq!(marks(&world.path()), "0");
}

#[test]
fn a_session_in_which_something_was_said_since_is_spared_by_a_prune_that_had_begun() {
    let world = World::new();
    let db = world.with_long(1001);
    begin_to_prune(&db);
    let rest = left(&world.path());
    db.append_message("long", NewMessage::new("user", "wait")).expect("appends");
    assert_eq!(db.prune_sessions(&old(), None).expect("prunes"), 0);
    let session = db.session("long").expect("reads").expect("is there");
    assert_eq!(session.message_count(), i64::try_from(rest + 1).expect("few"));
}

#[test]
fn a_deletion_takes_what_is_said_until_its_end() {
    let world = World::new();
    let db = world.with_long(3000);
    let mut writer = python_started(
        &world.path(),
        "c = sqlite3.connect(path, isolation_level=None, timeout=60)\n\
         c.execute('PRAGMA foreign_keys = ON')\n\
         n = 0\n\
         while True:\n\
         \x20   try: c.execute(\"INSERT INTO messages (session_id, role, content, timestamp) VALUES ('long', 'user', 'walrus again', 1)\")\n\
         \x20   except sqlite3.IntegrityError: break\n\
         \x20   n += 1\n\
         \x20   if n == 1: print('begun', flush=True)\n\
         \x20   time.sleep(0.005)",
    );
    assert!(db.delete_session("long", None).expect("deletes"));
    assert!(writer.wait().expect("ends").success());
    assert_eq!(db.message_count(None).expect("counts"), 0);
    assert_eq!(
        python_says(
            &world.path(),
            "c = sqlite3.connect(path); print(c.execute('PRAGMA foreign_key_check').fetchall(), c.execute('PRAGMA integrity_check').fetchone()[0])"
        ),
        "[] ok"
    );
}

/// Runs so many steps of a rebuild, and gives how far each was.
fn rebuild(db: &SessionDb, steps: usize) -> Vec<u64> {
    let mut reached = Vec::new();
    db.rebuild_fts_with(StepPace { rows: 100, ..AT_ONCE }, &mut |progress| {
        reached.push(progress.done);
        if reached.len() == steps { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .expect("rebuilds");
    reached
}

/// Both indexes hold just what the messages say.
fn check_indexes(path: &Path) {
    python_says(
        path,
        "c = sqlite3.connect(path, isolation_level=None)\n\
         for t in ('messages_fts', 'messages_fts_trigram'):\n\
         \x20   c.execute(f\"INSERT INTO {t}({t}) VALUES ('integrity-check')\")\n\
         \x20   legacy = 'tool_name' not in c.execute('SELECT sql FROM sqlite_master WHERE name = ?', (t,)).fetchone()[0]\n\
         \x20   s = 'messages' if legacy or t == 'messages_fts' else t + '_src'\n\
         \x20   assert c.execute(f'SELECT count(*) FROM {t}_docsize').fetchone() == c.execute(f'SELECT count(*) FROM {s}').fetchone(), t\n\
         assert c.execute('PRAGMA integrity_check').fetchone()[0] == 'ok'",
    );
}

#[test]
fn a_rebuild_that_was_ended_is_gone_on_with_and_not_begun_again() {
    let world = World::new();
    let db = world.with_long(1000);
    assert_eq!(rebuild(&db, 3), [100, 200, 300]);
    db.append_message("other", NewMessage::new("user", "walrus at last")).expect("appends");
    db.close().expect("closes");
    let db = world.open();
    assert_eq!(rebuild(&db, 2), [400, 500], "the rows that were indexed are not indexed again");
    let found =
        db.search_messages("walrus", &SearchOptions { limit: -1, ..SearchOptions::default() }).expect("searches");
    assert_eq!((found.len(), found.degraded), (1001, true));
    assert_eq!(rebuild(&db, 99).last(), Some(&900), "the last step leaves no status");
    check_indexes(&world.path());
    assert_eq!(rebuild(&db, 1), [100], "and then one begins anew");
}

#[test]
fn a_stranger_who_sets_the_markers_of_a_rebuild_is_not_joined() {
    let world = World::new();
    let db = world.with_long(300);
    python_says(
        &world.path(),
        "c = sqlite3.connect(path, isolation_level=None)\n\
         c.execute(\"INSERT INTO state_meta VALUES ('fts_rebuild_high_water', '300'), ('fts_rebuild_progress', '200')\")",
    );
    assert_eq!(rebuild(&db, 99), [100, 200], "all of it is indexed anew");
    check_indexes(&world.path());
}

#[test]
fn indexes_of_an_older_layout_are_rebuilt_in_steps_and_serve_meanwhile() {
    let world = World::new();
    #[expect(clippy::disallowed_methods, reason = "a file that nobody has open")]
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/state-v22.db"), world.path())
        .expect("copies");
    let db = world.open();
    db.create_session(NewSession::new("more", "cli")).expect("creates");
    fill(&db, "more", 400);
    let hits = |db: &SessionDb| {
        let found =
            db.search_messages("walrus", &SearchOptions { limit: -1, ..SearchOptions::default() }).expect("searches");
        (found.len(), found.degraded)
    };
    // Rows that the index has no more, and one that no message has any more.
    python_says(
        &world.path(),
        "c = sqlite3.connect(path, isolation_level=None)\n\
         c.execute(\"DELETE FROM messages_fts WHERE rowid IN (SELECT id FROM messages WHERE session_id = 'more' AND id % 7 = 0)\")\n\
         c.execute(\"INSERT INTO messages_fts (rowid, content) VALUES (999999, 'walrus that was')\")",
    );
    assert!(hits(&db).0 < 400);
    let first = rebuild(&db, 2);
    db.close().expect("closes");
    let db = world.open();
    let then = rebuild(&db, 99);
    assert!(then[0] > first[1], "{first:?} {then:?}");
    assert_eq!(hits(&db), (400, false));
    check_indexes(&world.path());
    assert_eq!(marks(&world.path()), "0");
    assert!(db.fts_optimize_available().expect("reads"), "the layout stays");
}

#[test]
fn a_merged_index_is_not_merged_again() {
    let world = World::new();
    let db = world.with_long(500);
    let words = |n: usize| (0..100).map(|k| format!("w{n}x{k} ")).collect::<String>();
    db.append_messages("other", (0..1000).map(|n| NewMessage::new("user", words(n))).collect()).expect("appends");
    let steps = |db: &SessionDb| {
        let mut steps = 0;
        let merged = db.optimize_fts_with(&mut |progress| {
            steps = progress.done;
            ControlFlow::Continue(())
        });
        (merged.expect("merges"), steps)
    };
    assert_eq!(steps(&db).0, 2);
    db.append_message("other", NewMessage::new("user", "walrus at last")).expect("appends");
    assert_eq!(steps(&db), (2, 2), "a look at each");
    assert_eq!(
        db.search_messages("walrus", &SearchOptions { limit: -1, ..Default::default() }).expect("finds").len(),
        501
    );
    check_indexes(&world.path());
}

#[test]
fn an_index_found_without_triggers_is_begun_anew_and_filled_behind_the_writes() {
    let world = World::new();
    world.with_long(2500).close().expect("closes");
    python_says(&world.path(), "sqlite3.connect(path).execute('DROP TRIGGER messages_fts_insert')");
    let db = world.open();
    let rebuild = db.fts_rebuild_status().expect("reads").expect("there is one to be done");
    assert_eq!((rebuild.total, rebuild.indexed), (2500, 0), "nothing was indexed under the lock of the open");
    let hits = || {
        let found = db.search_messages("walrus", &SearchOptions { limit: -1, ..Default::default() }).expect("searches");
        (found.len(), found.degraded)
    };
    assert_eq!(hits(), (2500, true));
    let mut writes = 0;
    while db.fts_optimize_available().expect("reads") {
        db.append_message("other", NewMessage::new("user", "seal")).expect("appends");
        writes += 1;
        assert!(writes < 10_000, "the writes fill it");
    }
    assert_eq!(hits(), (2500, false));
    check_indexes(&world.path());
    assert_eq!(marks(&world.path()), "0");
}

#[test]
fn a_long_log_is_merged_while_writes_go_on() {
    let world = World::new();
    let db = world.open();
    db.create_session(NewSession::new("other", "cli")).expect("creates");
    let mut reader = python_started(
        &world.path(),
        "c = sqlite3.connect(path, isolation_level=None)\n\
         c.execute('BEGIN'); c.execute('SELECT COUNT(*) FROM sessions').fetchall()\n\
         print('begun', flush=True)\n\
         while not os.path.exists(path + '.stop'): time.sleep(0.01)",
    );
    let large = "x".repeat(1 << 20);
    for n in 0..24 {
        db.set_meta(format!("large{n}"), large.as_str()).expect("stores");
    }
    #[expect(clippy::disallowed_methods, reason = "a sign for the reader, no store")]
    std::fs::write(world.folder.path().join("state.db.stop"), "").expect("writes");
    assert!(reader.wait().expect("ends").success());
    let bytes = |name: &str| world.folder.path().join(name).metadata().map_or(0, |file| file.len());
    let mut writes = 0;
    while bytes("state.db") < 24 << 20 {
        db.append_message("other", NewMessage::new("user", "seal")).expect("appends");
        writes += 1;
        assert!(writes < 10_000, "the log is merged");
    }
    db.close().expect("closes");
    assert_eq!(bytes("state.db-wal"), 0);
    assert_eq!(world.open().message_count(None).expect("counts"), writes);
}

#[test]
fn repositories_are_noted_for_more_sessions_than_go_in_one_step() {
    let world = World::new();
    let db = world.open();
    for n in 0..700 {
        let session = NewSession::new(format!("s{n}"), "cli").cwd(format!("/work/{}", n % 2));
        let session = if n % 10 == 0 { session.git_repo_root("/known") } else { session };
        db.create_session(session).expect("creates");
    }
    db.backfill_repo_roots([("/work/0", "/zero"), ("/work/1", "/one"), ("/none", "/none")]).expect("notes");
    let counts = python_says(
        &world.path(),
        "print(sqlite3.connect(path).execute('SELECT git_repo_root, COUNT(*) FROM sessions GROUP BY 1 ORDER BY 1').fetchall())",
    );
    assert_eq!(counts, "[('/known', 70), ('/one', 350), ('/zero', 280)]");
}

/// No turn needs it: it is told that somebody is writing, and not kept waiting as a write would be.
#[test]
fn upkeep_of_the_indexes_waits_a_second_for_a_lock_and_not_its_patience() {
    let world = World::new();
    let db = world.open();
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    fill(&db, "s", 50);
    let mut holder = python_started(
        &world.path(),
        "c = sqlite3.connect(path, isolation_level=None)\nc.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\ntime.sleep(600)",
    );
    let started = Instant::now();
    let merged = db.optimize_fts().expect("tells of it in the log");
    let rebuilt = db.rebuild_fts(AT_ONCE).expect("tells of it in the log");
    let vacuumed = db.vacuum();
    // Some locks, a second for each; the patience of a single write is twenty.
    let took = started.elapsed();
    holder.kill().expect("killed");
    holder.wait().expect("reaped");
    assert_eq!((merged, rebuilt), (0, 0));
    assert!(matches!(vacuumed, Err(Error::Busy { .. })), "{vacuumed:?}");
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert!(db.optimize_fts().expect("merges") > 0);
}
