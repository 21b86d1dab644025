//! Searching files whose full-text index is of an older release, unfinished, damaged or missing.

use std::path::{Path, PathBuf};

use hermes_state::{NewMessage, NewSession, SearchHit, SearchOptions, SessionDb};

struct World {
    folder: tempfile::TempDir,
    db: SessionDb,
}

impl World {
    /// A store with one session `s` whose user said these texts.
    fn saying(texts: &[&str]) -> Self {
        let world = Self::new();
        for text in texts {
            world.say("s", "user", text);
        }
        world
    }

    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let db = SessionDb::open(folder.path().join("state.db")).unwrap();
        db.create_session(NewSession::new("s", "cli").model("large-1")).unwrap();
        Self { folder, db }
    }

    fn say(&self, session: &str, role: &str, text: &str) -> i64 {
        self.db.append_message(session, NewMessage::new(role, text)).unwrap().stored().expect("stored")
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("state.db")
    }

    /// Changes the file while no handle is open, as another program would, and opens it again.
    fn behind_its_back(&mut self, sql: &str) {
        self.change(sql);
        self.db = SessionDb::open(self.path()).unwrap();
    }

    fn change(&mut self, sql: &str) {
        self.db.close().unwrap();
        rusqlite::Connection::open(self.path()).unwrap().execute_batch(sql).unwrap();
    }

    fn ids(&self, query: &str) -> Vec<i64> {
        self.ids_with(query, &SearchOptions::default())
    }

    fn ids_with(&self, query: &str, options: &SearchOptions) -> Vec<i64> {
        ids(&self.db.search_messages(query, options).unwrap())
    }
}

fn ids(hits: &[SearchHit]) -> Vec<i64> {
    hits.iter().map(|hit| hit.id).collect()
}

fn page(limit: i64, offset: i64) -> SearchOptions {
    SearchOptions { limit, offset, ..SearchOptions::default() }
}

/// The layout of releases before schema version 23: one column, own text, tool rows among the trigrams.
fn legacy_layout() -> String {
    let mut sql = "DROP VIEW messages_fts_trigram_src; UPDATE schema_version SET version = 22;".to_owned();
    let text = |row: &str| {
        let columns = ["content", "tool_name", "tool_calls"];
        columns.map(|column| format!("COALESCE({row}{column}, '')")).join(" || ' ' || ")
    };
    for (table, tokenize) in [("messages_fts", ""), ("messages_fts_trigram", ", tokenize='trigram'")] {
        let insert = format!("INSERT INTO {table}(rowid, content)");
        let add = format!("{insert} VALUES (new.id, {})", text("new."));
        let remove = format!("DELETE FROM {table} WHERE rowid = old.id");
        sql += &format!(
            "DROP TABLE {table}; CREATE VIRTUAL TABLE {table} USING fts5(content{tokenize});
             DROP TRIGGER {table}_insert; DROP TRIGGER {table}_delete; DROP TRIGGER {table}_update;
             CREATE TRIGGER {table}_insert AFTER INSERT ON messages BEGIN {add}; END;
             CREATE TRIGGER {table}_delete AFTER DELETE ON messages BEGIN {remove}; END;
             CREATE TRIGGER {table}_update AFTER UPDATE ON messages BEGIN {remove}; {add}; END;
             {insert} SELECT id, {} FROM messages;",
            text(""),
        );
    }
    sql
}

#[test]
fn files_of_older_releases_are_searched() {
    let mut world = World::saying(&["run tools/build.sh heron", "下周去杭州西湖拍照"]);
    world.change(&legacy_layout());
    let looking = SessionDb::open_read_only(world.path()).unwrap();
    for (query, id) in [("heron", 1), ("tools/build.sh", 1), ("杭州西湖", 2), ("eron", 1), ("西湖", 2)] {
        let results = looking.search_messages(query, &SearchOptions::default()).unwrap();
        assert_eq!((ids(&results), results.degraded), (vec![id], false), "{query}");
    }
    let hits = looking.search_messages("heron", &SearchOptions::default()).unwrap();
    assert!(hits[0].snippet.as_deref().unwrap().contains(">>>heron<<<"));
}

#[test]
fn files_that_do_not_know_rewinding_are_searched() {
    let mut world = World::saying(&["heron", "下周去杭州西湖拍照"]);
    world.change(
        "DROP INDEX idx_messages_session_active; DROP INDEX idx_messages_active_null;
         ALTER TABLE messages DROP COLUMN active; ALTER TABLE messages DROP COLUMN compacted;
         ALTER TABLE messages DROP COLUMN api_content;",
    );
    let looking = SessionDb::open_read_only(world.path()).unwrap();
    for (query, id) in [("heron", 1), ("西湖", 2)] {
        assert_eq!(ids(&looking.search_messages(query, &SearchOptions::default()).unwrap()), [id], "{query}");
    }
    assert_eq!(looking.conversation("s", &Default::default()).unwrap().len(), 2);
}

