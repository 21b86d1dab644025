//! Transcripts that are written anew: replaced, cleared, compacted; and messages counted once however often they were kept.

use hermes_state::{Content, Error, Message, MessageQuery, NewMessage, SearchOptions, SessionDb};
use serde_json::json;

use crate::world::{World, on_each_engine};

fn rows(db: &SessionDb, include_inactive: bool) -> Vec<Message> {
    db.messages("s", &MessageQuery { include_inactive, ..MessageQuery::default() }).expect("reads")
}

fn texts(db: &SessionDb) -> Vec<String> {
    rows(db, false).iter().map(|row| row.content().text().unwrap_or_default().to_owned()).collect()
}

fn counters(db: &SessionDb) -> (i64, i64) {
    let session = db.session("s").expect("reads").expect("is there");
    (session.message_count(), session.record().integer("tool_call_count").expect("a number"))
}

fn say(db: &SessionDb, text: &str) -> i64 {
    db.append_message("s", NewMessage::new("user", text)).expect("appends").stored().expect("stored")
}

fn batch(texts: &[&str]) -> Vec<NewMessage> {
    texts.iter().map(|text| NewMessage::new("user", *text)).collect()
}

fn found(db: &SessionDb, word: &str) -> usize {
    db.search_messages(word, &SearchOptions::default()).expect("searches").len()
}

fn distinct(db: &SessionDb) -> i64 {
    db.distinct_message_count("s").expect("counts")
}

/// A stored message as one that is handed over again, with its time or without.
fn again(row: &Message, timed: bool) -> NewMessage {
    let column = |name: &str| row.record().get(name).cloned().unwrap_or_default();
    let calls = row.record().text("tool_calls").map_or(json!(null), |text| json!(text));
    let message = NewMessage::new(row.role(), row.content()).tool_calls(calls).tool_call_id(column("tool_call_id"));
    if timed { message.timestamp(row.timestamp()) } else { message }
}

fn a_transcript_is_replaced_whole(db: World) {
    let db = db.with_session();
    say(&db, "quokkaone");
    let calls = NewMessage::new("assistant", "quokkatwo").tool_calls(json!([{"id": "a"}, {"id": "b"}]));
    db.append_message("s", calls).expect("appends");
    let anew = vec![
        NewMessage::new("user", "wombatone"),
        NewMessage::new("assistant", Content::None).tool_calls(json!([{"id": "k"}])).reasoning("because"),
        NewMessage::new("tool", "out").reasoning("kept for none but the model").timestamp(1.5),
    ];
    db.replace_messages("s", anew, false).expect("replaces");
    assert_eq!(counters(&db), (3, 1));
    assert_eq!((found(&db, "quokkaone"), found(&db, "wombatone")), (0, 1));
    let rows = rows(&db, true);
    assert!(rows.iter().map(Message::id).eq([3, 4, 5]), "ids are never used again");
    assert_eq!(rows[1].record().text("reasoning"), Some("because"));
    assert_eq!((rows[2].record().text("reasoning"), rows[2].timestamp()), (None, 1.5));
    assert!(rows[0].timestamp() < rows[1].timestamp());
    db.replace_messages("s", vec![], false).expect("replaces");
    assert_eq!((counters(&db), db.message_count(Some("s")).expect("counts")), ((0, 0), 0));
}

fn a_transcript_is_replaced_but_for_what_is_not_active(db: World) {
    let db = db.with_session();
    say(&db, "archived");
    db.archive_and_compact("s", batch(&["summary"])).expect("compacts");
    let undone = say(&db, "undone");
    db.rewind_to_message("s", undone).expect("rewinds");
    db.replace_messages("s", batch(&["one", "two"]), true).expect("replaces");
    assert_eq!((texts(&db), counters(&db)), (vec!["one".to_owned(), "two".to_owned()], (2, 0)));
    assert_eq!(rows(&db, true).iter().map(Message::id).collect::<Vec<_>>(), [1, undone, 4, 5]);
    db.replace_messages("s", vec![], true).expect("replaces");
    assert_eq!((counters(&db), db.message_count(Some("s")).expect("counts")), ((0, 0), 2));
}

