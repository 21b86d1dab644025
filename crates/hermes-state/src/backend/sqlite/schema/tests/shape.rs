//! Fresh files, missing and surplus parts, versions: what an open makes of any shape.

use super::*;

const BASE_TABLES: [&str; 8] = [
    "async_delegations",
    "compression_locks",
    "gateway_routing",
    "messages",
    "schema_version",
    "session_model_usage",
    "sessions",
    "state_meta",
];

/// Tables, columns, keys, references and indexes, in a form that two files can be compared by.
fn shape(conn: &Connection) -> Vec<String> {
    let mut shape = rows(conn, "SELECT type, name, tbl_name FROM sqlite_master ORDER BY 1, 2");
    for table in BASE_TABLES {
        shape.push(table.into());
        shape.extend(rows(conn, &format!("PRAGMA table_info({table})")));
        shape.extend(rows(conn, &format!("PRAGMA foreign_key_list({table})")));
        shape.extend(rows(
            conn,
            &format!("SELECT name, \"unique\", origin, partial FROM pragma_index_list('{table}') ORDER BY 1"),
        ));
    }
    for index in names(conn, "index") {
        shape.push(index.clone());
        shape.extend(rows(conn, &format!("PRAGMA index_xinfo({index})")));
    }
    shape
}

#[test]
fn a_fresh_file_has_the_shape_that_the_older_release_gave_it() {
    let theirs = File::fixture(23).open();
    assert_eq!(shape(&fresh()), shape(&theirs));
}