/// Rows 3 and 4 are not in the indexes yet.
const PENDING: &str = "
    INSERT INTO messages_fts(messages_fts, rowid, content) SELECT 'delete', id, content FROM messages WHERE id IN (3, 4);
    INSERT INTO state_meta VALUES ('fts_rebuild_high_water', '4'), ('fts_rebuild_progress', '2');";

#[test]
fn rows_that_a_rebuild_has_not_reached_follow_those_it_has() {
    let mut world = World::saying(&["lamp a", "lamp b", "lamp c heron", "lamp d", "lamp e herons"]);
    world.behind_its_back(PENDING);
    assert_eq!(world.ids("lamp"), [1, 2, 5, 4, 3]);
    let pages: Vec<_> = (0..4).map(|number| world.ids_with("lamp", &page(2, number * 2))).collect();
    assert_eq!(pages, [vec![1, 2], vec![5, 4], vec![3], vec![]], "each row once");
    assert_eq!(world.ids("lamp d"), [4]);
    assert_eq!(world.ids("heron"), [3], "what is found there is found");
    assert_eq!(world.ids("d OR c"), [4, 3]);
    assert!(world.ids("lamp NOT lamp").is_empty());
    let gap = world.db.search_unindexed_gap("lamp", &page(1, 0)).unwrap();
    assert_eq!(ids(&gap), [4]);
}

#[test]
fn rows_that_a_rebuild_has_not_reached_match_as_the_index_would() {
    let texts = ["concat", "a cat", "word99 word9", "word99 lamp", "Äpfel und-Birnen", "cats"];
    let queries =
        ["cat", "cat*", "lamp NOT word9", "word99 NOT word9", "apfel", "\"und birnen\"", "birnen und", "äpfel OR cats"];
    let sorted = |world: &World, query: &str| {
        let mut ids = world.ids(query);
        ids.sort_unstable();
        ids
    };
    let mut world = World::saying(&texts);
    let right: Vec<_> = queries.iter().map(|query| sorted(&world, query)).collect();
    assert_eq!(right[0], [2]);
    world.behind_its_back(
        "INSERT INTO messages_fts(messages_fts) VALUES ('delete-all');
         INSERT INTO state_meta VALUES ('fts_rebuild_high_water', '6'), ('fts_rebuild_progress', '0');",
    );
    let pending: Vec<_> = queries.iter().map(|query| sorted(&world, query)).collect();
    assert_eq!(pending, right, "while nothing is indexed yet");
    assert_eq!(world.ids("oncat"), [1], "parts of words are found where no word is");
    world.change("DELETE FROM state_meta WHERE key LIKE 'fts_rebuild%'; DROP TABLE messages_fts");
    world.db = SessionDb::open_read_only(world.path()).unwrap();
    let scanned: Vec<_> = queries.iter().map(|query| sorted(&world, query)).collect();
    assert_eq!(scanned, right, "without an index");
}

fn zero_index(path: &Path, table: &str) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.execute(&format!("UPDATE {table}_data SET block = zeroblob(64)"), []).unwrap();
}

#[test]
fn a_damaged_index_is_replaced_by_a_scan() {
    let world = World::saying(&["red heron", "red lamp", "下周去杭州西湖拍照"]);
    world.db.close().unwrap();
    zero_index(&world.path(), "messages_fts");
    zero_index(&world.path(), "messages_fts_trigram");
    let looking = SessionDb::open_read_only(world.path()).unwrap();
    for (query, found) in [("red NOT lamp", vec![1]), ("red", vec![2, 1]), ("杭州西湖", vec![3]), ("red;", vec![])]
    {
        let results = looking.search_messages(query, &SearchOptions::default()).unwrap();
        assert_eq!((ids(&results), results.degraded), (found, true), "{query}");
    }
    let hits = looking.search_messages("heron", &SearchOptions::default()).unwrap();
    assert_eq!(hits[0].snippet.as_deref(), Some("red heron"));
}

#[test]
fn an_index_whose_pages_are_damaged_is_replaced_by_a_scan() {
    let mut world = World::saying(&["red heron", "red lamp"]);
    world.change("UPDATE messages_fts_data SET block = zeroblob(64) WHERE id > 10");
    let looking = SessionDb::open_read_only(world.path()).unwrap();
    for query in ["heron", "heron;", "red heron"] {
        let results = looking.search_messages(query, &SearchOptions::default()).unwrap();
        assert_eq!((ids(&results), results.degraded), (if query.ends_with(';') { vec![] } else { vec![1] }, true));
    }
}

#[test]
fn a_missing_index_is_replaced_by_a_scan() {
    let mut world = World::saying(&["red heron", "red lamp"]);
    world.change("DROP TABLE messages_fts");
    let looking = SessionDb::open_read_only(world.path()).unwrap();
    let results = looking.search_messages("red NOT lamp", &SearchOptions::default()).unwrap();
    assert_eq!((ids(&results), results.degraded), (vec![1], true));
}