fn what_cannot_be_stored_changes_nothing(db: World) {
    let db = db.with_session();
    say(&db, "here");
    let mut broken = batch(&["one"]);
    broken.push(NewMessage::new(None::<&str>, "no role"));
    for active_only in [false, true] {
        let error = db.replace_messages("s", broken.clone(), active_only).expect_err("is refused");
        assert!(matches!(error, Error::Constraint { .. }), "{error:?}");
    }
    assert!(matches!(db.archive_and_compact("s", broken), Err(Error::Constraint { .. })));
    assert_eq!((texts(&db), counters(&db), rows(&db, true).len()), (vec!["here".to_owned()], (1, 0), 1));
    assert!(matches!(db.replace_messages("nobody", batch(&["x"]), false), Err(Error::Constraint { .. })));
    assert!(matches!(db.archive_and_compact("nobody", batch(&["x"])), Err(Error::Constraint { .. })));
    db.replace_messages("nobody", vec![], false).expect("nothing to do");
    assert_eq!(db.archive_and_compact("nobody", vec![]).expect("nothing to do"), 0);
}

fn a_cleared_session_is_empty_and_stays(db: World) {
    let db = db.with_session();
    let call = NewMessage::new("assistant", "wombatone").tool_calls(json!([{"id": "k"}]));
    db.append_message("s", call).expect("appends");
    db.archive_and_compact("s", batch(&["summary"])).expect("compacts");
    db.clear_messages("s").expect("clears");
    assert_eq!((counters(&db), rows(&db, true).len(), found(&db, "wombatone")), ((0, 0), 0, 0));
    db.clear_messages("nobody").expect("nothing to do");
    say(&db, "again");
    assert_eq!(counters(&db), (1, 0));
}

fn what_is_compacted_is_archived_and_found(db: World) {
    let db = db.with_session();
    assert!(!db.has_archived_messages("s").expect("looks"));
    for n in 0..5 {
        say(&db, &format!("quokka{n}"));
    }
    let undone = say(&db, "undone");
    db.rewind_to_message("s", undone).expect("rewinds");
    assert!(db.has_archived_messages("s").expect("looks"), "rewound ones count");
    let call = NewMessage::new("assistant", "quokka4").tool_calls(json!([1, 2]));
    assert_eq!(db.archive_and_compact("s", vec![NewMessage::new("user", "sum"), call]).expect("compacts"), 2);
    assert_eq!(counters(&db), (2, 2));
    assert_eq!(texts(&db), ["sum", "quokka4"]);
    let states: Vec<_> = rows(&db, true)
        .iter()
        .map(|row| (row.record().integer("active").unwrap_or(9), row.record().integer("compacted").unwrap_or(9)))
        .collect();
    assert_eq!(states, [(0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 0), (1, 0), (1, 0)]);
    assert_eq!((found(&db, "quokka2"), found(&db, "undone")), (1, 0));
    assert!(db.has_archived_messages("s").expect("looks") && !db.has_archived_messages("nobody").expect("looks"));
}

fn what_was_sent_is_noted_for_the_newest_message_of_the_user(db: World) {
    let db = db.with_session();
    let parts = json!([{"type": "text", "text": "look"}]);
    let sent = |content: Content, api: Option<&str>| db.set_latest_user_api_content("s", content, api).expect("sets");
    assert!(!sent("x".into(), Some("y")), "there is none");
    say(&db, "earlier");
    db.append_message("s", NewMessage::new("user", parts.clone())).expect("appends");
    db.append_message("s", NewMessage::new("assistant", "since")).expect("appends");
    assert!(!sent("earlier".into(), Some("y")), "it is not the newest");
    assert!(sent(parts.clone().into(), Some("look, really")));
    let noted = || rows(&db, false)[1].record().text("api_content").map(str::to_owned);
    assert_eq!(noted().as_deref(), Some("look, really"));
    assert!(!sent("look".into(), None) && sent(parts.into(), None));
    assert_eq!(noted(), None);
    db.append_message("s", NewMessage::new("user", Content::None)).expect("appends");
    assert!(!sent("".into(), Some("y")) && sent(Content::None, Some("y")), "empty text is not nothing");
    assert_eq!(counters(&db), (4, 0));
}