#[test]
fn a_fresh_file_has_one_version_row_and_is_stamped() {
    let conn = fresh();
    assert_eq!(rows(&conn, "SELECT * FROM schema_version"), ["Integer(23)"]);
    assert_eq!(rows(&conn, "SELECT * FROM state_meta"), [r#"Text("fts_storage_version")|Text("1")"#]);
    let features = Features { fts: true, trigram: true, cjk: false, legacy_fts: false };
    assert_eq!(inspect(&conn, &Context::default()).unwrap(), Inspection::UpToDate(features));
}

#[test]
fn the_base_script_makes_tables_and_base_indexes_and_nothing_else() {
    let conn = Connection::open_in_memory().unwrap();
    run(&conn, SCHEMA_SQL);
    run(&conn, SCHEMA_SQL);
    let own = |kind| names(&conn, kind).into_iter().filter(|name| !name.starts_with("sqlite_")).collect::<Vec<_>>();
    assert_eq!(own("table"), BASE_TABLES);
    assert_eq!(own("index").len(), 9);
    assert_eq!(own("trigger").len() + own("view").len(), 0);
    assert_eq!(one::<i64>(&conn, "SELECT count(*) FROM schema_version"), 0);
}

#[test]
fn a_file_made_from_the_base_script_alone_is_completed() {
    let conn = Connection::open_in_memory().unwrap();
    run(&conn, SCHEMA_SQL);
    assert!(needs_work(&conn));
    adopt_all(&conn);
    assert_eq!(dump(&conn), dump(&fresh()));
}

#[test]
fn looking_writes_nothing_and_an_up_to_date_file_is_not_written() {
    let file = File::empty();
    let conn = file.open();
    run(&conn, "PRAGMA query_only = ON");
    assert!(needs_work(&conn));
    run(&conn, "PRAGMA query_only = OFF");
    adopt_all(&conn);
    run(&conn, "PRAGMA query_only = ON");
    assert!(!needs_work(&conn));
    run(&conn, "PRAGMA query_only = OFF");

    let watcher = file.open();
    let before: i64 = one(&watcher, "PRAGMA data_version");
    adopt_all(&conn);
    assert_eq!(one::<i64>(&watcher, "PRAGMA data_version"), before, "a needless write");
    run(&conn, "UPDATE state_meta SET value = '0'");
    adopt_all(&conn);
    assert_ne!(one::<i64>(&watcher, "PRAGMA data_version"), before, "the watcher sees writes");
}

#[test]
fn each_column_comes_back_with_its_default_and_type() {
    let reference = shape(&fresh());
    for table in &columns::declared().unwrap().tables {
        for (place, column) in table.columns.iter().enumerate() {
            if column.key > 0 || table.columns.len() == 1 || table.name == "messages" && column.name == "session_id" {
                continue; // SQLite drops neither keys nor references, so no file lacks them.
            }
            let conn = fresh();
            run(&conn, "PRAGMA legacy_alter_table = ON");
            for kind in ["trigger", "view"] {
                names(&conn, kind).iter().for_each(|name| run(&conn, &format!("DROP {kind} {name}")));
            }
            for index in names(&conn, "index").iter().filter(|name| name.starts_with("idx_")) {
                run(&conn, &format!("DROP INDEX {index}"));
            }
            if column.name == "parent_session_id" && table.name == "sessions" {
                let sql: String = one(&conn, "SELECT sql FROM sqlite_master WHERE name = 'sessions'");
                run(&conn, "DROP TABLE sessions");
                run(&conn, &sql.replace("parent_session_id TEXT REFERENCES sessions (id),", ""));
            } else {
                run(&conn, &format!("ALTER TABLE {} DROP COLUMN {}", table.name, column.name));
            }
            let live = || catalog::columns(&conn, &table.name).unwrap();
            assert_eq!(live().len(), table.columns.len() - 1);
            assert!(needs_work(&conn));
            adopt_all(&conn);
            let added = live().pop().unwrap();
            assert_eq!((&added.name, &added.declaration), (&column.name, &column.declaration));
            if place == table.columns.len() - 1 && column.name != "parent_session_id" {
                assert_eq!(shape(&conn), reference);
            }
        }
    }
}

#[test]
fn missing_columns_are_added_in_order_and_rows_take_the_default() {
    let conn = Connection::open_in_memory().unwrap();
    run(
        &conn,
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, started_at REAL NOT NULL, mine TEXT);
         INSERT INTO sessions VALUES ('s', 'cli', 1, 'kept');
         CREATE TABLE async_delegations (delegation_id TEXT PRIMARY KEY, origin_session TEXT NOT NULL,
                                         state TEXT NOT NULL, dispatched_at REAL NOT NULL, updated_at REAL NOT NULL);
         INSERT INTO async_delegations VALUES ('d', 's', 'x', 1, 1)",
    );
    adopt_all(&conn);
    let live: Vec<String> =
        catalog::columns(&conn, "sessions").unwrap().into_iter().map(|column| column.name).collect();
    assert_eq!(live[..6], ["id", "source", "started_at", "mine", "user_id", "session_key"]);
    assert_eq!(live.len(), 47);
    assert_eq!(
        rows(&conn, "SELECT mine, message_count, archived, title FROM sessions"),
        [r#"Text("kept")|Integer(0)|Integer(0)|Null"#]
    );
    assert_eq!(one::<String>(&conn, "SELECT delivery_state FROM async_delegations"), "pending");
}

#[test]
fn a_column_that_no_row_could_fill_is_left_out() {
    let conn = Connection::open_in_memory().unwrap();
    run(
        &conn,
        "CREATE TABLE compression_locks (session_id TEXT PRIMARY KEY, expires_at REAL NOT NULL);
         INSERT INTO compression_locks VALUES ('s', 1)",
    );
    adopt_all(&conn); // and the next open does not take it for work
    assert_eq!(catalog::columns(&conn, "compression_locks").unwrap().len(), 2);
    run(&conn, "DELETE FROM compression_locks");
    assert!(needs_work(&conn));
    adopt_all(&conn);
    assert_eq!(catalog::columns(&conn, "compression_locks").unwrap().len(), 4);
}

#[test]
fn a_column_in_other_case_is_the_same_column() {
    let conn = Connection::open_in_memory().unwrap();
    run(&conn, "CREATE TABLE state_meta (KEY TEXT PRIMARY KEY, Value TEXT)");
    adopt_all(&conn);
    assert_eq!(catalog::columns(&conn, "state_meta").unwrap().len(), 2);
}

#[test]
fn what_is_not_ours_stays() {
    let conn = fresh();
    run(
        &conn,
        "CREATE TABLE other (a); INSERT INTO other VALUES (1); CREATE INDEX other_a ON other (a);
         ALTER TABLE state_meta ADD COLUMN note TEXT DEFAULT 'n'; INSERT INTO state_meta (key, value) VALUES ('goal:x', 'y');
         DROP INDEX idx_sessions_started",
    );
    adopt_all(&conn);
    assert_eq!(rows(&conn, "SELECT * FROM other"), ["Integer(1)"]);
    assert_eq!(rows(&conn, "SELECT value, note FROM state_meta WHERE key = 'goal:x'"), [r#"Text("y")|Text("n")"#]);
    assert!(names(&conn, "index").contains(&"other_a".to_owned()));
}

#[test]
fn each_missing_index_comes_back() {
    let reference = shape(&fresh());
    for index in &columns::declared().unwrap().indexes {
        let conn = fresh();
        run(&conn, &format!("DROP INDEX {index}"));
        assert!(needs_work(&conn), "{index}");
        adopt_all(&conn);
        assert_eq!(shape(&conn), reference);
    }
    assert_eq!(columns::declared().unwrap().indexes.len(), 16);
}

#[test]
fn of_equal_titles_the_last_keeps_it() {
    let conn = fresh();
    run(
        &conn,
        "DROP INDEX idx_sessions_title_unique;
         INSERT INTO sessions (id, source, started_at, title) VALUES
             ('a', 'cli', 9, 'one'), ('b', 'cli', 1, 'two'), ('c', 'cli', 1, 'one'), ('d', 'cli', 1, 'One'),
             ('e', 'cli', 1, NULL), ('f', 'cli', 1, 'one'), ('g', 'cli', 1, NULL)",
    );
    assert_eq!(adopt_all(&conn), [Note::TitlesCleared(2)]);
    assert_eq!(
        rows(&conn, "SELECT id FROM sessions WHERE title IS NOT NULL ORDER BY id"),
        [r#"Text("b")"#, r#"Text("d")"#, r#"Text("f")"#]
    );
    assert_eq!(one::<i64>(&conn, "SELECT count(*) FROM sessions"), 7);
}

#[test]
fn messages_without_state_become_active() {
    let conn = Connection::open_in_memory().unwrap();
    let nullable = SCHEMA_SQL.replace("active                INTEGER NOT NULL DEFAULT 1", "active INTEGER");
    assert_ne!(nullable, SCHEMA_SQL);
    run(&conn, &nullable);
    adopt_all(&conn);
    run(
        &conn,
        "INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 1);
         INSERT INTO messages (session_id, role, timestamp, active) VALUES ('s', 'user', 1, NULL), ('s', 'user', 2, 0)",
    );
    assert!(needs_work(&conn));
    adopt_all(&conn);
    assert_eq!(rows(&conn, "SELECT active FROM messages ORDER BY id"), ["Integer(1)", "Integer(0)"]);
    let plan = rows(&conn, "EXPLAIN QUERY PLAN SELECT EXISTS (SELECT 1 FROM messages WHERE active IS NULL)").join("");
    assert!(plan.contains("idx_messages_active_null"), "{plan}");
}

#[test]
fn a_file_of_a_newer_release_is_not_touched() {
    for versions in ["(24)", "(23), (24)", "(24), (23)", "('soon'), (24)"] {
        let conn = fresh();
        run(
            &conn,
            &format!(
                "DROP INDEX idx_sessions_started; DROP TRIGGER messages_fts_insert; DELETE FROM state_meta;
                 ALTER TABLE sessions DROP COLUMN archived;
                 DELETE FROM schema_version; INSERT INTO schema_version VALUES {versions}"
            ),
        );
        let before = dump(&conn);
        let context = Context::default();
        assert_eq!(inspect(&conn, &context).unwrap(), Inspection::TooNew { found: 24 });
        run(&conn, "BEGIN IMMEDIATE");
        assert_eq!(adopt(&conn, &context).unwrap(), Adoption::TooNew { found: 24 });
        run(&conn, "COMMIT");
        assert_eq!(dump(&conn), before);
        let usable = Features { fts: false, trigram: true, cjk: false, legacy_fts: false };
        assert_eq!(features(&conn, &context).unwrap(), usable);
    }
}

#[test]
fn a_version_that_is_no_number_leaves_the_data_alone() {
    for version in ["NULL", "'old'", "x'31'", "1.5"] {
        let conn = Connection::open_in_memory().unwrap();
        run(
            &conn,
            &format!("CREATE TABLE schema_version (version INTEGER); INSERT INTO schema_version VALUES ({version})"),
        );
        adopt_all(&conn);
        run(
            &conn,
            "INSERT INTO sessions (id, source, started_at, input_tokens) VALUES ('p', 'cli', 1, 5);
             INSERT INTO sessions (id, source, started_at, parent_session_id) VALUES ('c', 'cli', 1, 'p');
             DROP INDEX idx_sessions_started",
        );
        adopt_all(&conn);
        assert!(names(&conn, "index").contains(&"idx_sessions_started".to_owned()), "the shape is mended");
        assert_eq!(one::<i64>(&conn, "SELECT count(*) FROM schema_version WHERE version IS 23"), 0);
        assert_eq!(one::<i64>(&conn, "SELECT count(model_config) FROM sessions"), 0);
        assert_eq!(one::<i64>(&conn, "SELECT count(*) FROM session_model_usage"), 0);
    }
}

#[test]
fn several_version_rows_are_one_version() {
    let conn = fresh();
    run(&conn, "INSERT INTO schema_version VALUES (23)");
    assert!(!needs_work(&conn));
    run(&conn, "UPDATE schema_version SET version = 15");
    assert_eq!(adopt_all(&conn), [Note::Migrated { from: 15 }]);
    assert_eq!(rows(&conn, "SELECT * FROM schema_version"), ["Integer(23)", "Integer(23)"]);
}

#[test]
fn a_lost_version_row_is_written_and_nothing_migrated() {
    let conn = fresh();
    run(
        &conn,
        "DELETE FROM schema_version;
         INSERT INTO sessions (id, source, started_at, input_tokens) VALUES ('p', 'cli', 1, 5)",
    );
    assert_eq!(adopt_all(&conn), []);
    assert_eq!(rows(&conn, "SELECT * FROM schema_version"), ["Integer(23)"]);
    assert_eq!(one::<i64>(&conn, "SELECT count(*) FROM session_model_usage"), 0);
}

#[test]
fn the_declared_columns_of_a_script_are_listed_in_order() {
    let parsed = parse_schema_columns(
        "CREATE TABLE b (x TEXT PRIMARY KEY NOT NULL, y, z VARCHAR (10) NOT NULL DEFAULT 'a b' UNIQUE, w NOT NULL);
         CREATE TABLE a (i INTEGER PRIMARY KEY AUTOINCREMENT, r TEXT REFERENCES b (x), n INT DEFAULT NULL)",
    )
    .unwrap();
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, declared)| ((*name).into(), (*declared).into())).collect()
    };
    assert_eq!(
        parsed,
        [
            (
                "b".into(),
                pairs(&[("x", "TEXT"), ("y", ""), ("z", "VARCHAR (10) NOT NULL DEFAULT 'a b'"), ("w", "NOT NULL")])
            ),
            ("a".into(), pairs(&[("i", "INTEGER"), ("r", "TEXT"), ("n", "INT DEFAULT NULL")])),
        ]
    );
    assert_eq!(parse_schema_columns(SCHEMA_SQL).unwrap().len(), 8);
    assert!(matches!(parse_schema_columns("CREATE TABL"), Err(crate::Error::Engine { code: 1, .. })));
}
