//! Parts of a transcript: the newest messages, those around one, and what a user said; always in the order of storing.

use hermes_state::{
    AnchoredViewOptions, ConversationOptions, Message, MessageQuery, MessageWindow, NewMessage, NewSession, SessionDb,
    SessionQuery,
};
use serde_json::json;

use crate::world::{World, on_each_engine};

fn ids(messages: &[Message]) -> Vec<i64> {
    messages.iter().map(Message::id).collect()
}

fn say(db: &SessionDb, session: &str, role: &str, text: &str) -> i64 {
    db.append_message(session, NewMessage::new(role, text)).expect("appends").stored().expect("stored")
}

fn around(db: &SessionDb, id: i64, window: i64) -> (Vec<i64>, usize, usize) {
    let MessageWindow { messages, before, after, .. } = db.messages_around("s", id, window).expect("reads");
    (ids(&messages), before, after)
}

fn a_clock_that_steps_back_inside_a_tool_round_changes_no_order(db: World) {
    let db = db.with_session();
    let base = 1_783_160_100.0;
    let calls = |ids: &[&str]| json!(ids.iter().map(|id| json!({"id": id})).collect::<Vec<_>>());
    let round = [
        (NewMessage::new("assistant", "a").tool_calls(calls(&["k1", "k2"])), 0.0),
        (NewMessage::new("tool", "b").tool_call_id("k1"), 0.10),
        (NewMessage::new("tool", "c").tool_call_id("k2"), 0.11),
        (NewMessage::new("assistant", "d").tool_calls(calls(&["k3"])), 0.05),
        (NewMessage::new("tool", "e").tool_call_id("k3"), -3600.0),
        (NewMessage::new("assistant", "done"), 0.2),
    ];
    for (message, offset) in round {
        db.append_message("s", message.timestamp(base + offset)).expect("appends");
    }
    let expected = [1, 2, 3, 4, 5, 6];
    assert_eq!(ids(&db.messages("s", &MessageQuery::default()).expect("reads")), expected);
    assert_eq!(ids(&db.recent_messages("s", -1).expect("reads")), expected);
    assert_eq!(around(&db, 4, 5), (expected.to_vec(), 3, 2));
    let options = ConversationOptions { repair_alternation: true, ..ConversationOptions::default() };
    let replayed = db.conversation("s", &options).expect("reads");
    let said: Vec<_> = replayed.iter().map(|message| message.text("content").unwrap_or_default()).collect();
    assert_eq!(said, ["a", "b", "c", "d", "e", "done"], "each result stands behind its call");
    let session = &db.list_sessions(&SessionQuery::default()).expect("lists")[0];
    assert_eq!(session.record().real("last_active"), Some(base + 0.2));
}

fn order_survives_any_clock(db: World) {
    let db = db.with_session();
    let clocks: [(&str, &[f64]); 5] = [
        ("all the same", &[7.0, 7.0, 7.0, 7.0]),
        ("backwards", &[4.0, 3.0, 2.0, 1.0]),
        ("before 1970", &[-1.0, -5.5, 0.0, -2.0]),
        ("at the end of days", &[f64::INFINITY, 1.0, f64::MAX, 2.0]),
        ("by a microsecond", &[1e9, 1e9 - 1e-6, 1e9 + 1e-6, 1e9]),
    ];
    for (name, times) in clocks {
        let before = db.message_count(Some("s")).expect("counts");
        let messages = times.iter().map(|time| NewMessage::new("user", name).timestamp(*time)).collect();
        let stored = db.append_messages("s", messages).expect("appends").stored().expect("stored");
        assert!(stored.is_sorted() && stored.len() == 4, "{name}: {stored:?}");
        let query = MessageQuery { offset: before, ..MessageQuery::default() };
        assert_eq!(ids(&db.messages("s", &query).expect("reads")), stored, "{name}");
        assert_eq!(ids(&db.recent_messages("s", 4).expect("reads")), stored, "{name}");
        assert_eq!(around(&db, stored[1], 1).0, stored[..3], "{name}");
    }
}

