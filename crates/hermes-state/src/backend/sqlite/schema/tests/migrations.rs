//! Data migrations on small files made by hand.

use super::*;

/// A file of this version with what the script adds. All older versions have a common shape once reconciled.
fn file_of(version: i64, script: &str) -> Connection {
    let conn = fresh();
    run(&conn, &format!("UPDATE schema_version SET version = {version}"));
    run(&conn, script);
    conn
}

fn session(id: &str, columns: &str, values: &str) -> String {
    format!("INSERT INTO sessions (id, source, started_at{columns}) VALUES ('{id}', 'cli', 100{values});")
}

/// The `_delegate_from` of every session that has one.
fn delegates(conn: &Connection) -> Vec<(String, String)> {
    let mut statement = conn
        .prepare(
            "SELECT id, json_extract(model_config, '$._delegate_from') FROM sessions
             WHERE json_valid(model_config) AND json_extract(model_config, '$._delegate_from') IS NOT NULL ORDER BY id",
        )
        .unwrap();
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().collect::<rusqlite::Result<_>>().unwrap()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(id, from)| ((*id).to_owned(), (*from).to_owned())).collect()
}

fn children() -> String {
    let parents = session("root", "", "")
        + &session("branched", ", end_reason, ended_at", ", 'branched', 50")
        + &session("branched later", ", end_reason, ended_at", ", 'branched', 150")
        + &session("branched open", ", end_reason", ", 'branched'")
        + &session("compressed", ", end_reason, ended_at", ", 'compression', 50");
    let child =
        |id, parent, config: &str| session(id, ", parent_session_id, model_config", &format!(", '{parent}', {config}"));
    parents
        + &child("plain", "root", "NULL")
        + &child("configured", "root", r#"'{"temperature": 0.2}'"#)
        + &child("null marker", "root", r#"'{"_delegate_from": null}'"#)
        + &child("has one", "root", r#"'{"_delegate_from": "else"}'"#)
        + &child("falsy one", "root", r#"'{"_delegate_from": ""}'"#)
        + &child("branch", "root", r#"'{"_branched_from": "root"}'"#)
        + &child("array", "root", "'[1]'")
        + &child("broken", "root", "'{\"a\": NaN'")
        + &child("empty text", "root", "''")
        + &child("after branching", "branched", "NULL")
        + &child("before branching", "branched later", "NULL")
        + &child("while open", "branched open", "NULL")
        + &child("continuation", "compressed", "NULL")
}

const CHILDREN: [(&str, &str); 7] = [
    ("before branching", "branched later"),
    ("configured", "root"),
    ("falsy one", ""),
    ("has one", "else"),
    ("null marker", "root"),
    ("plain", "root"),
    ("while open", "branched open"),
];

#[test]
fn children_that_neither_branch_nor_continue_are_delegates() {
    let conn = file_of(15, &children());
    adopt_all(&conn);
    assert_eq!(delegates(&conn), pairs(&CHILDREN));
    assert_eq!(
        one::<f64>(&conn, "SELECT json_extract(model_config, '$.temperature') FROM sessions WHERE id = 'configured'"),
        0.2
    );
    assert_eq!(rows(&conn, "SELECT model_config FROM sessions WHERE id = 'array'"), [r#"Text("[1]")"#]);
    assert_eq!(rows(&conn, "SELECT model_config FROM sessions WHERE id = 'empty text'"), [r#"Text("")"#]);
}

#[test]
fn newer_files_are_not_tagged_again() {
    let conn = file_of(16, &children());
    adopt_all(&conn);
    assert_eq!(delegates(&conn), pairs(&[("falsy one", ""), ("has one", "else")]));
}

#[test]
fn small_untitled_tool_runs_without_family_are_orphaned_delegates() {
    let tool = |id| format!("INSERT INTO messages (session_id, role, timestamp) VALUES ('{id}', 'tool', 1);");
    let run_of = |id, columns, values| session(id, columns, values) + &tool(id);
    let script = run_of("orphan", ", message_count", ", 25")
        + &run_of("large", ", message_count", ", 26")
        + &run_of("uncounted", ", message_count", ", NULL")
        + &run_of("titled", ", message_count, title", ", 3, 't'")
        + &run_of("marked", ", message_count, model_config", ", 3, '{\"_branched_from\": \"x\"}'")
        + &run_of("broken", ", message_count, model_config", ", 3, 'oops'")
        + &run_of("parent", ", message_count", ", 3")
        + &session("child", ", parent_session_id", ", 'parent'")
        + &session("talk", ", message_count", ", 3")
        + "INSERT INTO messages (session_id, role, timestamp) VALUES ('talk', 'user', 1);";
    let conn = file_of(2, &script);
    adopt_all(&conn);
    assert_eq!(delegates(&conn), pairs(&[("child", "parent"), ("orphan", "__orphaned__")]));
}

#[test]
fn a_half_done_tagging_is_finished() {
    let conn = file_of(15, &children());
    run(&conn, "UPDATE sessions SET model_config = '{\"_delegate_from\":\"root\"}' WHERE id = 'plain'");
    adopt_all(&conn);
    assert_eq!(delegates(&conn), pairs(&CHILDREN));
}

#[test]
fn origins_are_filled_in_from_the_gateways_old_file() {
    let script = session("blank", ", expiry_finalized", ", NULL")
        + &session("known", ", session_key, chat_id, expiry_finalized", ", 'mine', 'c', 1")
        + &session("by key", "", "")
        + &session("flushed", "", "")
        + &session("other", "", "")
        + &session("garbled", "", "")
        + &session("after", "", "");
    let conn = file_of(17, &script);
    let context = Context {
        sessions_json: Some(
            r#"{
                "agent:1": {"session_id": "blank", "session_key": "k1", "chat_type": "dm", "display_name": "Zoë",
                            "origin": {"chat_id": -100, "thread_id": "7", "names": ["é", "😀"], "n": null, "d": "\u007f"},
                            "expiry_finalized": false},
                "agent:2": {"session_id": "known", "session_key": "k2", "origin": {"chat_id": "x"}, "expiry_finalized": 0},
                "agent:3": {"session_id": "by key", "session_key": "", "origin": "nowhere"},
                "agent:4": {"session_id": "flushed", "memory_flushed": true},
                "_agent:5": {"session_id": "other", "chat_type": "dm"},
                "agent:9": {"session_id": "garbled", "session_key": "k9", "chat_type": ["dm"]},
                "agent:10": {"session_id": "garbled", "origin": {"chat_id": {"id": 1}}, "display_name": "x"},
                "agent:11": {"session_id": ["garbled"]}, "agent:12": {"session_id": "after", "session_key": 12},
                "agent:6": ["other"], "agent:7": {"chat_type": "dm"}, "agent:8": {"session_id": "unheard of"}
            }"#
            .into(),
        ),
        cjk: false, alone: false
    };
    assert_eq!(inspect(&conn, &context).unwrap(), Inspection::NeedsWork { sessions_json: true });
    adopt_with(&conn, &context);
    let columns = "session_key, chat_id, thread_id, chat_type, display_name, expiry_finalized";
    let of = |id: &str| rows(&conn, &format!("SELECT {columns} FROM sessions WHERE id = '{id}'"));
    assert_eq!(of("blank"), [r#"Text("k1")|Text("-100")|Text("7")|Text("dm")|Text("Zoë")|Null"#]);
    assert_eq!(of("known"), [r#"Text("mine")|Text("c")|Null|Null|Null|Integer(1)"#]);
    assert_eq!(of("by key"), [r#"Text("agent:3")|Null|Null|Null|Null|Integer(0)"#]);
    assert_eq!(of("flushed"), [r#"Text("agent:4")|Null|Null|Null|Null|Integer(1)"#]);
    assert_eq!(of("other"), ["Null|Null|Null|Null|Null|Integer(0)"]);
    assert_eq!(
        of("garbled"),
        ["Null|Null|Null|Null|Null|Integer(0)"],
        "an entry that cannot be stored is skipped whole"
    );
    assert_eq!(of("after"), [r#"Text("12")|Null|Null|Null|Null|Integer(0)"#], "and those behind it are not");
    assert_eq!(
        one::<String>(&conn, "SELECT origin_json FROM sessions WHERE id = 'blank'"),
        r#"{"chat_id": -100, "thread_id": "7", "names": ["\u00e9", "\ud83d\ude00"], "n": null, "d": "\u007f"}"#
    );
    assert_eq!(rows(&conn, "SELECT origin_json FROM sessions WHERE id = 'by key'"), ["Null"]);
}

#[test]
fn a_gateway_file_that_is_no_object_or_comes_too_late_tells_nothing() {
    for (version, text) in [(17, "not json"), (17, "[]"), (17, ""), (18, r#"{"k": {"session_id": "s"}}"#)] {
        let conn = file_of(version, &session("s", "", ""));
        let context = Context { sessions_json: Some(text.into()), cjk: false, alone: false };
        assert_eq!(inspect(&conn, &context).unwrap(), Inspection::NeedsWork { sessions_json: version < 18 });
        adopt_with(&conn, &context);
        assert_eq!(rows(&conn, "SELECT session_key FROM sessions"), ["Null"]);
    }
}

#[test]
fn tokens_used_before_usage_was_kept_are_seeded_once() {
    let script = session(
        "all",
        ", ended_at, model, billing_provider, billing_base_url, billing_mode, api_call_count, input_tokens, output_tokens,
           cache_read_tokens, cache_write_tokens, reasoning_tokens, estimated_cost_usd, actual_cost_usd, cost_status, cost_source",
        ", 200, 'm', 'p', 'u', 'mode', 9, 1, 2, 3, 4, 5, 0.5, 0.25, 'final', 'x'",
    ) + &session("bare", ", reasoning_tokens, input_tokens, api_call_count", ", 1, NULL, NULL")
        + &session("empty model", ", output_tokens, model", ", 1, ''")
        + &session("costly", ", estimated_cost_usd, api_call_count", ", 1, 1")
        + &session("seeded", ", input_tokens, model", ", 10, 'm'")
        + "INSERT INTO session_model_usage (session_id, model, input_tokens) VALUES ('seeded', 'm', 7);
           INSERT INTO sessions (id, source, started_at, input_tokens) VALUES (NULL, 'cli', 1, 5);";
    let conn = file_of(19, &script);
    adopt_all(&conn);
    let usage = rows(&conn, "SELECT * FROM session_model_usage ORDER BY session_id");
    assert_eq!(
        usage[0],
        r#"Text("all")|Text("m")|Text("p")|Text("u")|Text("mode")|Text("")|Integer(9)|Integer(1)|Integer(2)|Integer(3)|Integer(4)|Integer(5)|Real(0.5)|Real(0.25)|Text("final")|Text("x")|Real(100.0)|Real(200.0)"#
    );
    assert!(
        usage[1]
            .starts_with(r#"Text("bare")|Text("unknown")|Text("")|Text("")|Text("")|Text("")|Integer(0)|Integer(0)"#)
    );
    assert!(usage[1].ends_with("Integer(1)|Real(0.0)|Real(0.0)|Null|Null|Real(100.0)|Real(100.0)"), "{}", usage[1]);
    assert!(usage[2].starts_with(r#"Text("empty model")|Text("")"#));
    assert_eq!(one::<i64>(&conn, "SELECT input_tokens FROM session_model_usage WHERE session_id = 'seeded'"), 7);
    assert_eq!(usage.len(), 4);
    run(&conn, "UPDATE schema_version SET version = 19");
    adopt_all(&conn);
    assert_eq!(rows(&conn, "SELECT * FROM session_model_usage ORDER BY session_id"), usage);

    let newer = file_of(20, &script);
    adopt_all(&newer);
    assert_eq!(one::<i64>(&newer, "SELECT count(*) FROM session_model_usage"), 1);
}

/// The usage table as version 21 had it: no task.
const V21: &str = "(
    session_id TEXT NOT NULL REFERENCES sessions(id), model TEXT NOT NULL, billing_provider TEXT NOT NULL DEFAULT '',
    billing_base_url TEXT NOT NULL DEFAULT '', billing_mode TEXT NOT NULL DEFAULT '',
    api_call_count INTEGER NOT NULL DEFAULT 0, input_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0, cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0, estimated_cost_usd REAL NOT NULL DEFAULT 0,
    actual_cost_usd REAL NOT NULL DEFAULT 0, cost_status TEXT, cost_source TEXT, first_seen REAL, last_seen REAL,
    PRIMARY KEY (session_id, model, billing_provider, billing_base_url, billing_mode));";

fn old_usage(table: &str, rows: &str) -> String {
    format!(
        "CREATE TABLE {table} {V21}
         INSERT INTO {table} (session_id, model, input_tokens, estimated_cost_usd, cost_status, first_seen, last_seen)
         VALUES {rows};"
    )
}

fn usage(conn: &Connection) -> Vec<String> {
    rows(
        conn,
        "SELECT session_id, model, task, input_tokens, cost_status, first_seen, last_seen
         FROM session_model_usage ORDER BY session_id, model, task",
    )
}

/// The upsert by which every release records usage; it fails unless the key is exactly so.
const RECORD: &str = "INSERT INTO session_model_usage (session_id, model, task, input_tokens, first_seen, last_seen)
    VALUES ('s', 'm', '', 5, 60, 60)
    ON CONFLICT (session_id, model, billing_provider, billing_base_url, billing_mode, task)
    DO UPDATE SET input_tokens = input_tokens + excluded.input_tokens, last_seen = excluded.last_seen;";

const ROWS: &str = "('s', 'm', 10, 0.5, 'est', 50, 55), ('s', 'n', 1, 0, NULL, 51, 51)";

fn two_rows(first: &str) -> [String; 2] {
    [first.into(), r#"Text("s")|Text("n")|Text("")|Integer(1)|Null|Real(51.0)|Real(51.0)"#.into()]
}

#[test]
fn usage_gets_the_task_into_its_key_whatever_the_version_says() {
    for version in [21, 22, 23] {
        let conn = file_of(version, &session("s", "", ""));
        run(&conn, "DROP TABLE session_model_usage");
        run(&conn, &old_usage("session_model_usage", ROWS));
        run(&conn, "ALTER TABLE session_model_usage ADD COLUMN mine TEXT DEFAULT 'kept'");
        run(&conn, "CREATE INDEX idx_session_model_usage_session ON session_model_usage(session_id)");
        run(&conn, "CREATE INDEX idx_session_model_usage_model ON session_model_usage(model)");
        assert!(needs_work(&conn));
        adopt_all(&conn);
        assert_eq!(
            usage(&conn),
            two_rows(r#"Text("s")|Text("m")|Text("")|Integer(10)|Text("est")|Real(50.0)|Real(55.0)"#)
        );
        assert_eq!(one::<String>(&conn, "SELECT DISTINCT mine FROM session_model_usage"), "kept");
        run(&conn, RECORD);
        assert_eq!(one::<i64>(&conn, "SELECT input_tokens FROM session_model_usage WHERE model = 'm'"), 15);
        run(&conn, "DELETE FROM sessions");
        assert_eq!(usage(&conn), [""; 0], "usage goes with its session");
        let tables = names(&conn, "table");
        assert!(!tables.iter().any(|name| name.starts_with("session_model_usage_")), "{tables:?}");
    }
}

#[test]
fn rows_that_meet_in_the_new_key_are_added_up_and_those_of_gone_sessions_dropped() {
    let conn = file_of(20, &session("s", "", ""));
    run(
        &conn,
        "PRAGMA foreign_keys = OFF; DROP TABLE session_model_usage;
         CREATE TABLE session_model_usage (session_id TEXT, model TEXT, billing_base_url TEXT, input_tokens INTEGER,
                                           first_seen REAL, PRIMARY KEY (session_id, model, billing_base_url));
         INSERT INTO session_model_usage VALUES ('s', NULL, NULL, 1, 9), ('s', NULL, NULL, 2, 8), ('s', NULL, '', NULL, NULL),
                                                ('gone', 'm', '', 4, 1);
         PRAGMA foreign_keys = ON",
    );
    assert_eq!(adopt_all(&conn), [Note::UsageOfGoneSessions(1), Note::Migrated { from: 20 }]);
    assert_eq!(usage(&conn), [r#"Text("s")|Text("unknown")|Text("")|Integer(3)|Null|Real(8.0)|Null"#]);
}

/// Every moment at which the rebuild of older releases, one commit per statement, can have stopped.
#[test]
fn rows_stranded_by_an_older_rebuild_come_home() {
    let home = |sum: i64, last: f64| {
        format!(r#"Text("s")|Text("m")|Text("")|Integer({sum})|Text("est")|Real(50.0)|Real({last:?})"#)
    };
    let stranded = old_usage("session_model_usage_v21", ROWS);
    let copied = "INSERT INTO session_model_usage (session_id, model, input_tokens, estimated_cost_usd, cost_status, first_seen, last_seen)
                  SELECT session_id, model, input_tokens, estimated_cost_usd, cost_status, first_seen, last_seen FROM session_model_usage_v21;";
    for (moment, script, first) in [
        ("set aside", format!("DROP TABLE session_model_usage; {stranded}"), home(10, 55.0)),
        ("made anew", stranded.clone(), home(10, 55.0)),
        ("made anew and used", format!("{stranded} {RECORD}"), home(15, 60.0)),
        ("copied", format!("{stranded} {copied}"), home(10, 55.0)),
        ("copied and used", format!("{stranded} {copied} {RECORD}"), home(15, 60.0)),
    ] {
        for version in [21, 23] {
            let conn = file_of(version, &(session("s", "", "") + &script));
            assert!(needs_work(&conn), "{moment}");
            adopt_all(&conn);
            assert_eq!(usage(&conn), two_rows(&first), "{moment}");
            assert!(!names(&conn, "table").contains(&"session_model_usage_v21".to_owned()));
            assert_eq!(
                one::<i64>(&conn, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'idx_session_model_usage%'"),
                2
            );
        }
    }
}

#[test]
fn an_old_table_and_a_stranded_one_are_joined() {
    let conn = file_of(21, &session("s", "", ""));
    run(&conn, "DROP TABLE session_model_usage");
    run(&conn, &old_usage("session_model_usage", "('s', 'm', 5, 0, NULL, 60, 60)"));
    run(&conn, &old_usage("session_model_usage_v21", ROWS));
    adopt_all(&conn);
    assert_eq!(usage(&conn), two_rows(r#"Text("s")|Text("m")|Text("")|Integer(15)|Text("est")|Real(50.0)|Real(60.0)"#));
}

#[test]
fn a_broken_view_of_someone_else_stops_no_migration() {
    let conn = file_of(21, &session("s", "", ""));
    run(&conn, "DROP TABLE session_model_usage; CREATE TABLE t (a); CREATE VIEW v AS SELECT a FROM t; DROP TABLE t");
    run(&conn, &old_usage("session_model_usage", ROWS));
    adopt_all(&conn);
    assert_eq!(usage(&conn).len(), 2);
}

#[test]
fn only_a_legacy_index_is_offered_to_be_optimised() {
    let conn = file_of(22, "");
    adopt_all(&conn);
    assert_eq!(rows(&conn, "SELECT key FROM state_meta"), [r#"Text("fts_storage_version")"#]);
}
