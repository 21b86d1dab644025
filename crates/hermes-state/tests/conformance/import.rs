//! Sessions as they come in: what is refused, in which words, and what becomes of the rest.

use hermes_state::{
    Error, ImportEntry, ImportLimits, ImportOptions, ImportReport, MessageQuery, NewMessage, NewSession, SearchOptions,
    SessionDb, Value,
};
use serde_json::{Value as Json, json};

use crate::world::{World, on_each_engine};

fn import(db: &SessionDb, sessions: &[Json]) -> ImportReport {
    db.import_sessions(sessions, &ImportOptions::default()).expect("imports")
}

/// Imports entries of which each is wrong, alone and all together, and compares what is said.
fn refused(db: &SessionDb, cases: &[(Json, &str)]) {
    for (entry, error) in cases {
        let report = import(db, std::slice::from_ref(entry));
        assert_eq!(report.errors.iter().map(|problem| problem.error.as_str()).collect::<Vec<_>>(), [*error], "{entry}");
    }
    let good = json!({"id": "good"});
    let entries: Vec<Json> = cases.iter().flat_map(|(entry, _)| [good.clone(), entry.clone()]).collect();
    let report = import(db, &entries);
    let wrong: Vec<usize> = report.errors.iter().map(|problem| problem.index).collect();
    // The good one comes again and again, which is wrong by itself from the second time on.
    assert_eq!(wrong, (1..entries.len()).collect::<Vec<_>>());
    assert!(report.imported_ids.is_empty() && report.skipped_ids.is_empty() && report.detached_ids.is_empty());
    assert_eq!(db.session_count(&Default::default()).unwrap(), 0, "nothing is written if anything is wrong");
}

fn with(field: &str, value: Json) -> Json {
    let mut entry = json!({"id": "s"});
    entry[field] = value;
    entry
}

fn with_message(message: Json) -> Json {
    json!({"id": "s", "messages": [{"role": "user"}, message]})
}

fn each_bad_entry_is_named_with_what_is_wrong_first(db: World) {
    refused(
        &db,
        &[
            (json!([]), "session must be an object"),
            (json!("text"), "session must be an object"),
            (json!({}), "session id is required"),
            (json!({"id": null}), "session id is required"),
            (json!({"id": " \u{1f}\u{a0} "}), "session id is required"),
            (json!({"id": 0}), "session id is required"),
            (json!({"id": "s", "messages": {"a": 1}, "model_config": "no"}), "messages must be a list"),
            (json!({"id": "s", "messages": "text"}), "messages must be a list"),
            (json!({"id": "s", "messages": [{"role": 5}, 5]}), "messages must contain only objects"),
            (with("model_config", json!("no json")), "model_config must be valid JSON"),
            (with("model_config", json!("")), "model_config must be valid JSON"),
            (with("model_config", json!("[1]")), "model_config must be a JSON object"),
            (with("model_config", json!(5)), "model_config must be a JSON object"),
            (with("parent_session_id", json!(5)), "parent_session_id must be a string"),
            (with("source", json!(5)), "source must be a string"),
            (with("title", json!(["t"])), "title must be a string"),
            (with("pricing_version", json!(false)), "pricing_version must be a string"),
            (json!({"id": "s", "title": 5, "model": 5, "cwd": 5}), "model must be a string"),
            (with_message(json!({})), "messages[1].role must be a non-empty string"),
            (with_message(json!({"role": ""})), "messages[1].role must be a non-empty string"),
            (with_message(json!({"role": 5, "tool_name": 5})), "messages[1].role must be a non-empty string"),
            (with_message(json!({"role": "user", "tool_name": 5})), "tool_name must be a string"),
            (with_message(json!({"role": "user", "message_id": 5, "reasoning": 5})), "reasoning must be a string"),
            (with_message(json!({"role": "user", "message_id": 5})), "message_id must be a string"),
            (with_message(json!({"role": "user", "token_count": "many"})), "token_count must be an integer"),
            (with_message(json!({"role": "user", "token_count": []})), "token_count must be an integer"),
            (with_message(json!({"role": "user", "token_count": "1.5"})), "token_count must be an integer"),
        ],
    );
}