fn a_window_shows_where_a_session_begins_and_ends(db: World) {
    let db = db.with_session();
    db.create_session(NewSession::new("other", "cli")).expect("creates");
    for n in 0..9 {
        say(&db, "s", "user", &format!("s{n}"));
        say(&db, "other", "user", &format!("o{n}"));
    }
    // Every second id is the other session's.
    assert_eq!(around(&db, 9, 2), (vec![5, 7, 9, 11, 13], 2, 2));
    assert_eq!(around(&db, 1, 2), (vec![1, 3, 5], 0, 2));
    assert_eq!(around(&db, 17, 3), (vec![11, 13, 15, 17], 3, 0));
    assert_eq!(around(&db, 9, 0), (vec![9], 0, 0));
    assert_eq!(around(&db, 9, -4), (vec![9], 0, 0));
    assert_eq!(around(&db, 9, i64::MAX).0.len(), 9);
    for missing in [2, 0, -1, 99] {
        assert_eq!(around(&db, missing, 5), (vec![], 0, 0), "{missing}");
    }
    assert_eq!(db.messages_around("nobody", 9, 5).expect("reads"), MessageWindow::default());
    // Neighbours are found however far apart they are stored.
    let crowd = (0..300).map(|n| NewMessage::new("user", format!("c{n}"))).collect();
    db.append_messages("other", crowd).expect("appends");
    let late = say(&db, "s", "user", "late");
    assert_eq!(around(&db, late, 2), (vec![15, 17, late], 2, 0));
    assert_eq!(around(&db, 17, 1), (vec![15, 17, late], 1, 1));
}

fn archived_messages_are_shown_around_others_and_rewound_ones_only_when_asked_for(db: World) {
    let db = db.with_session();
    for n in 0..4 {
        say(&db, "s", "user", &format!("old{n}"));
    }
    db.archive_and_compact("s", vec![NewMessage::new("user", "summary")]).expect("compacts");
    let (rewound, last) = (say(&db, "s", "user", "undone"), say(&db, "s", "assistant", "undone too"));
    db.rewind_to_message("s", rewound).expect("rewinds");
    assert_eq!(around(&db, 5, 5), (vec![1, 2, 3, 4, 5], 4, 0));
    assert_eq!(around(&db, 2, 1), (vec![1, 2, 3], 1, 1), "an archived one is an anchor");
    assert_eq!(around(&db, last, 2), (vec![4, 5, last], 2, 0), "a rewound one shows itself, and not its like");
}

fn a_view_has_the_ends_of_its_session_beside_the_window(db: World) {
    let db = db.with_session();
    let mut all = Vec::new();
    for n in 0..12 {
        all.push(say(&db, "s", if n % 3 == 2 { "tool" } else { "user" }, &format!("m{n}")));
    }
    // 1 2 t 4 5 t 7 8 t 10 11 t
    let view = |id, options: AnchoredViewOptions| {
        let view = db.anchored_view("s", id, &options).expect("reads");
        (ids(&view.start), ids(&view.window.messages), ids(&view.end), view.window.before, view.window.after)
    };
    let options = |window, bookend| AnchoredViewOptions { window, bookend, ..AnchoredViewOptions::default() };
    assert_eq!(view(6, options(1, 2)), (vec![1, 2], vec![5, 6, 7], vec![10, 11], 1, 1), "the anchor has any role");
    assert_eq!(view(5, options(2, 3)), (vec![1, 2], vec![4, 5, 7], vec![8, 10, 11], 2, 2), "none is shown twice");
    assert_eq!(view(2, options(5, 3)).0, Vec::<i64>::new(), "the window reaches the beginning");
    assert_eq!(view(11, options(5, 3)).2, Vec::<i64>::new(), "the window reaches the end");
    assert_eq!(view(6, options(1, 0)), (vec![], vec![5, 6, 7], vec![], 1, 1));
    assert_eq!(view(6, options(1, -1)).0, Vec::<i64>::new());
    let every = AnchoredViewOptions { keep_roles: None, ..options(1, 3) };
    assert_eq!(view(6, every), (vec![1, 2, 3], vec![5, 6, 7], vec![10, 11, 12], 1, 1));
    let none = AnchoredViewOptions { keep_roles: Some(vec![]), ..options(1, 3) };
    assert_eq!(view(6, none), (vec![], vec![6], vec![], 1, 1));
    assert_eq!(view(99, options(1, 3)), (vec![], vec![], vec![], 0, 0));
}

