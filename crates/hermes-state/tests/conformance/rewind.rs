//! Rewinding and restoring: what is undone is out of the conversation and stays stored, and the counters agree.

use hermes_state::{Error, Message, MessageQuery, NewMessage, SearchOptions, SessionDb};
use serde_json::json;

use crate::world::{World, on_each_engine};

fn say(db: &SessionDb, role: &str, text: &str) -> i64 {
    db.append_message("s", NewMessage::new(role, text)).expect("appends").stored().expect("stored")
}

fn active(db: &SessionDb) -> Vec<i64> {
    db.messages("s", &MessageQuery::default()).expect("reads").iter().map(Message::id).collect()
}

/// The counters of messages, calls and rewinds, and the number of active rows.
fn counters(db: &SessionDb) -> (i64, i64, i64, usize) {
    let session = db.session("s").expect("reads").expect("is there");
    let of = |column| session.record().integer(column).expect("a number");
    (of("message_count"), of("tool_call_count"), of("rewind_count"), active(db).len())
}

fn hits(db: &SessionDb, include_inactive: bool) -> usize {
    let options = SearchOptions { include_inactive, ..SearchOptions::default() };
    db.search_messages("zebrafinch2", &options).expect("searches").len()
}

fn three_turns(db: World) -> World {
    let db = db.with_session();
    for turn in 0..3 {
        say(&db, "user", &format!("question {turn} {}", if turn == 2 { "zebrafinch2" } else { "" }));
        say(&db, "assistant", &format!("answer {turn}"));
    }
    db
}

fn undo_and_counters(db: World) {
    let db = three_turns(db);
    let standing = || (counters(&db).0, counters(&db).3);
    assert_eq!(standing(), (6, 6));
    let rewound = db.rewind_to_message("s", 5).expect("rewinds");
    assert_eq!((rewound.rewound_count, rewound.new_head_id, rewound.target.id()), (2, Some(4), 5));
    assert_eq!(rewound.target.record().integer("active"), Some(1), "as it was before");
    assert_eq!(standing(), (4, 4));
    say(&db, "user", "fresh");
    assert_eq!(standing(), (5, 5));
    let window = db.messages_around("s", 4, 5).expect("reads");
    assert_eq!(window.messages.iter().map(Message::id).collect::<Vec<_>>(), [1, 2, 3, 4, 7]);
    assert_eq!((hits(&db, false), hits(&db, true)), (0, 1));
    assert_eq!(db.restore_rewound("s", 1).expect("restores"), 2);
    assert_eq!(standing(), (7, 7));
    assert_eq!(hits(&db, false), 1);
}

fn a_second_rewind_changes_nothing_but_its_count(db: World) {
    let db = three_turns(db);
    db.rewind_to_message("s", 3).expect("rewinds");
    let again = db.rewind_to_message("s", 3).expect("rewinds");
    assert_eq!((again.rewound_count, again.new_head_id), (0, Some(2)));
    assert_eq!(again.target.record().integer("active"), Some(0));
    assert_eq!(counters(&db), (2, 0, 2, 2));
    let earlier = db.rewind_to_message("s", 1).expect("rewinds");
    assert_eq!((earlier.rewound_count, earlier.new_head_id), (2, None));
    assert_eq!(counters(&db), (0, 0, 3, 0));
}

fn calls_are_counted_by_the_rows_that_are_left(db: World) {
    let mut db = db.with_session();
    say(&db, "user", "one");
    let calls = |calls| NewMessage::new("assistant", "x").tool_calls(calls);
    db.append_message("s", calls(json!([{"id": "k1", "of": [1, 2]}, {"id": "k2"}]))).expect("appends");
    say(&db, "user", "two");
    db.append_message("s", calls(json!({"id": "k3"}))).expect("appends");
    db.append_message("s", calls(json!([]))).expect("appends");
    assert_eq!(counters(&db), (5, 3, 0, 5));
    db.rewind_to_message("s", 3).expect("rewinds");
    assert_eq!(counters(&db), (2, 2, 1, 2));
    // A counter that another program has left wrong is right again.
    db.behind_its_back("UPDATE sessions SET message_count = 40, tool_call_count = 40, rewind_count = 7");
    assert_eq!(db.restore_rewound("s", 4).expect("restores"), 2);
    assert_eq!(counters(&db), (4, 3, 7, 4));
    assert_eq!(active(&db), [1, 2, 4, 5]);
}

