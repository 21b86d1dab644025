//! Sessions as they leave the store, and that they come back the same, on the same engine and on the other one.

use hermes_state::{Content, ImportOptions, NewMessage, NewSession, SearchOptions, SessionDb, ToolCalls};
use serde_json::{Value as Json, json};

use crate::world::{World, on_each_engine};

fn text(pieces: impl Iterator<Item = hermes_state::Result<String>>) -> String {
    pieces.collect::<hermes_state::Result<String>>().expect("reads")
}

fn session(db: &SessionDb, id: &str) -> String {
    text(db.export_session(id).expect("reads").expect("is there").into_json())
}

fn lines(db: &SessionDb) -> Vec<String> {
    let all = db.export_all(None).expect("reads");
    all.map(|export| text(export.expect("reads").into_json())).collect()
}

fn parsed(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// An export without what another store numbers anew.
fn without_ids(text: &str) -> String {
    let mut parts = text.split("{\"id\": ");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|character: char| character.is_ascii_digit());
        kept.push_str("{\"id\": ");
        kept.push_str(rest);
    }
    kept
}

/// A session full of what does not survive careless handling, and a child of a session that is not exported.
fn awkward(db: &SessionDb) {
    let family = "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}\u{200d}\u{1f466}";
    db.create_session(NewSession::new("absent", "cli")).unwrap();
    db.create_session(NewSession::new("c12", "cli").model_config(r#"{"é": [1, 2.0]}"#).cwd("/home/ada")).unwrap();
    db.set_session_title("c12", Some(&format!("Häfen {family}"))).unwrap();
    let half =
        "[{\"type\": \"text\", \"text\": \"half \\ud83d\"}, {\"n\": NaN, \"big\": 123456789012345678901234567890}]";
    let calls = json!([{"id": "k1", "function": {"name": "suche", "arguments": {"straße": ["ä", {"ß": "é"}]}}}]);
    let messages = vec![
        NewMessage::new("user", "a\u{0}b porcupine").timestamp(1_783_160_100.123_456),
        NewMessage::new("user", Content::Json(half.into())).timestamp(1_783_160_100.123_457),
        NewMessage::new("user", family).timestamp(1_783_160_100.5),
        NewMessage::new("tool", format!("{}!", "x".repeat(2 << 20))).timestamp(1_783_160_101.0).tool_call_id("k0"),
        NewMessage::new("user", "").timestamp(1_783_160_099.000_001),
        NewMessage::new("assistant", Content::None).timestamp(1_783_160_102.0).tool_calls(calls).reasoning_content(""),
        NewMessage::new("user", json!([{"type": "text", "text": "look é"}, {"type": "image_url", "url": "data:,"}]))
            .timestamp(-0.000_001),
        NewMessage::new("assistant", "<memory-context>kept</memory-context>")
            .timestamp(1_783_160_103.25)
            .token_count(7)
            .finish_reason("stop")
            .reasoning("weil")
            .reasoning_details("[{\"a\": \"\\ud800\"}]")
            .codex_reasoning_items("{\"b\": 1.0}")
            .codex_message_items("\"text\"")
            .platform_message_id("p1")
            .observed(true)
            .effect_disposition("none")
            .api_content("sent\u{0}"),
        NewMessage::new("odd role", "\u{0}json:{broken").timestamp(1_783_160_104.0),
    ];
    db.append_messages("c12", messages).unwrap();
    db.create_session(NewSession::new("child", "cli").parent_session_id("absent")).unwrap();
    db.append_message("child", NewMessage::new("user", "hello").timestamp(1_783_160_200.0)).unwrap();
    db.end_session("child", "done").unwrap();
}

/// What C12 asks for, from the store in which the sessions were written into an empty one.
fn comes_back(from: &SessionDb, to: &SessionDb) {
    awkward(from);
    let first = [session(from, "c12"), session(from, "child")];
    let report = to.import_sessions(first.iter().map(String::as_str), &ImportOptions::default()).unwrap();
    assert_eq!(report.errors, []);
    assert_eq!((report.imported_ids, report.detached_ids), (vec!["c12".into(), "child".into()], vec!["child".into()]));

    let second = [session(to, "c12"), session(to, "child")];
    let first = first
        .map(|text| without_ids(&text).replace("\"parent_session_id\": \"absent\"", "\"parent_session_id\": null"));
    assert_eq!(first.each_ref().map(String::len), second.each_ref().map(|text| without_ids(text).len()));
    assert!(first == second.each_ref().map(|text| without_ids(text)), "the second export differs from the first");

    let messages = to.messages("c12", &Default::default()).unwrap();
    assert_eq!(messages[0].content(), Content::from("a\u{0}b porcupine"));
    assert_eq!((messages[4].content(), messages[5].content()), (Content::from(""), Content::None));
    assert_eq!(messages[0].timestamp(), 1_783_160_100.123_456);
    assert_eq!(to.session("c12").unwrap().unwrap().record().integer("tool_call_count"), Some(1));
    let hits = to.search_messages("porcupine", &SearchOptions::default()).unwrap();
    assert_eq!(hits.iter().map(|hit| hit.id).collect::<Vec<_>>(), [messages[0].id()]);

    let again = to.import_sessions(second.iter().map(String::as_str), &ImportOptions::default()).unwrap();
    assert_eq!((again.imported_ids.len(), again.skipped_ids.len(), again.is_ok()), (0, 2, true));
    assert!(without_ids(&session(to, "c12")) == first[0], "what is there stays as it is");
}

fn awkward_content_comes_back_as_it_was(db: World) {
    comes_back(&db, &db.another_store());
}

#[cfg(feature = "postgres")]
#[test]
fn awkward_content_comes_back_from_a_server_and_into_one() {
    if let (Some(server), Some(other)) = (World::on_a_server(), World::on_a_server()) {
        let (file, copy) = (World::on_a_file(), World::on_a_file());
        comes_back(&file, &server);
        comes_back(&other, &copy);
        assert!(
            without_ids(&session(&file, "c12")) == without_ids(&session(&server, "c12")),
            "one engine, then the other"
        );
        assert!(without_ids(&session(&other, "c12")) == without_ids(&session(&copy, "c12")), "and the other way");
    }
}

fn an_export_has_the_columns_and_the_active_messages(db: World) {
    let mut db = db.with_session();
    let calls = ToolCalls::from_text(Some("{broken".into()), 1);
    db.append_messages(
        "s",
        vec![
            NewMessage::new("user", "rewound"),
            NewMessage::new("user", json!(["é"])).timestamp(1.5),
            NewMessage::new("assistant", "x").tool_calls(calls).reasoning_details("[1]").timestamp(2.0),
        ],
    )
    .unwrap();
    db.behind_its_back("UPDATE messages SET active = 0 WHERE content = 'rewound'");
    let text = session(&db, "s");
    assert!(text.starts_with("{\"id\": \"s\", \"source\": \"cli\", \"user_id\": null, "), "{text}");
    let export = parsed(&text);
    let messages = export["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2, "inactive messages stay behind");
    assert_eq!((&messages[0]["id"], &messages[0]["content"]), (&json!(2), &json!(["é"])));
    assert_eq!((&messages[0]["timestamp"], &messages[0]["active"]), (&json!(1.5), &json!(1)));
    assert_eq!((&messages[1]["tool_calls"], &messages[1]["reasoning_details"]), (&json!([]), &json!("[1]")));
    let columns = db.session("s").unwrap().unwrap().record().columns().len();
    assert_eq!(export.as_object().unwrap().len(), columns + 1);
    let columns = db.messages("s", &Default::default()).unwrap()[0].record().columns().len();
    assert_eq!(messages[0].as_object().unwrap().len(), columns);
    assert!(db.export_session("nobody").unwrap().is_none());
}

fn long_sessions_are_read_in_pages_without_a_gap(db: World) {
    let db = db.with_session();
    db.create_session(NewSession::new("other", "cli")).unwrap();
    let mut expected = Vec::new();
    for round in 0..40 {
        // Now and then a message that is more than a page by itself.
        let size = if round % 9 == 4 { 1_300_000 } else { 1 + round * 97 };
        let batch: Vec<_> = (0..17).map(|number| NewMessage::new("user", "y".repeat(size + number))).collect();
        let batch = if size > 1_000_000 { batch[..2].to_vec() } else { batch };
        expected.extend(db.append_messages("s", batch).unwrap().stored().expect("stored"));
        db.append_message("other", NewMessage::new("user", "between")).unwrap();
    }
    let export = db.export_session("s").unwrap().unwrap();
    assert_eq!(export.message_count(), expected.len());
    let again = export.clone();
    let ids: Vec<i64> = export.map(|message| message.unwrap().id()).collect();
    assert_eq!(ids, expected);
    assert_eq!(again.count(), expected.len());
}

fn what_comes_meanwhile_is_left_to_the_next_export(db: World) {
    let db = db.with_session();
    db.append_messages("s", vec![NewMessage::new("user", "one"), NewMessage::new("user", "two")]).unwrap();
    let (all, export) = (db.export_all(None).unwrap(), db.export_session("s").unwrap().unwrap());
    db.append_message("s", NewMessage::new("user", "three")).unwrap();
    db.create_session(NewSession::new("t", "cli")).unwrap();
    assert_eq!(export.map(|message| message.unwrap().id()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(all.map(|export| export.unwrap().session().id().to_owned()).collect::<Vec<_>>(), ["s"]);
    assert_eq!(db.export_session("s").unwrap().unwrap().count(), 3);
}

fn all_sessions_come_the_latest_active_first(db: World) {
    for (id, source) in [("a", "cli"), ("b", "web"), ("c", "cli")] {
        db.create_session(NewSession::new(id, source)).unwrap();
    }
    db.create_session(NewSession::new("child", "cron").parent_session_id("a")).unwrap();
    db.append_message("a", NewMessage::new("user", "x").timestamp(9e9)).unwrap();
    let mut db = db;
    db.behind_its_back("UPDATE sessions SET started_at = 5.0 WHERE id <> 'child'; UPDATE sessions SET archived = 1 WHERE id = 'b'; UPDATE messages SET active = 0");
    let exports: Vec<Json> = lines(&db).iter().map(|line| parsed(line)).collect();
    let ids: Vec<_> = exports.iter().map(|export| export["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["a", "child", "c", "b"]);
    assert_eq!((&exports[0]["last_active"], &exports[0]["messages"]), (&json!(9e9), &json!([])), "of any row");
    assert_eq!(exports[2]["last_active"], json!(5.0));
    let of = |source| db.export_all(source).unwrap().map(|export| export.unwrap().session().id().to_owned());
    assert_eq!(of(Some("web")).collect::<Vec<_>>(), ["b"]);
    assert_eq!((of(Some("")).count(), of(Some("nowhere")).count()), (4, 0));
}

fn a_conversation_is_exported_whole(db: World) {
    for (id, parent) in [("one", None), ("two", Some("one")), ("three", Some("two"))] {
        db.create_session(NewSession::new(id, "cli").parent_session_id(parent)).unwrap();
        db.append_messages(id, vec![NewMessage::new("user", id), NewMessage::new("assistant", "ok")]).unwrap();
        if id != "three" {
            db.end_session(id, "compression").unwrap();
        }
    }
    db.append_message("one", NewMessage::new("user", "late")).unwrap();
    let lineage = db.export_session_lineage("two").unwrap().unwrap();
    assert_eq!((lineage.session().id(), lineage.session().message_count()), ("three", 7));
    assert_eq!(lineage.segments().len(), 3);
    let export = parsed(&text(lineage.into_json()));
    let contents: Vec<_> =
        export["messages"].as_array().unwrap().iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(contents, ["one", "ok", "late", "two", "ok", "three", "ok"], "by segment, then by insertion");
    assert_eq!((&export["id"], &export["message_count"]), (&json!("three"), &json!(7)));
    assert_eq!(export["lineage_session_ids"], json!(["one", "two", "three"]));
    for (number, id) in ["one", "two", "three"].into_iter().enumerate() {
        assert_eq!(export["segments"][number], parsed(&session(&db, id)));
    }
    assert!(db.export_session_lineage("nobody").unwrap().is_none());

    let other = db.another_store();
    let report = other.import_sessions([&export], &ImportOptions::default()).unwrap();
    assert_eq!((report.imported_ids, report.detached_ids.len()), (vec!["three".to_owned()], 1));
    assert_eq!(other.session("three").unwrap().unwrap().message_count(), 7);
}

on_each_engine! {
    awkward_content_comes_back_as_it_was
    an_export_has_the_columns_and_the_active_messages
    long_sessions_are_read_in_pages_without_a_gap
    what_comes_meanwhile_is_left_to_the_next_export
    all_sessions_come_the_latest_active_first
    a_conversation_is_exported_whole
}