fn ends_of_a_session_are_messages_that_say_something(db: World) {
    let db = db.with_session();
    let parts = json!([{"type": "text", "text": "look"}]);
    for content in [json!(null), json!(""), parts, json!("\u{0}nul"), json!("first")] {
        db.append_message("s", NewMessage::new("user", content)).expect("appends");
    }
    for n in 0..9 {
        say(&db, "s", "user", &format!("m{n}"));
    }
    let options = AnchoredViewOptions { window: 1, ..AnchoredViewOptions::default() };
    let view = db.anchored_view("s", 12, &options).expect("reads");
    assert_eq!(ids(&view.start), [3, 4, 5], "structured content, and text behind a NUL, say something");
    assert_eq!(ids(&view.end), [14]);
}

fn the_newest_messages_come_oldest_first(db: World) {
    let db = db.with_session();
    for n in 0..7 {
        say(&db, "s", "user", &format!("m{n}"));
    }
    db.rewind_to_message("s", 6).expect("rewinds");
    let newest = |limit| ids(&db.recent_messages("s", limit).expect("reads"));
    assert_eq!(newest(2), [4, 5]);
    assert_eq!((newest(0), newest(-1), newest(500)), (vec![], vec![1, 2, 3, 4, 5], vec![1, 2, 3, 4, 5]));
    assert_eq!(db.recent_messages("nobody", 5).expect("reads"), []);
}

fn what_a_user_said_is_a_line_of_eighty_characters(db: World) {
    let db = db.with_session();
    let long = "東".repeat(81);
    let parts = json!([{"type": "text", "text": " one\u{1c} two "}, {"type": "image"}, {"type": "text", "text": ""}]);
    let said = [
        (json!("  a\n\tb\u{2003}c "), "a b c".to_owned()),
        (json!("x".repeat(80)), "x".repeat(80)),
        (json!(long), format!("{}...", "東".repeat(77))),
        (parts, "one two".to_owned()),
        (json!([]), "[multimodal content]".to_owned()),
        (json!([{"type": "text", "text": 5}]), "[multimodal content]".to_owned()),
        (json!({"text": "object"}), String::new()),
        (json!(null), String::new()),
        (json!("\u{0}json:["), "\u{0}json:[".to_owned()),
        (json!("zero\u{200b}width"), "zero\u{200b}width".to_owned()),
    ];
    let mut expected = Vec::new();
    for (content, preview) in said {
        let id = db
            .append_message("s", NewMessage::new("user", content).timestamp(4.5))
            .expect("appends")
            .stored()
            .expect("stored");
        say(&db, "s", "assistant", "no user");
        expected.insert(0, (id, 4.5, preview));
    }
    let lines = |limit, inactive| -> Vec<_> {
        let lines = db.recent_user_messages("s", limit, inactive).expect("reads");
        lines.into_iter().map(|line| (line.id, line.timestamp, line.preview)).collect()
    };
    assert_eq!(lines(-1, false), expected);
    assert_eq!((lines(3, false), lines(0, false)), (expected[..3].to_vec(), vec![]));
    db.rewind_to_message("s", expected[1].0).expect("rewinds");
    assert_eq!(lines(-1, false), expected[2..]);
    assert_eq!(lines(2, true), expected[..2], "an audit sees them");
}

fn a_handle_that_only_looks_has_them_too(db: World) {
    let db = db.with_session();
    say(&db, "s", "user", "m");
    let looking = db.looking();
    assert_eq!(around(&looking, 1, 5).0, [1]);
    assert_eq!(ids(&looking.recent_messages("s", 5).expect("reads")), [1]);
    assert_eq!(looking.distinct_message_count("s").expect("counts"), 1);
}

on_each_engine! {
    a_clock_that_steps_back_inside_a_tool_round_changes_no_order
    order_survives_any_clock
    a_window_shows_where_a_session_begins_and_ends
    archived_messages_are_shown_around_others_and_rewound_ones_only_when_asked_for
    a_view_has_the_ends_of_its_session_beside_the_window
    ends_of_a_session_are_messages_that_say_something
    the_newest_messages_come_oldest_first
    what_a_user_said_is_a_line_of_eighty_characters
    a_handle_that_only_looks_has_them_too
}
