//! The full-text indexes: made, kept exactly as older releases keep them, and mended.

use super::*;

/// Writes of every kind that a trigger can see, beside a backfill that has passed id 40 of 60.
const LIFE: &str = "
    INSERT INTO sessions (id, source, started_at) VALUES ('life', 'cli', 1);
    INSERT INTO messages (id, session_id, role, content, tool_name, tool_calls, timestamp) VALUES
        (1001, 'life', 'user', 'one two', NULL, NULL, 1), (1002, 'life', 'tool', 'three', 'shell', NULL, 1),
        (1003, 'life', 'assistant', NULL, NULL, '[four]', 1), (1004, 'life', 'user', '', '', '', 1),
        (1005, 'life', 'user', 'five', NULL, NULL, 1), (1006, 'life', 'tool', 'six', NULL, NULL, 1),
        (1008, 'life', 'user', 'seven', NULL, NULL, 1), (1009, 'life', 'user', NULL, NULL, NULL, 1);
    UPDATE messages SET active = 0, compacted = 1, timestamp = 2 WHERE session_id = 'life';
    UPDATE messages SET content = 'uno' WHERE id = 1001;
    UPDATE messages SET tool_name = NULL WHERE id = 1002;
    UPDATE messages SET tool_calls = '[vier]' WHERE id = 1003;
    UPDATE messages SET content = NULL WHERE id = 1004;
    UPDATE messages SET role = 'tool' WHERE id = 1005;
    UPDATE messages SET role = 'user' WHERE id = 1006;
    UPDATE messages SET role = 'system', content = 'fuenf' WHERE id = 1005;
    UPDATE messages SET id = 1007 WHERE id = 1006;
    UPDATE messages SET content = NULL WHERE id = 1008;
    UPDATE messages SET content = 'nine' WHERE id = 1009;
    DELETE FROM messages WHERE id IN (1001, 1002);";
const BACKFILL: &str = "
    INSERT OR REPLACE INTO state_meta VALUES ('fts_rebuild_high_water', '60'), ('fts_rebuild_progress', '40');";
const BELOW: &str = "
    DELETE FROM messages WHERE id IN (39, 40, 41, 42, 59, 60, 61, 62);
    INSERT INTO messages (id, session_id, role, content, timestamp) SELECT value, 'life', 'user', 'reborn ' || value, 3
        FROM json_each('[39, 40, 41, 42, 59, 60, 61, 62]');
    UPDATE messages SET content = 'changed' WHERE id BETWEEN 36 AND 70 AND id % 2;";

fn drop_triggers(conn: &Connection) {
    names(conn, "trigger").iter().for_each(|trigger| run(conn, &format!("DROP TRIGGER {trigger}")));
}

/// Our triggers and those of the release that wrote the file leave the same index behind.
#[test]
fn our_triggers_mean_what_theirs_mean() {
    for version in [6, 11, 22, 23] {
        let (theirs, ours) = (File::fixture(version).open(), File::fixture(version).open());
        drop_triggers(&ours);
        let rebuilt = adopt_all(&ours);
        assert!(rebuilt.contains(&Note::IndexRebuilt("messages_fts")), "{rebuilt:?}");
        adopt_all(&theirs);
        for step in [LIFE, BACKFILL, BELOW] {
            run(&theirs, step);
            run(&ours, step);
            for table in ["messages_fts", "messages_fts_trigram"] {
                assert!(tokens(&ours, table) == tokens(&theirs, table), "version {version}, {table}, after {step}");
            }
        }
    }
}

#[test]
fn a_write_while_a_backfill_runs_leaves_alone_what_is_not_indexed_yet() {
    let conn = fresh();
    run(&conn, BACKFILL);
    run(&conn, "INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 1)");
    for id in [40, 41, 60, 61] {
        run(
            &conn,
            &format!(
                "INSERT INTO messages (id, session_id, role, content, timestamp) VALUES ({id}, 's', 'user', 'word{id}', 1)"
            ),
        );
        assert_eq!(found(&conn, "messages_fts", &format!("word{id}")), i64::from(![41, 60].contains(&id)), "{id}");
        assert_eq!(
            found(&conn, "messages_fts_trigram", &format!("ord{id}")),
            i64::from(![41, 60].contains(&id)),
            "{id}"
        );
    }
    assert!(!needs_work(&conn), "a running backfill is not an open's work");
    run(&conn, "DELETE FROM state_meta WHERE key = 'fts_storage_version'");
    assert!(!needs_work(&conn), "and its layout is not final");
}

