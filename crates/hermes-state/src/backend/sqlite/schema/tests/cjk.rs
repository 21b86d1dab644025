//! The optional cjk index.

use super::*;
use crate::search::cjk_tokenizer::register;

const WITH: Context = Context { sessions_json: None, cjk: true, alone: false };
const WITHOUT: Context = Context { sessions_json: None, cjk: false, alone: false };

/// A store with two messages on a host with the tokenizer, not adopted there yet.
fn store() -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    register(&conn).unwrap();
    adopt_with(&conn, &WITHOUT);
    run(&conn, "INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 1)");
    conn
}

fn say(conn: &Connection, role: &str, content: &str) {
    let sql = "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', ?1, ?2, 1)";
    conn.execute(sql, [role, content]).unwrap();
}

fn meta(conn: &Connection) -> Vec<String> {
    rows(conn, "SELECT key || '=' || value FROM state_meta WHERE key LIKE 'fts_cjk%' ORDER BY key")
}

fn text(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| format!("Text({line:?})")).collect()
}

fn triggers(conn: &Connection) -> usize {
    names(conn, "trigger").iter().filter(|name| name.starts_with("messages_fts_cjk")).count()
}

fn check_cjk(conn: &Connection) {
    run(conn, "INSERT INTO messages_fts_cjk(messages_fts_cjk, rank) VALUES ('integrity-check', 1)");
}

#[test]
fn without_the_tokenizer_nothing_is_made() {
    let conn = store();
    assert_eq!(rows(&conn, "SELECT name FROM sqlite_master WHERE name LIKE '%cjk%'"), [""; 0]);
    assert!(!matches!(inspect(&conn, &WITH).unwrap(), Inspection::UpToDate(_)));
}

#[test]
fn on_a_file_without_text_the_new_index_serves_at_once() {
    let conn = store();
    say(&conn, "tool", "only a tool");
    run(
        &conn,
        "INSERT INTO state_meta VALUES ('fts_cjk_stale', '1'), ('fts_cjk_rebuild_high_water', '9'), ('fts_cjk_rebuild_progress', '2')",
    );
    assert!(adopt_with(&conn, &WITH).0.cjk);
    assert_eq!(meta(&conn), text(&[]));
    say(&conn, "user", "hello");
    say(&conn, "tool", "bye");
    assert_eq!((found(&conn, "messages_fts_cjk", "hello"), found(&conn, "messages_fts_cjk", "bye")), (1, 0));
    run(&conn, "UPDATE messages SET role = 'user' WHERE content = 'bye'; DELETE FROM messages WHERE content = 'hello'");
    assert_eq!((found(&conn, "messages_fts_cjk", "hello"), found(&conn, "messages_fts_cjk", "bye")), (0, 1));
}

#[test]
fn on_a_file_with_text_the_new_index_waits_for_its_backfill() {
    let conn = store();
    say(&conn, "user", "old");
    say(&conn, "tool", "older");
    assert!(!adopt_with(&conn, &WITH).0.cjk);
    assert_eq!(meta(&conn), text(&["fts_cjk_rebuild_high_water=2", "fts_cjk_rebuild_progress=0"]));
    say(&conn, "user", "new");
    run(&conn, "UPDATE messages SET content = 'still old' WHERE id = 1");
    assert_eq!((found(&conn, "messages_fts_cjk", "old"), found(&conn, "messages_fts_cjk", "new")), (0, 1));
    // The other backfill's markers are none of its business, nor the other way round.
    assert_eq!(found(&conn, "messages_fts", "still"), 1);
    run(
        &conn,
        "INSERT INTO messages_fts_cjk(rowid, content, tool_name, tool_calls)
             SELECT id, content, tool_name, tool_calls FROM messages WHERE id = 1;
         DELETE FROM state_meta WHERE key LIKE 'fts_cjk_rebuild%'",
    );
    check_cjk(&conn);
    assert_eq!(
        inspect(&conn, &WITH).unwrap(),
        Inspection::UpToDate(Features { fts: true, trigram: true, cjk: true, legacy_fts: false })
    );
}

