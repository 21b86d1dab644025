//! Messages: what is stored is what comes back, in the order of storing, and the counters agree with the rows.

use hermes_state::{Content, Error, Message, MessageQuery, NewMessage, SessionDb, Value};
use serde_json::json;

use crate::world::{World, on_each_engine};

fn all(db: &SessionDb) -> Vec<Message> {
    db.messages("s", &MessageQuery::default()).expect("reads")
}

fn every_kind_of_content_comes_back_as_it_was(db: World) {
    let db = db.with_session();
    let parts = json!([{"type": "text", "text": "café 東京"}, {"type": "image", "n": 1.5}]);
    for content in [
        Content::None,
        Content::from(""),
        Content::from("plain"),
        Content::from("a\0b"),
        Content::from(parts.clone()),
        Content::from(json!({"k": null})),
        Content::Bytes(vec![0, 255]),
    ] {
        db.append_message("s", NewMessage::new("user", content.clone())).expect("appends");
        assert_eq!(all(&db).last().expect("is there").content(), content);
    }
    db.append_message("s", NewMessage::new("user", json!(5))).expect("appends");
    db.append_message("s", NewMessage::new("user", json!(true))).expect("appends");
    let texts: Vec<_> = all(&db)[7..].iter().map(Message::content).collect();
    assert_eq!(texts, [Content::from("5"), Content::from("1")], "the column makes text of numbers");
    // What a server's text cannot hold stands there for it.
    let raw = db.seen_from_outside("SELECT content FROM messages WHERE id = 5");
    let raw = raw.trim_start_matches(['\0', '\u{10fffe}']);
    assert_eq!(
        raw, "json:[{\"type\": \"text\", \"text\": \"caf\\u00e9 \\u6771\\u4eac\"}, {\"type\": \"image\", \"n\": 1.5}]",
        "in the form older releases read"
    );
}

