//! A file's full-text indexes through damage, rebuilds and old layouts, beside other programs that write to it.

mod support;

use std::path::PathBuf;
use std::time::Duration;

use hermes_state::{
    Error, NewMessage, NewSession, OpenOptions, OptimizeOptions, OptimizePhase, SearchOptions, SessionDb, StepPace,
};

use support::{python_says, python_started};

const AT_ONCE: StepPace = StepPace { rows: 500, duty_factor: 0.0, min_pause: Duration::ZERO };

struct World {
    folder: tempfile::TempDir,
    cjk: bool,
}

impl World {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), cjk: false }
    }

    /// On a machine on which every program has the tokenizer `cjk_unicode61`.
    fn with_tokenizer() -> Self {
        Self { cjk: true, ..Self::new() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("state.db")
    }

    fn open(&self) -> SessionDb {
        OpenOptions::new().cjk(self.cjk).open(self.path()).unwrap()
    }

    /// With a session `s` of so many messages.
    fn filled(&self, messages: usize) -> SessionDb {
        let db = self.open();
        db.create_session(NewSession::new("s", "cli")).unwrap();
        say(&db, "marker", messages);
        db
    }

    /// Runs SQL while no handle is open.
    fn change(&self, sql: &str) {
        rusqlite::Connection::open(self.path()).unwrap().execute_batch(sql).unwrap();
    }

    /// The file is sound and both indexes hold just what the messages say, as another SQLite sees it.
    fn check(&self) {
        let checked = python_says(
            &self.path(),
            "c = sqlite3.connect(path, isolation_level=None)\n\
             for t in ('messages_fts', 'messages_fts_trigram'):\n\
             \x20   c.execute(f\"INSERT INTO {t}({t}, rank) VALUES ('integrity-check', 1)\")\n\
             \x20   s = 'messages' if t == 'messages_fts' else t + '_src'\n\
             \x20   assert c.execute(f'SELECT count(*) FROM {t}_docsize').fetchone() == c.execute(f'SELECT count(*) FROM {s}').fetchone(), t\n\
             print(c.execute('PRAGMA integrity_check').fetchone()[0])",
        );
        assert_eq!(checked, "ok");
    }

    fn markers(&self) -> String {
        python_says(
            &self.path(),
            "c = sqlite3.connect(path)\n\
             print(dict(c.execute(\"SELECT key, value FROM state_meta WHERE key LIKE 'fts%' AND key <> 'fts_storage_version' ORDER BY key\")))",
        )
    }
}

fn say(db: &SessionDb, word: &str, messages: usize) {
    let text = |n| NewMessage::new("user", format!("{word}{n}q and some more words of a message"));
    db.append_messages("s", (0..messages).map(text).collect()).unwrap();
}

/// The hits of a query, and whether the index answered.
fn found(db: &SessionDb, query: &str) -> (usize, bool) {
    let results = db.search_messages(query, &SearchOptions { limit: -1, ..SearchOptions::default() }).unwrap();
    (results.len(), !results.degraded)
}

