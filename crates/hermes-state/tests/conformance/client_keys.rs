//! Keys of callers: a message is stored once under its key, whoever writes it again.

use hermes_state::{Error, Message, MessageQuery, NewMessage, NewSession, SearchOptions, SessionDb};
use serde_json::json;

use crate::world::{World, on_each_engine};

const WORDS: [&str; 5] = ["alder", "birch", "cedar", "damson", "elm"];

fn keyed(number: usize) -> NewMessage {
    NewMessage::new("user", WORDS[number]).client_key(format!("k{}", number + 1))
}

fn batch(numbers: impl IntoIterator<Item = usize>) -> Vec<NewMessage> {
    numbers.into_iter().map(keyed).collect()
}

fn counter(db: &SessionDb) -> i64 {
    db.session("s").expect("reads").expect("is there").message_count()
}

fn rows(db: &SessionDb) -> Vec<Message> {
    db.messages("s", &MessageQuery { include_inactive: true, ..MessageQuery::default() }).expect("reads")
}

fn key(message: &Message) -> Option<&str> {
    message.client_key()
}

fn a_half_stored_batch_is_completed(db: World) {
    let db = db.with_session();
    let first = db.append_messages("s", batch(0..2)).expect("appends").stored().expect("stored");
    let all = db.append_messages("s", batch(0..5)).expect("appends").stored().expect("stored");
    assert_eq!((all.len(), &all[..2]), (5, &first[..]));
    assert_eq!(db.append_messages("s", batch(2..5)).expect("appends").stored().expect("stored"), all[2..]);
    assert_eq!(db.append_messages("s", batch(0..5)).expect("appends").stored().expect("stored"), all);
    assert_eq!(
        db.append_messages("s", batch([4, 1])).expect("appends").stored().expect("stored"),
        [all[4], all[1]],
        "in the order asked for"
    );
    assert_eq!((counter(&db), rows(&db).len()), (5, 5));
    assert_eq!(db.search_messages("birch", &SearchOptions::default()).expect("searches").len(), 1);
    assert_eq!(key(&rows(&db)[1]), Some("k2"));
}

fn another_message_under_a_known_key_is_refused(db: World) {
    let db = db.with_session();
    let known = db.append_message("s", keyed(0)).expect("appends").stored().expect("stored");
    for other in [
        NewMessage::new("user", "other"),
        NewMessage::new("assistant", "alder"),
        NewMessage::new("user", "alder").tool_calls(json!([1])),
        NewMessage::new("user", "alder").reasoning("because"),
        NewMessage::new("user", "alder").observed(true),
        NewMessage::new("user", json!(["alder"])),
        NewMessage::new("user", json!(null)),
    ] {
        let messages = vec![keyed(1), other.client_key("k1"), keyed(2)];
        match db.append_messages("s", messages) {
            Err(Error::ClientKeyInUse { session, key, message_id }) => {
                assert_eq!((session.as_str(), key.as_str(), message_id), ("s", "k1", Some(known)));
            }
            answer => panic!("{answer:?}"),
        }
    }
    assert_eq!((counter(&db), rows(&db).len()), (1, 1), "nothing of the batch was stored");
}

fn the_same_message_may_be_told_later(db: World) {
    let db = db.with_session();
    let message = || {
        NewMessage::new("assistant", json!([{"type": "text", "text": "é\u{0}"}]))
            .tool_calls(json!([{"id": "k"}]))
            .token_count(7)
            .tool_name(5)
            .client_key("k")
    };
    let id = db.append_message("s", message().timestamp(5.0)).expect("appends").stored().expect("stored");
    assert_eq!(
        db.append_message("s", message().timestamp(9.0).api_content("as sent"))
            .expect("appends")
            .stored()
            .expect("stored"),
        id
    );
    let stored = &rows(&db)[0];
    assert_eq!((stored.timestamp(), stored.record().text("api_content")), (5.0, None), "the first stays");
    let session = db.session("s").expect("reads").expect("is there");
    assert_eq!((session.message_count(), session.record().integer("tool_call_count")), (1, Some(1)));
}

fn a_key_is_of_its_session(db: World) {
    let db = db.with_session();
    db.create_session(NewSession::new("t", "cli")).expect("creates");
    let here = db.append_message("s", keyed(0)).expect("appends").stored().expect("stored");
    let there = db
        .append_message("t", NewMessage::new("user", "something else").client_key("k1"))
        .expect("appends")
        .stored()
        .expect("stored");
    assert_ne!(here, there);
    assert!(matches!(db.append_message("nobody", keyed(0)), Err(Error::Constraint { .. })));
}