#[test]
fn each_missing_trigger_is_restored_and_its_index_filled_anew() {
    for version in [6, 22, 23] {
        let base = File::fixture(version).open();
        adopt_all(&base);
        for trigger in names(&base, "trigger") {
            let conn = File::fixture(version).open();
            adopt_all(&conn);
            run(&conn, &format!("DROP TRIGGER {trigger}"));
            run(
                &conn,
                "UPDATE messages SET content = 'xylophone' WHERE id = 5;
                 INSERT INTO messages (session_id, role, content, timestamp) SELECT id, 'user', 'glockenspiel', 1 FROM sessions LIMIT 1;
                 DELETE FROM messages WHERE id = 9",
            );
            assert!(needs_work(&conn), "{trigger}");
            let index = if trigger.contains("trigram") { "messages_fts_trigram" } else { "messages_fts" };
            let gap = Features {
                fts: index != "messages_fts",
                trigram: index == "messages_fts",
                cjk: false,
                legacy_fts: version < 23,
            };
            assert_eq!(features(&conn, &Context::default()).unwrap(), gap, "an index with gaps is not offered");
            assert_eq!(adopt_all(&conn), [Note::IndexRebuilt(index)]);
            assert_eq!(found(&conn, index, "glockenspiel"), 1, "{trigger}");
            assert_eq!(
                found(&conn, index, "xylophone"),
                i64::from(
                    one::<String>(&conn, "SELECT role FROM messages WHERE id = 5") != "tool"
                        || index == "messages_fts"
                        || version < 23
                )
            );
            check(&conn);
            assert_eq!(names(&conn, "trigger"), names(&base, "trigger"));
        }
    }
}

#[test]
fn a_missing_table_or_view_is_made_and_filled() {
    for drop in [
        "DROP TABLE messages_fts",
        "DROP TABLE messages_fts_trigram",
        "DROP VIEW messages_fts_trigram_src",
        "DROP TABLE messages_fts; DROP TABLE messages_fts_trigram; DROP VIEW messages_fts_trigram_src",
    ] {
        let conn = File::fixture(23).open();
        adopt_all(&conn);
        let before = ["messages_fts", "messages_fts_trigram"].map(|table| tokens(&conn, table));
        run(&conn, drop);
        assert!(needs_work(&conn), "{drop}");
        adopt_all(&conn);
        check(&conn);
        assert!(before == ["messages_fts", "messages_fts_trigram"].map(|table| tokens(&conn, table)), "{drop}");
    }
}

#[test]
fn a_rebuild_during_a_backfill_rebuilds_both_and_ends_it() {
    for trigger in ["messages_fts_insert", "messages_fts_trigram_delete"] {
        let conn = File::fixture(23).open();
        adopt_all(&conn);
        // As the opt-in conversion leaves a file: both emptied, the markers set.
        run(&conn, "DELETE FROM state_meta WHERE key = 'fts_storage_version'");
        for table in ["messages_fts", "messages_fts_trigram"] {
            run(&conn, &format!("INSERT INTO {table}({table}) VALUES ('delete-all')"));
        }
        run(&conn, "INSERT INTO state_meta SELECT 'fts_rebuild_high_water', max(id) FROM messages");
        run(&conn, "INSERT INTO state_meta VALUES ('fts_rebuild_progress', '0')");
        assert!(!needs_work(&conn));
        run(&conn, &format!("DROP TRIGGER {trigger}"));
        assert_eq!(adopt_all(&conn).len(), 2);
        check(&conn);
        assert_eq!(rows(&conn, "SELECT key FROM state_meta WHERE key LIKE 'fts%'"), [r#"Text("fts_storage_version")"#]);
    }
}

#[test]
fn a_legacy_file_stays_legacy_even_without_its_base_table() {
    let conn = File::fixture(22).open();
    adopt_all(&conn);
    run(&conn, "DROP TABLE messages_fts");
    adopt_all(&conn);
    assert!(features(&conn, &Context::default()).unwrap().legacy_fts);
    run(
        &conn,
        "INSERT INTO messages (session_id, role, content, timestamp) SELECT id, 'tool', 'glockenspiel', 1 FROM sessions LIMIT 1",
    );
    assert_eq!(found(&conn, "messages_fts", "glockenspiel"), 1);
    assert_eq!(found(&conn, "messages_fts_trigram", "glockenspiel"), 1);
    check(&conn);
}

#[test]
fn a_file_with_leftovers_of_a_conversion_is_not_stamped() {
    let conn = fresh();
    run(&conn, "DELETE FROM state_meta; CREATE TABLE fts_v22_trash_messages_fts_data (id INTEGER PRIMARY KEY)");
    assert!(!needs_work(&conn));
    run(&conn, "DROP TABLE fts_v22_trash_messages_fts_data");
    assert!(needs_work(&conn));
    adopt_all(&conn);
    assert_eq!(one::<String>(&conn, "SELECT value FROM state_meta"), "1");
}

#[test]
fn what_has_no_message_index_offers_none() {
    let conn = Connection::open_in_memory().unwrap();
    assert_eq!(features(&conn, &Context { cjk: true, ..Context::default() }).unwrap(), Features::default());
    let oldest = File::fixture(2).open();
    let offered = Features { fts: true, trigram: false, cjk: false, legacy_fts: true };
    assert_eq!(features(&oldest, &Context { cjk: true, ..Context::default() }).unwrap(), offered);
}
