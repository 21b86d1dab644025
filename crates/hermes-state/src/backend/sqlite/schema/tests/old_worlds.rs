//! Files that older releases wrote: opened, kept, searched, and written on by a sibling in Python.

use super::*;

const VERSIONS: [i64; 7] = [2, 6, 11, 16, 20, 22, 23];

/// Writes messages as the older releases do, through the triggers, and checks the indexes with its own SQLite.
const SIBLING: &str = r#"
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("PRAGMA foreign_keys=ON")
def found(table, query):
    return conn.execute(f"SELECT count(*) FROM {table} WHERE {table} MATCH ?", (query,)).fetchone()[0]
def check():
    for table in ("messages_fts", "messages_fts_trigram"):
        conn.execute(f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)")
    assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
legacy = "tool_name" not in conn.execute("SELECT sql FROM sqlite_master WHERE name = 'messages_fts'").fetchone()[0]
conn.execute("BEGIN IMMEDIATE")
conn.execute("INSERT INTO sessions (id, source, started_at) VALUES ('sibling', 'cli', 1.0)")
add = "INSERT INTO messages (session_id, role, content, tool_name, tool_calls, timestamp) VALUES ('sibling', ?, ?, ?, ?, 1.0)"
first = conn.execute(add, ("user", "the zebrafish habitat", None, None)).lastrowid
second = conn.execute(add, ("tool", "quagga output", "shellcat", None)).lastrowid
third = conn.execute(add, ("assistant", None, None, '[{"name": "okapifinder"}]')).lastrowid
conn.execute("COMMIT")
check()
assert found("messages_fts", "zebrafish") == 1 and found("messages_fts", "quagga") == 1
assert found("messages_fts_trigram", "ebrafis") == 1 and found("messages_fts_trigram", "kapifin") == 1
assert found("messages_fts_trigram", "quagga") == (1 if legacy else 0)
conn.execute("UPDATE messages SET content = 'the pangolin habitat' WHERE id = ?", (first,))
conn.execute("UPDATE messages SET active = 0 WHERE id = ?", (first,))
check()
assert found("messages_fts", "zebrafish") == 0 and found("messages_fts_trigram", "ebrafis") == 0
assert found("messages_fts", "pangolin") == 1 and found("messages_fts_trigram", "angoli") == 1
conn.execute("DELETE FROM messages WHERE id IN (?, ?)", (second, third))
check()
assert found("messages_fts", "quagga") == 0 and found("messages_fts_trigram", "kapifin") == 0
old = conn.execute("SELECT id FROM messages WHERE session_id <> 'sibling' AND role = 'tool' ORDER BY id LIMIT 1").fetchone()[0]
conn.execute("DELETE FROM messages WHERE id = ?", (old,))
check()
try:
    conn.execute(add.replace("'sibling'", "'nobody'"), ("user", "x", None, None))
    raise SystemExit("a message of no session was taken")
except sqlite3.IntegrityError:
    print("ok")
"#;

fn counts(conn: &Connection) -> Vec<i64> {
    ["sessions", "messages"].map(|table| one(conn, &format!("SELECT count(*) FROM {table}"))).into()
}

/// All rows as they were: the old columns of the old tables. The migrations have a right to `model_config` alone.
fn old_rows(conn: &Connection, columns: &[(String, String)]) -> Vec<String> {
    columns
        .iter()
        .flat_map(|(table, columns)| rows(conn, &format!("SELECT {columns} FROM {table} ORDER BY rowid")))
        .collect()
}

#[test]
fn each_older_file_keeps_everything_and_is_up_to_date() {
    for version in VERSIONS {
        let file = File::fixture(version);
        let conn = file.open();
        let before = counts(&conn);
        let columns: Vec<(String, String)> = ["sessions", "messages"]
            .into_iter()
            .map(|table| {
                let names = catalog::columns(&conn, table).unwrap().into_iter().map(|column| column.name);
                (table.into(), names.filter(|name| name != "model_config").collect::<Vec<_>>().join(", "))
            })
            .collect();
        let old = old_rows(&conn, &columns);
        let indexed = tokens(&conn, "messages_fts");
        assert!(needs_work(&conn), "version {version}");

        let (features, notes) = adopt_with(&conn, &Context::default());
        assert_eq!(features, Features { fts: true, trigram: true, cjk: false, legacy_fts: version < 23 });
        assert_eq!(notes.contains(&Note::Migrated { from: version }), version < 23);
        assert_eq!(notes.contains(&Note::IndexRebuilt("messages_fts_trigram")), version < 11, "{notes:?}");
        assert_eq!(counts(&conn), before);
        assert_eq!(old_rows(&conn, &columns), old);
        assert_eq!(tokens(&conn, "messages_fts"), indexed, "an index that was kept is not touched");
        assert_eq!(rows(&conn, "SELECT * FROM schema_version"), ["Integer(23)"]);
        let meta = |key: &str| rows(&conn, &format!("SELECT value FROM state_meta WHERE key = '{key}'"));
        assert_eq!(meta("fts_optimize_available").len(), usize::from(version < 23));
        assert_eq!(meta("fts_storage_version").len(), usize::from(version == 23));
        assert_eq!(meta("fixture_note").len(), usize::from(version >= 11));
        check(&conn);
    }
}