/// Appends one message after the other through the triggers of the file, until a file `stop` is there.
const WRITER: &str = "
c = sqlite3.connect(path, isolation_level=None, timeout=60)
n = 0
while not os.path.exists(os.path.join(os.path.dirname(path), 'stop')):
    c.execute('INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, 1)', ('s', 'user', f'sibling{n}q'))
    if n % 7 == 3:
        c.execute('DELETE FROM messages WHERE id = (SELECT min(id) + 5 FROM messages)')
    if n % 7 == 5:
        c.execute(\"UPDATE messages SET content = 'changed' || content WHERE id = (SELECT max(id) / 2 FROM messages)\")
    n += 1
    if n == 1:
        print('begun', flush=True)
    time.sleep(0.003)
print(n)
";

const ZEROED: &str =
    "UPDATE messages_fts_data SET block = zeroblob(64); UPDATE messages_fts_trigram_data SET block = zeroblob(64)";

#[test]
fn an_index_is_rebuilt_while_another_program_writes_through_the_triggers() {
    let world = World::new();
    let db = world.filled(1500);
    let mut writer = python_started(&world.path(), WRITER);
    for _ in 0..3 {
        assert_eq!(db.rebuild_fts(StepPace { rows: 100, ..AT_ONCE }).unwrap(), 2);
        say(&db, "meanwhile", 10);
    }
    #[expect(clippy::disallowed_methods, reason = "a sign for the sibling, no store")]
    std::fs::write(world.folder.path().join("stop"), "").unwrap();
    assert!(writer.wait().unwrap().success());
    assert_eq!(db.fts_rebuild_status().unwrap(), None);
    world.check();
    assert_eq!(found(&db, "meanwhile9q"), (3, true));
    assert!(found(&db, "sibling1q").0 == 1 && !db.fts_optimize_available().unwrap());
    assert_eq!(world.markers(), "{}");
}

#[test]
fn two_processes_never_index_the_same_rows() {
    let world = World::new();
    let db = world.filled(2000);
    assert_eq!(db.demote_legacy_fts_to_trash().unwrap(), 2000);
    let status = db.fts_rebuild_status().unwrap().unwrap();
    assert_eq!((status.total, status.indexed, status.percent), (2000, 0, 0));
    // The sibling fills as older releases do: under the write lock, from the marker on.
    let mut sibling = python_started(
        &world.path(),
        "
c = sqlite3.connect(path, isolation_level=None, timeout=60)
steps = 0
while True:
    c.execute('BEGIN IMMEDIATE')
    m = dict(c.execute(\"SELECT key, CAST(value AS INTEGER) FROM state_meta WHERE key LIKE 'fts_rebuild%'\"))
    p, h = m.get('fts_rebuild_progress'), m.get('fts_rebuild_high_water')
    if p is None or p >= h: c.execute('ROLLBACK'); break
    u = min(p + 100, h)
    if u == h: c.execute('ROLLBACK'); break
    for t, s in (('messages_fts', 'messages'), ('messages_fts_trigram', 'messages_fts_trigram_src')):
        c.execute(f'INSERT INTO {t}(rowid, content, tool_name, tool_calls) SELECT id, content, tool_name, tool_calls FROM {s} WHERE id > ? AND id <= ?', (p, u))
    c.execute(\"UPDATE state_meta SET value = ? WHERE key = 'fts_rebuild_progress'\", (str(u),))
    c.execute('COMMIT')
    steps += 1
    if steps == 1: print('begun', flush=True)
    time.sleep(0.002)
",
    );
    while db.fts_rebuild_step(100).unwrap() {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(sibling.wait().unwrap().success());
    world.check();
    assert_eq!(found(&db, "marker1999q"), (1, true));
}

#[test]
fn steps_go_by_ids_and_the_one_that_reaches_the_end_clears_the_markers() {
    let world = World::new();
    let db = world.filled(40);
    db.demote_legacy_fts_to_trash().unwrap();
    say(&db, "later", 1);
    assert!(db.fts_rebuild_step(15).unwrap() && db.fts_rebuild_step(15).unwrap());
    let status = db.fts_rebuild_status().unwrap().unwrap();
    assert_eq!((status.total, status.indexed, status.percent), (40, 30, 75));
    assert_eq!(
        (found(&db, "marker5q"), found(&db, "marker35q"), found(&db, "later0q")),
        ((1, false), (1, false), (1, false))
    );
    assert!(!db.fts_rebuild_step(15).unwrap());
    assert_eq!((db.fts_rebuild_status().unwrap(), found(&db, "marker35q")), (None, (1, true)));
    world.check();
    // What was set aside is removed in steps as well.
    assert!(db.fts_optimize_available().unwrap());
    let mut phases = Vec::new();
    let options = OptimizeOptions { vacuum: true, pace: AT_ONCE };
    let rewritten = db.optimize_fts_storage(&options, &mut |progress| {
        phases.push(progress.phase);
        Ok(())
    });
    assert_eq!(rewritten.unwrap(), Some(true));
    // Eight tables, each emptied and dropped.
    assert_eq!(phases.iter().filter(|phase| **phase == OptimizePhase::Teardown).count(), 17);
    assert_eq!(phases[phases.len() - 2..], [OptimizePhase::Vacuum, OptimizePhase::Done]);
    assert!(!db.fts_optimize_available().unwrap());
    world.check();
}

#[test]
fn odd_markers_come_to_an_end() {
    let world = World::new();
    let db = world.open();
    db.create_session(NewSession::new("s", "cli")).unwrap();
    assert_eq!(db.demote_legacy_fts_to_trash().unwrap(), 0);
    assert!(db.fts_optimize_available().unwrap() && db.fts_rebuild_status().unwrap().is_none());
    assert!(!db.fts_rebuild_step(500).unwrap());
    assert_eq!(world.markers(), "{}");
    say(&db, "marker", 3);
    db.close().unwrap();
    world.change("INSERT INTO messages_fts(messages_fts) VALUES ('delete-all'); INSERT INTO messages_fts_trigram(messages_fts_trigram) VALUES ('delete-all'); INSERT INTO state_meta VALUES ('fts_rebuild_high_water', '3')");
    let db = world.open();
    assert_eq!(db.fts_rebuild_status().unwrap().unwrap().indexed, 0, "a missing marker counts as nothing done");
    assert!(!db.fts_rebuild_step(500).unwrap());
    world.check();
    db.set_meta("fts_rebuild_high_water", "many").unwrap();
    assert!(matches!(db.fts_rebuild_status(), Err(Error::Invalid(_))));
    assert!(matches!(db.search_messages("marker1q", &SearchOptions::default()), Err(Error::Invalid(_))));
}

#[test]
fn a_write_that_meets_a_damaged_index_is_stored_and_the_index_begun_anew() {
    for damage in [
        // Blocks that fail when they are read, and a structure that does.
        "UPDATE messages_fts_data SET block = x'00000000' WHERE id > 10; INSERT INTO messages_fts(messages_fts, rank) VALUES ('automerge', 2)",
        "UPDATE messages_fts_data SET block = x'ffffffffffffffffffffffffff' WHERE id = 10",
        "UPDATE messages_fts_trigram_data SET block = x'ffffffffffffffffffffffffff' WHERE id = 10",
    ] {
        let world = World::new();
        let db = world.filled(30);
        db.close().unwrap();
        world.change(damage);
        let db = world.open();
        for n in 0..40 {
            db.append_message("s", NewMessage::new("user", format!("tail{n}q"))).expect(damage);
        }
        assert_eq!((found(&db, "marker7q").0, found(&db, "tail39q").0), (1, 1), "{damage}");
        while db.fts_rebuild_step(500).unwrap() {}
        world.check();
        assert_eq!((found(&db, "marker7q"), found(&db, "tail39q")), ((1, true), (1, true)), "{damage}");
    }
}

#[test]
fn damage_is_mended_as_often_as_it_is_met() {
    let world = World::new();
    let db = world.filled(30);
    for round in 0..3 {
        python_says(
            &world.path(),
            "c = sqlite3.connect(path); c.execute(\"UPDATE messages_fts_data SET block = x'ffffffffffffffffffff' WHERE id = 10\"); c.commit()",
        );
        db.append_message("s", NewMessage::new("user", format!("round{round}q"))).unwrap();
        while db.fts_rebuild_step(500).unwrap() {}
        assert_eq!(found(&db, &format!("round{round}q")), (1, true));
    }
    world.check();
}

#[test]
fn an_index_destroyed_at_rest_answers_degraded_until_it_is_rebuilt() {
    let world = World::new();
    let db = world.filled(300);
    db.close().unwrap();
    world.change(ZEROED);
    let db = world.open();
    for n in 0..50 {
        say(&db, &format!("tail{n}x"), 1);
    }
    for query in ["tail7x0q", "tail49x0q", "marker7q"] {
        assert_eq!(found(&db, query), (1, false), "{query}");
    }
    assert!(db.search_indexes().unwrap().damaged);
    assert_eq!(db.rebuild_fts(AT_ONCE).unwrap(), 2);
    assert!(!db.search_indexes().unwrap().damaged);
    for query in ["tail7x0q", "tail49x0q", "marker7q"] {
        assert_eq!(found(&db, query), (1, true), "{query}");
    }
    assert_eq!(db.message_count(None).unwrap(), 350);
    world.check();
}

#[test]
fn a_conflict_of_a_write_s_own_making_stays_its_error() {
    let world = World::new();
    let db = world.filled(3);
    db.close().unwrap();
    world.change("CREATE TABLE once (word TEXT PRIMARY KEY); CREATE TRIGGER once AFTER INSERT ON messages BEGIN INSERT INTO once VALUES (new.role); END; INSERT INTO once VALUES ('user')");
    let db = world.open();
    let refused = db.append_message("s", NewMessage::new("user", "twice"));
    assert!(matches!(refused, Err(Error::Constraint { code: 1555, .. })), "{refused:?}");
    assert_eq!((db.message_count(None).unwrap(), world.markers().as_str()), (3, "{}"));
}

#[test]
fn damage_of_the_transcript_stays_an_error() {
    let world = World::new();
    let db = world.filled(2000);
    db.close().unwrap();
    // The page that all messages are found by is overwritten.
    python_says(
        &world.path(),
        "c = sqlite3.connect(path)\n\
         root, size = c.execute(\"SELECT rootpage FROM sqlite_master WHERE name = 'messages'\").fetchone()[0], c.execute('PRAGMA page_size').fetchone()[0]\n\
         c.execute('PRAGMA wal_checkpoint(TRUNCATE)'); c.close()\n\
         f = open(path, 'r+b'); f.seek((root - 1) * size); f.write(b'\\xff' * size); f.close()",
    );
    // The spool would keep it.
    let db = OpenOptions::new().spool(false).open(world.path());
    let refused = db.and_then(|db| db.append_message("s", NewMessage::new("user", "lost?")));
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
}

#[test]
fn an_index_for_chinese_is_filled_served_and_given_up_when_others_mark_it() {
    let world = World::new();
    let db = world.filled(3);
    db.append_message("s", NewMessage::new("user", "下周去杭州西湖拍照")).unwrap();
    db.close().unwrap();
    let world = World { cjk: true, ..world };
    let db = world.open();
    let served = |db: &SessionDb| (db.search_indexes().unwrap().cjk, db.describe_search_path("西湖").unwrap());
    assert_eq!(served(&db), (false, "like_scan"));
    assert_eq!(db.fts_cjk_rebuild_status().unwrap().unwrap().total, 4);
    assert!(db.fts_optimize_available().unwrap());
    let other = world.open();
    assert!(!db.fts_cjk_rebuild_step(500).unwrap());
    for db in [&db, &other] {
        assert_eq!(served(db), (true, "fts_cjk"), "every handle notices");
        assert_eq!(found(db, "西湖"), (1, true));
    }
    assert_eq!(db.optimize_fts().unwrap(), 3);
    db.set_meta("fts_cjk_stale", "1").unwrap();
    assert_eq!(served(&other), (false, "like_scan"));
    assert_eq!(found(&other, "西湖"), (1, true));
    assert!(!db.fts_cjk_rebuild_step(500).unwrap());
    assert_eq!((db.rebuild_fts(AT_ONCE).unwrap(), world.markers().as_str()), (2, "{'fts_cjk_stale': '1'}"));
    db.optimize_fts_storage(&OptimizeOptions { vacuum: false, pace: AT_ONCE }, &mut |_| Ok(())).unwrap();
    assert_eq!((served(&other), world.markers().as_str()), ((true, "fts_cjk"), "{}"));
    assert_eq!(db.rebuild_fts(AT_ONCE).unwrap(), 3);
    assert_eq!(served(&db), (true, "fts_cjk"));
    other.append_message("s", NewMessage::new("user", "西湖边")).unwrap();
    assert_eq!(found(&db, "西湖"), (2, true));
}

#[test]
fn a_program_without_the_tokenizer_writes_again_once_a_store_without_it_was_opened() {
    let world = World::with_tokenizer();
    world.filled(2).close().unwrap();
    let insert = "
c = sqlite3.connect(path, isolation_level=None)
try:
    c.execute('INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, 1)', ('s', 'user', '杭州西湖'))
    print('stored')
except sqlite3.OperationalError as e: print(e)
";
    assert_eq!(python_says(&world.path(), insert), "no such tokenizer: cjk_unicode61");
    let without = World { cjk: false, folder: world.folder };
    let db = without.open();
    assert_eq!(without.markers(), "{'fts_cjk_stale': '1'}");
    assert_eq!(python_says(&without.path(), insert), "stored");
    // Ours can read the table, which alone makes it neither kept nor served.
    assert!(db.fts_table_exists("messages_fts_cjk").unwrap() && !db.search_indexes().unwrap().cjk);
    assert_eq!(
        (found(&db, "西湖"), db.optimize_fts().unwrap(), db.fts_optimize_available().unwrap()),
        ((1, true), 2, false)
    );
}