fn what_is_no_key_is_refused(db: World) {
    let db = db.with_session();
    for (key, fits) in [("", false), (&*"é".repeat(255), true), (&*"é".repeat(256), false)] {
        let answer = db.append_message("s", NewMessage::new("user", "x").client_key(key));
        assert!(if fits { answer.is_ok() } else { matches!(answer, Err(Error::Invalid(_))) }, "{answer:?}");
    }
    let message = |key: hermes_state::Value| NewMessage::new("user", "x").client_key(key);
    assert!(matches!(db.append_message("s", message(1.5.into())), Err(Error::Invalid(_))));
    let numbered = db.append_message("s", message(7.into())).expect("appends").stored().expect("stored");
    assert_eq!(db.append_message("s", message("7".into())).expect("appends").stored().expect("stored"), numbered);
    assert_eq!(counter(&db), 2);
}

fn a_batch_may_name_a_message_twice(db: World) {
    let db = db.with_session();
    let plain = || NewMessage::new("user", "no key");
    let ids = db
        .append_messages("s", vec![keyed(0), plain(), keyed(0), plain(), keyed(1)])
        .expect("appends")
        .stored()
        .expect("stored");
    assert_eq!((ids[0], ids.len(), counter(&db)), (ids[2], 5, 4));
    assert_ne!(ids[1], ids[3], "without a key each is a message of its own");
    let other = NewMessage::new("user", "other").client_key("k9");
    let answer = db.append_messages("s", vec![other.clone(), plain(), NewMessage::new("tool", "x").client_key("k9")]);
    assert!(matches!(answer, Err(Error::ClientKeyInUse { message_id: None, .. })), "{answer:?}");
    assert_eq!(counter(&db), 4);
}

fn a_message_is_found_in_whatever_state_it_is(db: World) {
    let db = db.with_session();
    let ids = db.append_messages("s", batch(0..3)).expect("appends").stored().expect("stored");
    db.rewind_to_message("s", ids[2]).expect("rewinds");
    assert_eq!(db.append_message("s", keyed(2)).expect("appends").stored().expect("stored"), ids[2]);
    db.archive_and_compact("s", vec![NewMessage::new("user", "summary"), keyed(1), keyed(3)]).expect("compacts");
    assert_eq!(
        db.append_messages("s", batch(0..3)).expect("appends").stored().expect("stored"),
        ids,
        "the archived ones"
    );
    assert_eq!(counter(&db), 3);
    let keys: Vec<_> = rows(&db).iter().map(|row| key(row).map(str::to_owned)).collect();
    let expected = [Some("k1"), Some("k2"), Some("k3"), None, None, Some("k4")];
    assert_eq!(keys, expected.map(|key| key.map(str::to_owned)), "a copy leaves the key to what it copies");
}

fn keys_survive_that_a_transcript_is_written_anew(db: World) {
    let db = db.with_session();
    db.append_messages("s", batch(0..2)).expect("appends").stored().expect("stored");
    db.replace_messages("s", vec![keyed(0), NewMessage::new("user", "between"), keyed(1), keyed(1)], false)
        .expect("replaces");
    let rows_now = rows(&db);
    assert_eq!(rows_now.iter().map(key).collect::<Vec<_>>(), [Some("k1"), None, Some("k2"), None]);
    let ids = db.append_messages("s", batch(0..3)).expect("appends").stored().expect("stored");
    assert_eq!(ids[..2], [rows_now[0].id(), rows_now[2].id()]);
    assert_eq!(counter(&db), 5);
    db.clear_messages("s").expect("clears");
    assert_eq!(db.append_messages("s", batch(0..2)).expect("appends").stored().expect("stored").len(), 2);
    assert_eq!(counter(&db), 2, "what is gone is not known any more");
}

fn many_at_once_store_each_message_once(db: World) {
    let db = db.with_session();
    let answers: Vec<Vec<i64>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..6)
            .map(|writer| {
                let db = &db;
                scope.spawn(move || {
                    db.append_message("s", NewMessage::new("user", format!("own {writer}")))
                        .expect("appends")
                        .stored()
                        .expect("stored");
                    db.append_messages("s", batch(0..5)).expect("appends").stored().expect("stored")
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("ends")).collect()
    });
    assert!(answers.iter().all(|ids| *ids == answers[0]), "{answers:?}");
    assert_eq!((counter(&db), rows(&db).len()), (11, 11));
}

fn rows_of_other_programs_need_no_key(db: World) {
    let mut db = db.with_session();
    db.append_message("s", keyed(0)).expect("appends").stored().expect("stored");
    db.behind_its_back(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'alder', 1), ('s', 'user', 'alder', 2)",
    );
    assert_eq!(rows(&db).iter().map(key).collect::<Vec<_>>(), [Some("k1"), None, None]);
    db.append_messages("s", batch(0..2)).expect("appends").stored().expect("stored");
    assert_eq!(rows(&db).len(), 4);
}

on_each_engine! {
    a_half_stored_batch_is_completed
    another_message_under_a_known_key_is_refused
    the_same_message_may_be_told_later
    a_key_is_of_its_session
    what_is_no_key_is_refused
    a_batch_may_name_a_message_twice
    a_message_is_found_in_whatever_state_it_is
    keys_survive_that_a_transcript_is_written_anew
    many_at_once_store_each_message_once
    rows_of_other_programs_need_no_key
}