fn only_a_message_of_the_user_in_this_session_is_rewound_to(db: World) {
    let db = three_turns(db);
    db.create_session(hermes_state::NewSession::new("other", "cli")).expect("creates");
    db.append_message("other", NewMessage::new("user", "elsewhere")).expect("appends");
    for (target, told) in [(2, vec!["2", "'assistant'"]), (7, vec!["7", "session s"]), (99, vec!["99", "session s"])] {
        let error = db.rewind_to_message("s", target).expect_err("is refused");
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        assert!(told.iter().all(|part| error.to_string().contains(part)), "{error}");
    }
    assert!(matches!(db.rewind_to_message("nobody", 1), Err(Error::Invalid(_))));
    assert_eq!(counters(&db), (6, 0, 0, 6));
}

fn archived_messages_stay_archived(db: World) {
    let db = three_turns(db);
    db.archive_and_compact("s", vec![NewMessage::new("user", "summary"), NewMessage::new("assistant", "on")])
        .expect("compacts");
    let question = say(&db, "user", "and now");
    db.rewind_to_message("s", question).expect("rewinds");
    assert_eq!(counters(&db), (2, 0, 1, 2));
    // An archived target is one, and takes the rest of the conversation out.
    let rewound = db.rewind_to_message("s", 1).expect("rewinds");
    assert_eq!((rewound.rewound_count, rewound.target.record().integer("compacted")), (2, Some(1)));
    assert_eq!(counters(&db), (0, 0, 2, 0));
    assert_eq!(db.restore_rewound("s", 1).expect("restores"), 3);
    assert_eq!((counters(&db), active(&db)), ((3, 0, 2, 3), vec![7, 8, question]));
}

fn restoring_takes_those_from_an_id_on(db: World) {
    let db = three_turns(db);
    db.rewind_to_message("s", 1).expect("rewinds");
    assert_eq!(db.restore_rewound("s", 4).expect("restores"), 3);
    assert_eq!(active(&db), [4, 5, 6]);
    assert_eq!(db.restore_rewound("s", 4).expect("restores"), 0);
    assert_eq!(db.restore_rewound("nobody", 1).expect("restores"), 0);
    assert_eq!(counters(&db), (3, 0, 1, 3));
    assert_eq!(db.message_count(Some("s")).expect("counts"), 6);
}

fn writers_at_once_leave_counters_that_agree(db: World) {
    let db = three_turns(db);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let db = &db;
            scope.spawn(move || {
                for n in 0..20 {
                    say(db, "user", &format!("t{thread} {n}"));
                    match (thread, n % 5) {
                        (0, 4) => drop(db.rewind_to_message("s", 5).expect("rewinds")),
                        (1, 4) => drop(db.restore_rewound("s", 1).expect("restores")),
                        _ => {}
                    }
                }
            });
        }
    });
    let (messages, _, rewinds, rows) = counters(&db);
    assert_eq!((usize::try_from(messages), rewinds), (Ok(rows), 4));
    assert_eq!(db.message_count(Some("s")).expect("counts"), 66);
}

on_each_engine! {
    undo_and_counters
    a_second_rewind_changes_nothing_but_its_count
    calls_are_counted_by_the_rows_that_are_left
    only_a_message_of_the_user_in_this_session_is_rewound_to
    archived_messages_stay_archived
    restoring_takes_those_from_an_id_on
    writers_at_once_leave_counters_that_agree
}