fn an_id_of_the_platform_is_found_in_any_state(db: World) {
    let db = db.with_session();
    let has = |id: &str| db.has_platform_message_id("s", id).expect("looks");
    let known = NewMessage::new("user", "hi").platform_message_id("tg-7");
    db.append_message("s", known).expect("appends");
    db.append_message("s", NewMessage::new("user", "n").platform_message_id(12)).expect("appends");
    assert!(has("tg-7") && has("12") && !has("tg-8"));
    assert!(db.has_platform_message_id("s", 12).expect("looks"), "numbers are compared by their text");
    db.rewind_to_message("s", 1).expect("rewinds");
    assert!(has("tg-7"));
    assert!(!db.has_platform_message_id("nobody", "tg-7").expect("looks"));
    assert!(!db.has_platform_message_id("s", None::<&str>).expect("looks"));
}

fn messages_that_three_compactions_keep_count_once(db: World) {
    let db = db.with_session();
    let many = (0..600).map(|n| NewMessage::new("user", format!("m{n}"))).collect();
    db.append_messages("s", many).expect("appends");
    assert_eq!(distinct(&db), 600);
    for round in 1..=3 {
        let mut kept: Vec<_> = db.recent_messages("s", 20).expect("reads").iter().map(|row| again(row, true)).collect();
        kept.insert(0, NewMessage::new("user", format!("summary {round}")));
        assert_eq!(db.archive_and_compact("s", kept).expect("compacts"), 21);
        assert_eq!((distinct(&db), counters(&db).0), (600 + round, 21));
        assert_eq!(db.message_count(Some("s")).expect("counts"), 600 + 21 * round);
    }
    assert_eq!(texts(&db)[1], "m580");
}

fn messages_kept_without_their_times_count_once(db: World) {
    let db = db.with_session();
    let same: Vec<_> = (0..50).map(|_| NewMessage::new("user", "ok")).collect();
    db.append_messages("s", same).expect("appends");
    let call = NewMessage::new("assistant", Content::None).tool_calls(json!([{"id": "k"}]));
    db.append_messages("s", vec![call, NewMessage::new("tool", "out").tool_call_id("k")]).expect("appends");
    for round in 1..=3 {
        let before = rows(&db, false);
        let kept = &before[before.len() - 10..];
        let mut batch = vec![NewMessage::new("user", format!("summary {round}"))];
        batch.extend(kept.iter().map(|row| again(row, false)));
        db.archive_and_compact("s", batch).expect("compacts");
        assert_eq!(distinct(&db), 52 + round, "equal messages are as many as there were");
        let times: Vec<_> = rows(&db, false)[1..].iter().map(Message::timestamp).collect();
        assert_eq!(times, kept.iter().map(Message::timestamp).collect::<Vec<_>>(), "they have their times");
    }
}

fn what_is_said_again_after_a_compaction_counts_again(db: World) {
    let db = db.with_session();
    say(&db, "yes");
    say(&db, "no");
    let times: Vec<_> = rows(&db, false).iter().map(Message::timestamp).collect();
    // The first is new, since what comes after it has its time; so is what is like nothing.
    let kept = again(&rows(&db, false)[1], true);
    db.archive_and_compact("s", vec![NewMessage::new("user", "yes"), kept, NewMessage::new("assistant", "no")])
        .expect("compacts");
    assert_eq!(distinct(&db), 4);
    assert!(rows(&db, false)[0].timestamp() > times[1]);
    say(&db, "yes");
    assert_eq!(distinct(&db), 5);
}