fn every_field_is_stored_for_every_role(db: World) {
    let db = db.with_session();
    let message = NewMessage::new("tool", "out")
        .tool_name("read_file")
        .tool_calls(json!([{"id": "k1"}, {"id": "k2"}]))
        .tool_call_id("k0")
        .token_count(7)
        .finish_reason("stop")
        .reasoning("because")
        .reasoning_content("")
        .reasoning_details("[1]")
        .codex_reasoning_items("[2]")
        .codex_message_items("[3]")
        .platform_message_id("tg-1")
        .observed(true)
        .effect_disposition("none")
        .timestamp(12.5)
        .api_content("");
    db.append_message("s", message).expect("appends");
    let stored = &all(&db)[0];
    let columns = stored.record().columns();
    assert_eq!((columns.len(), &*columns[0]), (21, "id"));
    for (column, value) in [
        ("tool_name", Value::from("read_file")),
        ("tool_calls", Value::from(r#"[{"id": "k1"}, {"id": "k2"}]"#)),
        ("tool_call_id", "k0".into()),
        ("token_count", 7.into()),
        ("finish_reason", "stop".into()),
        ("reasoning", "because".into()),
        ("reasoning_content", "".into()),
        ("reasoning_details", "[1]".into()),
        ("codex_reasoning_items", "[2]".into()),
        ("codex_message_items", "[3]".into()),
        ("platform_message_id", "tg-1".into()),
        ("observed", 1.into()),
        ("effect_disposition", "none".into()),
        ("timestamp", 12.5.into()),
        ("api_content", "".into()),
        ("active", 1.into()),
        ("compacted", 0.into()),
    ] {
        assert_eq!(stored.record().get(column), Some(&value), "{column}");
    }
    let session = db.session("s").expect("reads").expect("is there");
    assert_eq!((session.message_count(), session.record().integer("tool_call_count")), (1, Some(2)));
}

fn tool_calls_are_counted_and_not_encoded_twice(db: World) {
    let db = db.with_session();
    for (calls, text, count) in [
        (json!(null), None, 0),
        (json!([]), None, 0),
        (json!({}), None, 0),
        (json!("nonsense"), None, 0),
        (json!("[{\"id\": \"k\"}]"), Some(r#"[{"id": "k"}]"#), 1),
        (json!({"id": "k"}), Some(r#"{"id": "k"}"#), 1),
        (json!([1, 2, 3]), Some("[1, 2, 3]"), 3),
    ] {
        let before = db.session("s").expect("reads").expect("is there").record().integer("tool_call_count");
        db.append_message("s", NewMessage::new("assistant", "x").tool_calls(calls.clone())).expect("appends");
        let after = db.session("s").expect("reads").expect("is there").record().integer("tool_call_count");
        assert_eq!(all(&db).last().expect("is there").record().text("tool_calls"), text, "{calls}");
        assert_eq!(after.zip(before).map(|(after, before)| after - before), Some(count), "{calls}");
    }
}

fn order_is_that_of_storing_whatever_the_clocks_say(db: World) {
    let db = db.with_session();
    for time in [100.0, 100.1, 100.05, -3600.0, 100.2] {
        db.append_message("s", NewMessage::new("user", time.to_string()).timestamp(time)).expect("appends");
    }
    let times: Vec<_> = all(&db).iter().map(Message::timestamp).collect();
    assert_eq!(times, [100.0, 100.1, 100.05, -3600.0, 100.2]);
}

fn a_batch_is_stored_whole_or_not_at_all_with_ascending_ids_and_times(db: World) {
    let db = db.with_session();
    let batch = || {
        vec![
            NewMessage::new("user", "one"),
            NewMessage::new("user", "two").timestamp(4e9),
            NewMessage::new("user", "three"),
        ]
    };
    let ids = db.append_messages("s", batch()).expect("appends").stored().expect("stored");
    assert!(ids.len() == 3 && ids.is_sorted());
    let times: Vec<_> = all(&db).iter().map(Message::timestamp).collect();
    assert!(times[0] < times[1] && times[1] < times[2], "{times:?}");
    let mut broken = batch();
    broken.push(NewMessage::new(None::<&str>, "no role"));
    assert!(matches!(db.append_messages("s", broken), Err(Error::Constraint { .. })));
    assert_eq!(db.message_count(Some("s")).expect("counts"), 3);
    assert_eq!(db.session("s").expect("reads").expect("is there").message_count(), 3);
    assert_eq!(db.append_messages("s", vec![]).expect("nothing to do").stored().expect("stored"), Vec::<i64>::new());
}

fn a_missing_session_takes_no_message(db: World) {
    let db = db.with_session();
    let error = db.append_message("nobody", NewMessage::new("user", "x")).expect_err("is missing");
    assert!(
        matches!(&error, Error::Constraint { .. }) && error.to_string().to_lowercase().contains("foreign key"),
        "{error}"
    );
    assert_eq!(db.message_count(None).expect("counts"), 0);
}

fn pages_are_cut_after_the_filter_and_inactive_rows_are_shown_on_request(db: World) {
    let mut db = db.with_session();
    for n in 0..6 {
        db.append_message("s", NewMessage::new("user", n.to_string())).expect("appends");
    }
    db.behind_its_back("UPDATE messages SET active = 0 WHERE id IN (2, 3)");
    let texts = |include_inactive, limit, offset| -> Vec<String> {
        db.messages("s", &MessageQuery { include_inactive, limit, offset })
            .expect("reads")
            .iter()
            .map(|message| message.content().text().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(texts(false, None, 0), ["0", "3", "4", "5"]);
    assert_eq!(texts(true, None, 0).len(), 6);
    assert_eq!(texts(false, Some(2), 1), ["3", "4"]);
    assert_eq!(texts(false, None, 3), ["5"]);
    assert_eq!(
        (texts(false, Some(0), 0).len(), texts(false, Some(-1), -2).len(), texts(false, None, 99).len()),
        (0, 4, 0)
    );
    assert_eq!(db.message_count(Some("s")).expect("counts"), 6, "the count is of rows in any state");
    assert_eq!(db.message_count(Some("nobody")).expect("counts"), 0);
}

fn meta_keeps_what_it_is_given_and_overwrites(db: World) {
    let db = db.with_session();
    assert_eq!(db.meta("k").expect("reads"), None);
    for value in ["v", "", "w"] {
        db.set_meta("k", value).expect("sets");
        assert_eq!(db.meta("k").expect("reads").as_deref(), Some(value));
    }
    db.set_meta("", "empty key").expect("sets");
    assert_eq!(db.meta("").expect("reads").as_deref(), Some("empty key"));
    db.set_meta("n", 5).expect("sets");
    assert_eq!(db.meta("n").expect("reads").as_deref(), Some("5"), "the column makes text of numbers");
    db.set_meta("k", Value::Null).expect("sets");
    assert_eq!(db.meta("k").expect("reads"), None);
}

on_each_engine! {
    every_kind_of_content_comes_back_as_it_was
    every_field_is_stored_for_every_role
    tool_calls_are_counted_and_not_encoded_twice
    order_is_that_of_storing_whatever_the_clocks_say
    a_batch_is_stored_whole_or_not_at_all_with_ascending_ids_and_times
    a_missing_session_takes_no_message
    pages_are_cut_after_the_filter_and_inactive_rows_are_shown_on_request
    meta_keeps_what_it_is_given_and_overwrites
}