fn errors_have_a_place_and_the_id_if_there_is_one(db: World) {
    let report = import(
        &db,
        &[
            json!({"id": " a ", "source": 5}),
            json!({"id": "a"}),
            json!({"id": "a"}),
            json!({"id": 7}),
            json!({"id": "7"}),
            json!({}),
            json!(null),
        ],
    );
    let told: Vec<_> = report.errors.iter().map(|e| (e.index, e.session_id.as_deref(), e.error.as_str())).collect();
    assert_eq!(
        told,
        [
            (0, Some("a"), "source must be a string"),
            (2, Some("a"), "duplicate session id"),
            (4, Some("7"), "duplicate session id"),
            (5, None, "session id is required"),
            (6, None, "session must be an object"),
        ],
        "an entry that failed does not keep its id"
    );
}

/// The reference fails in the middle of writing, with an exception that names no entry.
fn numbers_and_titles_that_cannot_be_stored_are_errors_of_their_entry(db: World) {
    db.create_session(NewSession::new("holder", "cli")).unwrap();
    db.set_session_title("holder", Some("Mine")).unwrap();
    for (text, error) in [
        (r#"{"id": "s", "started_at": NaN}"#, "started_at must be a number"),
        (r#"{"id": "s", "input_tokens": Infinity}"#, "input_tokens is too large"),
        (r#"{"id": "s", "api_call_count": 9223372036854775808}"#, "api_call_count is too large"),
        (r#"{"id": "s", "messages": [{"role": "user", "timestamp": NaN}]}"#, "messages[0].timestamp must be a number"),
        (r#"{"id": "s", "messages": [{"role": "user", "token_count": Infinity}]}"#, "token_count must be an integer"),
        (r#"{"id": "s", "title": "Mine"}"#, "title is already in use by session holder"),
    ] {
        let report = db.import_sessions([text], &ImportOptions::default()).unwrap();
        assert_eq!(report.errors.iter().map(|e| e.error.as_str()).collect::<Vec<_>>(), [error], "{text}");
    }
    let huge = format!(r#"{{"id": "s", "started_at": 1{}}}"#, "0".repeat(400));
    let report = db.import_sessions([huge.as_str()], &ImportOptions::default()).unwrap();
    assert_eq!(report.errors[0].error, "started_at is too large");
    let two = [json!({"id": "a", "title": ""}), json!({"id": "ok"}), json!({"id": "b", "title": ""})];
    let report = import(&db, &two);
    assert_eq!((report.errors.len(), report.errors[0].index), (1, 2));
    assert_eq!(report.errors[0].error, "title is already in use by session a");
    assert_eq!(db.session_count(&Default::default()).unwrap(), 1);
    assert!(import(&db, &[json!({"id": "holder", "title": "Mine"})]).is_ok(), "what is skipped takes no title");
}

fn limits_are_inclusive_and_count_everything(db: World) {
    let limits =
        ImportLimits { sessions: 3, messages_per_session: 2, total_messages: 3, session_bytes: 100, total_bytes: 200 };
    let run = |entries: &[Json]| {
        db.import_sessions(entries, &ImportOptions { limits, dry_run: true })
            .map(|report| report.errors.into_iter().map(|e| (e.index, e.error)).collect::<Vec<_>>())
    };
    let said = |entries: &[Json]| run(entries).unwrap();
    let of = |id: &str, messages: usize| json!({"id": id, "messages": vec![json!({"role": "u"}); messages]});
    assert!(said(&[of("a", 2), of("b", 1), of("c", 0)]).is_empty());
    let too_many = run(&[of("a", 0), of("b", 0), of("c", 0), json!(5)]).unwrap_err();
    assert!(
        matches!(&too_many, Error::Invalid(text) if text == "sessions must contain at most 3 entries"),
        "{too_many}"
    );
    assert_eq!(said(&[of("a", 3)]), [(0, "messages exceeds the per-session import limit".into())]);
    assert_eq!(said(&[of("a", 2), of("b", 2)]), [(1, "messages exceeds the total import limit".into())]);
    // Every byte of the entry counts, unknown keys included, characters by their UTF-8 and not by their escapes.
    let sized = |id: &str, bytes: usize| {
        let empty = json!({"id": id, "é": ""}).to_string().len();
        json!({"id": id, "é": "x".repeat(bytes - empty)})
    };
    assert!(said(&[sized("a", 100), sized("b", 100)]).is_empty());
    assert_eq!(said(&[sized("a", 101)]), [(0, "session exceeds the import size limit".into())]);
    assert_eq!(
        said(&[sized("a", 100), sized("b", 100), of("c", 0)]),
        [(2, "import exceeds the total size limit".into())]
    );
    // A bad entry counts as far as it came; one that is too large by itself does not count.
    let mut bad = sized("a", 100);
    bad["source"] = json!(5);
    let bad_size = bad.to_string().len();
    assert!(bad_size > 100);
    assert_eq!(
        said(&[bad.clone(), sized("b", 100), sized("c", 100)]),
        [(0, "session exceeds the import size limit".into())]
    );
    let escaped =
        |characters: usize| format!("{{ \"id\" :  \"a\" , \"\\u00e9\" : \"{}\" }}", "\\u00e9".repeat(characters));
    let of_bytes = |text: String| db.import_sessions([text], &ImportOptions { limits, dry_run: true }).unwrap();
    // {"id":"a","é":""} has 18 bytes.
    assert!(of_bytes(escaped(41)).is_ok());
    assert_eq!(of_bytes(escaped(42)).errors[0].error, "session exceeds the import size limit");
    assert_eq!(ImportLimits::default().sessions, 500);
    assert_eq!(ImportLimits::default().total_bytes, 25 * 1024 * 1024);
}

fn a_session_comes_in_with_what_an_export_says_and_nothing_else(db: World) {
    let report = import(
        &db,
        &[json!({
            "id": " s ", "source": "", "user_id": "u", "model": "m", "model_config": {"é": [1.0]}, "system_prompt": "p",
            "started_at": " 12.5 ", "ended_at": "soon", "end_reason": "done", "message_count": 99, "tool_call_count": 99,
            "input_tokens": 7.9, "output_tokens": "8", "cache_read_tokens": "x", "cache_write_tokens": true,
            "reasoning_tokens": null, "api_call_count": -2, "estimated_cost_usd": 0.25, "actual_cost_usd": [],
            "title": " Not  cleaned ", "archived": "yes", "cwd": "/x", "session_key": "k", "chat_id": "c",
            "rewind_count": 5, "expiry_finalized": 1, "profile_name": "x", "handoff_state": "x", "unknown": {},
        })],
    );
    assert_eq!((report.imported_ids.as_slice(), report.is_ok()), (&["s".to_owned()][..], true));
    let session = db.session("s").unwrap().unwrap();
    let record = session.record();
    for (column, value) in [
        ("source", "import".into()),
        ("user_id", "u".into()),
        ("model_config", "{\"\\u00e9\": [1.0]}".into()),
        ("started_at", Value::Real(12.5)),
        ("ended_at", Value::Null),
        ("end_reason", "done".into()),
        ("message_count", Value::Integer(0)),
        ("tool_call_count", Value::Integer(0)),
        ("input_tokens", Value::Integer(7)),
        ("output_tokens", Value::Integer(8)),
        ("cache_read_tokens", Value::Integer(0)),
        ("cache_write_tokens", Value::Integer(1)),
        ("reasoning_tokens", Value::Integer(0)),
        ("api_call_count", Value::Integer(-2)),
        ("estimated_cost_usd", Value::Real(0.25)),
        ("actual_cost_usd", Value::Null),
        ("title", " Not  cleaned ".into()),
        ("archived", Value::Integer(1)),
        ("cwd", "/x".into()),
        ("session_key", Value::Null),
        ("chat_id", Value::Null),
        ("rewind_count", Value::Integer(0)),
        ("expiry_finalized", Value::Integer(0)),
        ("profile_name", Value::Null),
        ("handoff_state", Value::Null),
    ] {
        assert_eq!(record.get(column), Some(&value), "{column}");
    }
    import(&db, &[json!({"id": "text", "model_config": "{ \"kept\":  1 }"})]);
    let session = db.session("text").unwrap().unwrap();
    assert_eq!(session.record().text("model_config"), Some("{ \"kept\":  1 }"));
    assert!(session.started_at() > 1.7e9, "now, if nobody says");
}

fn messages_come_in_by_the_rules_of_a_batch(db: World) {
    let message = json!({
        "role": "assistant", "content": {"é": 1}, "tool_calls": "[{\"id\": \"k1\"}, {\"id\": \"k2\"}]",
        "token_count": " 12 ", "reasoning": "r", "reasoning_content": "", "reasoning_details": "[{\"a\":1}]",
        "codex_reasoning_items": "no json", "codex_message_items": {"b": 2}, "platform_message_id": "",
        "message_id": "m", "observed": 1, "api_content": 5, "timestamp": 100, "id": 77, "session_id": "other",
        "active": 0, "compacted": 1, "finish_reason": "stop", "unknown": 1,
    });
    let mut user = message.clone();
    user["role"] = json!("user");
    user["timestamp"] = json!("later");
    user["platform_message_id"] = json!("p");
    let plain = |content: Json| json!({"role": " ", "content": content});
    let entry = json!({"id": "s", "messages": [
        message, user, plain(json!(5)), plain(json!(true)), plain(json!(2.5)), plain(json!(null)), plain(json!("")),
    ]});
    assert!(import(&db, &[entry]).is_ok());
    let rows = db.messages("s", &MessageQuery::default()).unwrap();
    let stored = |row: usize, column: &str| rows[row].record().get(column).cloned().unwrap();
    for (column, value) in [
        ("content", "\u{0}json:{\"\\u00e9\": 1}".into()),
        ("tool_calls", "[{\"id\": \"k1\"}, {\"id\": \"k2\"}]".into()),
        ("token_count", Value::Integer(12)),
        ("reasoning", "r".into()),
        ("reasoning_content", "".into()),
        ("reasoning_details", "[{\"a\": 1}]".into()),
        ("codex_reasoning_items", "\"no json\"".into()),
        ("codex_message_items", "{\"b\": 2}".into()),
        ("platform_message_id", "m".into()),
        ("observed", Value::Integer(1)),
        ("api_content", Value::Null),
        ("timestamp", Value::Real(100.0)),
        ("session_id", "s".into()),
        ("active", Value::Integer(1)),
        ("compacted", Value::Integer(0)),
        ("finish_reason", "stop".into()),
    ] {
        assert_eq!(stored(0, column), value, "{column}");
    }
    for column in
        ["reasoning", "reasoning_content", "reasoning_details", "codex_reasoning_items", "codex_message_items"]
    {
        assert_eq!(stored(1, column), Value::Null, "{column} belongs to assistants");
    }
    assert_eq!((stored(1, "platform_message_id"), stored(1, "finish_reason")), ("p".into(), "stop".into()));
    let contents: Vec<Value> = (2..7).map(|row| stored(row, "content")).collect();
    assert_eq!(contents, ["5".into(), "1".into(), "2.5".into(), Value::Null, "".into()]);
    let times: Vec<f64> = rows[1..].iter().map(hermes_state::Message::timestamp).collect();
    assert!(times[0] > 1.7e9 && times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    let session = db.session("s").unwrap().unwrap();
    assert_eq!((session.message_count(), session.record().integer("tool_call_count")), (7, Some(4)));
}

fn what_is_there_is_skipped_whole(db: World) {
    db.create_session(NewSession::new("s", "cli")).unwrap();
    db.append_message("s", NewMessage::new("user", "mine")).unwrap();
    let entries = [
        json!({"id": "p"}),
        json!({"id": "s", "parent_session_id": "p", "title": "T", "messages": [{"role": "user", "content": "theirs"}]}),
        json!({"id": "t", "messages": [{"role": "user", "content": "harbour"}]}),
    ];
    let preview = db.import_sessions(&entries, &ImportOptions { dry_run: true, ..Default::default() }).unwrap();
    assert_eq!(db.session_count(&Default::default()).unwrap(), 1, "a dry run writes nothing");
    let report = import(&db, &entries);
    assert_eq!(report, preview);
    assert_eq!(
        (report.imported_ids.as_slice(), report.skipped_ids.as_slice()),
        (&["p".into(), "t".into()][..], &["s".to_owned()][..])
    );
    let session = db.session("s").unwrap().unwrap();
    assert_eq!((session.parent_session_id(), session.title(), session.message_count()), (None, None, 1));
    assert_eq!(db.search_messages("harbour", &SearchOptions::default()).unwrap().len(), 1, "what came in is found");
    assert!(db.search_messages("theirs", &SearchOptions::default()).unwrap().is_empty());
}

fn parents_are_linked_where_they_are_and_rings_are_cut_once(db: World) {
    let child = |id: &str, parent: &str| json!({"id": id, "parent_session_id": parent});
    db.create_session(NewSession::new("stored", "cli")).unwrap();
    let report = import(
        &db,
        &[
            child("a", " later "),
            child("b", "stored"),
            child("orphan", "nowhere"),
            child("self", "self"),
            child("r1", "r2"),
            child("r2", "r3"),
            child("r3", "r1"),
            child("blank", "  "),
            json!({"id": "later"}),
        ],
    );
    assert_eq!(report.detached_ids, ["orphan", "self", "r1"]);
    let parent = |id: &str| db.session(id).unwrap().unwrap().parent_session_id().map(str::to_owned);
    for (id, expected) in [
        ("a", Some("later")),
        ("b", Some("stored")),
        ("orphan", None),
        ("self", None),
        ("r1", None),
        ("r2", Some("r3")),
        ("r3", Some("r1")),
        ("blank", None),
    ] {
        assert_eq!(parent(id).as_deref(), expected, "{id}");
    }
}

fn what_could_not_be_written_as_json_is_one_bad_entry(db: World) {
    let entries = [
        ImportEntry::Json(r#"{"id": "ok"}"#.into()),
        ImportEntry::Unserializable(r#"{"id": "s", "messages": [{}]}"#.into()),
        ImportEntry::Unserializable(r#"{"id": "s", "messages": 5}"#.into()),
        ImportEntry::Json("{broken".into()),
    ];
    let report = db.import_sessions(entries, &ImportOptions::default()).unwrap();
    let errors: Vec<_> = report.errors.iter().map(|problem| problem.error.as_str()).collect();
    assert_eq!(errors, ["session must be JSON serializable", "messages must be a list", "session must be an object"]);
    assert_eq!(import(&db, &[]), ImportReport::default());
}

on_each_engine! {
    each_bad_entry_is_named_with_what_is_wrong_first
    errors_have_a_place_and_the_id_if_there_is_one
    numbers_and_titles_that_cannot_be_stored_are_errors_of_their_entry
    limits_are_inclusive_and_count_everything
    a_session_comes_in_with_what_an_export_says_and_nothing_else
    messages_come_in_by_the_rules_of_a_batch
    what_is_there_is_skipped_whole
    parents_are_linked_where_they_are_and_rings_are_cut_once
    what_could_not_be_written_as_json_is_one_bad_entry
}