fn a_kept_message_takes_the_place_of_one_only(db: World) {
    let db = db.with_session();
    say(&db, "ok");
    db.archive_and_compact("s", batch(&["ok", "ok", "ok"])).expect("compacts");
    assert_eq!(distinct(&db), 3, "one of the three is kept, two are new");
    let times: Vec<_> = rows(&db, true).iter().map(Message::timestamp).collect();
    assert_eq!(times[0], times[3], "the last is the one that is kept");
}

fn equal_messages_of_one_moment_are_different_until_they_are_archived(db: World) {
    let db = db.with_session();
    let twice = |db: &SessionDb| {
        let message = NewMessage::new("user", "tick").timestamp(5.0);
        db.append_messages("s", vec![message.clone(), message]).expect("appends");
    };
    twice(&db);
    assert_eq!(distinct(&db), 2);
    let kept = rows(&db, false).iter().map(|row| again(row, true)).collect();
    db.archive_and_compact("s", kept).expect("compacts");
    assert_eq!(distinct(&db), 2);
    db.append_message("s", NewMessage::new("assistant", "tick").timestamp(5.0)).expect("appends");
    db.append_message("s", NewMessage::new("user", "tock").timestamp(5.0)).expect("appends");
    assert_eq!(distinct(&db), 4, "what differs is different");
    assert_eq!(db.distinct_message_count("nobody").expect("counts"), 0);
}

fn copies_by_other_programs_count_once(db: World) {
    let mut db = db.with_session();
    say(&db, "first");
    say(&db, "second");
    db.behind_its_back(
        "UPDATE messages SET active = 0, compacted = 1; \
         INSERT INTO messages (session_id, role, content, timestamp, active) \
         SELECT session_id, role, content, timestamp, 1 FROM messages WHERE id = 2; \
         INSERT INTO messages (session_id, role, content, timestamp, active) VALUES ('s', 'user', 'third', 9, 1)",
    );
    assert_eq!((distinct(&db), db.message_count(Some("s")).expect("counts")), (3, 4));
    // Rewinding and restoring makes nothing new.
    db.rewind_to_message("s", 3).expect("rewinds");
    assert_eq!(distinct(&db), 3);
    db.restore_rewound("s", 1).expect("restores");
    assert_eq!(distinct(&db), 3);
}

fn appends_beside_compactions_are_neither_lost_nor_miscounted(db: World) {
    let db = db.with_session();
    std::thread::scope(|scope| {
        let db = &db;
        for thread in 0..2 {
            scope.spawn(move || (0..30).for_each(|n| assert!(say(db, &format!("t{thread} {n}")) > 0)));
        }
        scope.spawn(move || {
            for n in 0..6 {
                db.archive_and_compact("s", batch(&[&format!("summary {n}")])).expect("compacts");
            }
        });
    });
    assert_eq!(db.message_count(Some("s")).expect("counts"), 66);
    assert_eq!(usize::try_from(counters(&db).0), Ok(rows(&db, false).len()));
}

on_each_engine! {
    a_transcript_is_replaced_whole
    a_transcript_is_replaced_but_for_what_is_not_active
    what_cannot_be_stored_changes_nothing
    a_cleared_session_is_empty_and_stays
    what_is_compacted_is_archived_and_found
    what_was_sent_is_noted_for_the_newest_message_of_the_user
    an_id_of_the_platform_is_found_in_any_state
    messages_that_three_compactions_keep_count_once
    messages_kept_without_their_times_count_once
    what_is_said_again_after_a_compaction_counts_again
    a_kept_message_takes_the_place_of_one_only
    equal_messages_of_one_moment_are_different_until_they_are_archived
    copies_by_other_programs_count_once
    appends_beside_compactions_are_neither_lost_nor_miscounted
}