#[test]
fn an_open_without_the_tokenizer_takes_the_index_out_of_service() {
    let conn = store();
    adopt_with(&conn, &WITH);
    say(&conn, "user", "before");
    let (features, notes) = adopt_with(&conn, &WITHOUT);
    assert_eq!((features.cjk, notes), (false, vec![Note::CjkDetached]));
    assert_eq!(meta(&conn), text(&["fts_cjk_stale=1"]));
    assert_eq!(triggers(&conn), 0);
    say(&conn, "user", "between");
    // Back on a host with the tokenizer it has a gap: no triggers, no answers.
    assert!(!adopt_with(&conn, &WITH).0.cjk);
    assert_eq!((triggers(&conn), meta(&conn)), (0, text(&["fts_cjk_stale=1"])));
    // A table made anew is whole after its backfill.
    run(&conn, "DROP TABLE messages_fts_cjk");
    assert!(!adopt_with(&conn, &WITH).0.cjk);
    assert_eq!(
        (triggers(&conn), meta(&conn)),
        (3, text(&["fts_cjk_rebuild_high_water=2", "fts_cjk_rebuild_progress=0"]))
    );
}

#[test]
fn an_index_that_another_process_marks_serves_no_more_and_gets_no_triggers() {
    let conn = store();
    assert!(adopt_with(&conn, &WITH).0.cjk);
    run(&conn, "INSERT INTO state_meta VALUES ('fts_cjk_stale', '1')");
    assert!(!adopt_with(&conn, &WITH).0.cjk);
    run(&conn, "DROP VIEW messages_fts_cjk_src; DROP TRIGGER messages_fts_cjk_update");
    adopt_with(&conn, &WITH);
    assert_eq!((triggers(&conn), meta(&conn)), (2, text(&["fts_cjk_stale=1"])));
    assert!(names(&conn, "view").contains(&"messages_fts_cjk_src".to_owned()));
}

#[test]
fn one_live_trigger_is_enough_to_be_marked() {
    let conn = store();
    adopt_with(&conn, &WITH);
    run(&conn, "DROP TRIGGER messages_fts_cjk_insert; DROP TRIGGER messages_fts_cjk_update");
    adopt_with(&conn, &WITHOUT);
    assert_eq!((triggers(&conn), meta(&conn)), (0, text(&["fts_cjk_stale=1"])));
    assert_eq!(inspect(&conn, &WITHOUT).unwrap(), Inspection::UpToDate(features(&conn, &WITHOUT).unwrap()));
}

#[test]
fn missing_parts_of_an_index_that_is_whole_are_restored() {
    for drop in ["TRIGGER messages_fts_cjk_delete", "VIEW messages_fts_cjk_src"] {
        let conn = store();
        adopt_with(&conn, &WITH);
        run(&conn, &format!("DROP {drop}"));
        assert!(!matches!(inspect(&conn, &WITH).unwrap(), Inspection::UpToDate(_)));
        assert!(adopt_with(&conn, &WITH).0.cjk, "{drop}");
        assert_eq!(triggers(&conn), 3);
    }
}

#[test]
fn a_legacy_file_gets_no_cjk_index_but_is_rid_of_dead_triggers() {
    let file = File::fixture(22);
    let conn = file.open();
    register(&conn).unwrap();
    assert!(!adopt_with(&conn, &WITH).0.cjk);
    assert_eq!(triggers(&conn), 0);
    run(&conn, "CREATE TRIGGER messages_fts_cjk_insert AFTER INSERT ON messages BEGIN SELECT no_such_function(); END");
    assert_eq!(adopt_with(&conn, &WITHOUT).1, [Note::CjkDetached]);
    run(
        &conn,
        "INSERT INTO messages (session_id, role, content, timestamp) SELECT id, 'user', 'x', 1 FROM sessions LIMIT 1",
    );
}

#[test]
fn a_tokenizer_that_does_not_work_keeps_no_file_shut() {
    let conn = fresh();
    run(&conn, "DROP INDEX idx_sessions_started; BEGIN IMMEDIATE");
    let Adoption::Done { features, notes } = adopt(&conn, &WITH).unwrap() else { panic!() };
    run(&conn, "COMMIT");
    assert!(matches!(&notes[..], [Note::CjkUnavailable(error)] if error.contains("no such tokenizer")), "{notes:?}");
    assert_eq!(features, Features { fts: true, trigram: true, cjk: false, legacy_fts: false });
    assert_eq!(rows(&conn, "SELECT name FROM sqlite_master WHERE name LIKE '%cjk%'"), [""; 0]);
    assert!(!needs_work(&conn), "the rest was done");
}