#[test]
fn each_older_file_is_searched() {
    for version in VERSIONS {
        let conn = File::fixture(version).open();
        adopt_all(&conn);
        let text: String =
            one(&conn, "SELECT content FROM messages WHERE role = 'user' AND content IS NOT NULL LIMIT 1");
        let word = text.split(' ').find(|word| word.len() > 4).unwrap();
        let holding: i64 = one(&conn, &format!("SELECT count(*) FROM messages WHERE instr(content, '{word}')"));
        assert!(found(&conn, "messages_fts", word) >= 1, "version {version}, {word}");
        assert!(found(&conn, "messages_fts_trigram", &word[1..]) >= 1, "version {version}, {word}");
        assert!(holding >= 1);
    }
}

#[test]
fn the_trigram_index_of_the_oldest_files_holds_all_text_joined() {
    for version in [2, 6] {
        let conn = File::fixture(version).open();
        adopt_all(&conn);
        assert_eq!(
            rows(&conn, "SELECT rowid, content FROM messages_fts_trigram ORDER BY rowid"),
            rows(
                &conn,
                "SELECT id, ifnull(content, '') || ' ' || ifnull(tool_name, '') || ' ' || ifnull(tool_calls, '')
                 FROM messages ORDER BY id"
            )
        );
    }
}

#[test]
fn a_sibling_in_python_writes_on_and_everyone_finds_it() {
    for version in VERSIONS {
        let file = File::fixture(version);
        let conn = file.open();
        adopt_all(&conn);
        assert_eq!(file.python(SIBLING), "ok", "version {version}");
        assert_eq!(found(&conn, "messages_fts", "pangolin"), 1);
        assert!(!needs_work(&conn));
        check(&conn);
    }
    let file = File::empty();
    adopt_all(&file.open());
    let with_a_tool = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(\"INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 1)\"); c.execute(\"INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'tool', 'x', 1)\"); c.commit()";
    file.python(with_a_tool);
    assert_eq!(file.python(SIBLING), "ok");
}

/// An attempt that fails anywhere fails as a whole, says so, and leaves the file as it was.
#[test]
fn an_open_that_fails_halfway_leaves_no_trace() {
    for version in [2, 20, 23] {
        let file = File::fixture(version);
        let conn = file.open();
        if version == 23 {
            run(
                &conn,
                "DROP TABLE messages_fts; DROP TRIGGER messages_fts_trigram_insert; DROP INDEX idx_sessions_source; VACUUM",
            );
        }
        let before = dump(&conn);
        let pages: i64 = one(&conn, "PRAGMA page_count");
        let mut failures = 0;
        for room in 0.. {
            run(&conn, &format!("PRAGMA max_page_count = {}", pages + room));
            run(&conn, "BEGIN IMMEDIATE");
            // The indexes write their last pages in the commit.
            match adopt(&conn, &Context::default()).and_then(|_| conn.execute_batch("COMMIT")) {
                Ok(()) => break,
                Err(error) => assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DiskFull), "{error}"),
            }
            failures += 1;
            // SQLite may have rolled back by itself.
            if !conn.is_autocommit() {
                run(&conn, "ROLLBACK");
            }
            assert_eq!(dump(&conn), before, "{room} pages of room");
        }
        assert!(failures > 0, "version {version}");
        assert!(!needs_work(&conn));
        check(&conn);
    }
}

const DIES_ON: &str = "HERMES_STATE_TEST_DIES_ON";

/// Not a guarantee: the child of the next test, which dies when it is told where.
#[test]
fn dying_child() {
    let Some(path) = std::env::var_os(DIES_ON) else { return };
    let conn = Connection::open(path).unwrap();
    // A tiny cache, so that much of the unfinished work is in the journal when death comes.
    run(&conn, "PRAGMA cache_size = 5; PRAGMA foreign_keys = ON; BEGIN IMMEDIATE");
    adopt(&conn, &Context::default()).unwrap();
    std::process::abort();
}

#[test]
fn a_process_that_dies_before_the_commit_has_done_nothing() {
    for version in [6, 20] {
        let file = File::fixture(version);
        let before = dump(&file.open());
        let name = format!("{}::dying_child", module_path!().split_once("::").unwrap().1);
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name])
            .env(DIES_ON, &file.path)
            .stderr(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(!status.success(), "the child was to die");
        assert!(exists(&file.path.with_extension("db-wal")), "the child was to write");
        let conn = file.open();
        assert_eq!(dump(&conn), before);
        adopt_all(&conn);
        check(&conn);
    }
}
