//! Merging two machines' histories.

use hermes_state::{
    Content, MessageQuery, MigrateOptions, NewMessage, NewSession, NewTopicBinding, SearchOptions, SessionDb,
};
use hermes_state_testkit::shared;

use crate::world::{World, must_be_whole, run};

fn say(db: &SessionDb, session: &str, texts: &[&str]) {
    db.create_session(NewSession::new(session, "cli")).expect("creates");
    for text in texts {
        db.append_message(session, NewMessage::new("user", *text)).expect("appends");
    }
}

fn said(db: &SessionDb, session: &str) -> Vec<String> {
    let messages = db.messages(session, &MessageQuery::default()).expect("reads");
    messages
        .iter()
        .map(|message| match message.content() {
            Content::Text(text) => text,
            other => format!("{other:?}"),
        })
        .collect()
}

fn bind(db: &SessionDb, thread: &str, session: &str) {
    db.bind_telegram_topic(NewTopicBinding::new("c", thread, session).user_id("u").session_key("k")).expect("binds");
}

fn bound(db: &SessionDb) -> Vec<String> {
    let bindings = db.list_telegram_topic_bindings_for_chat("c").expect("reads");
    let mut bound: Vec<_> = bindings.iter().map(|found| format!("{}={}", found.thread_id, found.session_id)).collect();
    bound.sort();
    bound
}

fn merge(into: &dyn AsRef<std::path::Path>) {
    let world = World::new();
    let from = world.path("laptop.db");
    let laptop = SessionDb::open(&from).expect("opens");
    say(&laptop, "both", &["the same", "only on the laptop"]);
    say(&laptop, "equal", &[]);
    say(&laptop, "parent", &["one", "two"]);
    laptop.create_session(NewSession::new("child", "cli").parent_session_id("parent")).expect("creates");
    say(&laptop, "child", &["harbour at the laptop"]);
    say(&laptop, "parent", &["three"]);
    laptop.set_session_title("parent", Some("Taken")).expect("titles");
    laptop.set_session_title("child", Some("Free")).expect("titles");
    for (thread, session) in [("1", "parent"), ("2", "child"), ("3", "both")] {
        bind(&laptop, thread, session);
    }
    laptop.set_meta("same", "1").expect("sets");
    laptop.set_meta("other", "laptop").expect("sets");
    laptop.set_meta("new", "laptop").expect("sets");

    let db = SessionDb::open(into).expect("opens");
    say(&db, "both", &["the same"]);
    say(&db, "here", &["a", "b", "c"]);
    db.set_session_title("here", Some("Taken")).expect("titles");
    bind(&db, "1", "here");
    bind(&db, "9", "both");
    db.set_meta("same", "1").expect("sets");
    db.set_meta("other", "here").expect("sets");

    let options = MigrateOptions::new().merge(true);
    let report = run(&from, into, &options).expect("merges");
    assert_eq!(said(&db, "both"), ["the same"], "a session of the target stays as it is");
    assert_eq!(said(&db, "here"), ["a", "b", "c"]);
    assert_eq!(said(&db, "parent"), ["one", "two", "three"]);
    assert_eq!(said(&db, "child"), ["harbour at the laptop"]);
    assert_eq!(db.session("child").expect("reads").expect("there").parent_session_id(), Some("parent"));
    assert_eq!(db.session_title("parent").expect("reads"), None, "the title belongs to another session here");
    assert_eq!(db.session_title("child").expect("reads").as_deref(), Some("Free"));
    assert_eq!(db.meta("other").expect("reads").as_deref(), Some("here"));
    assert_eq!(db.meta("new").expect("reads").as_deref(), Some("laptop"));
    assert_eq!(db.search_messages("harbour", &SearchOptions::default()).expect("searches").len(), 1);
    let table = |name: &str| report.tables.iter().find(|table| table.table == name).expect("a table").clone();
    assert_eq!((table("sessions").copied, table("sessions").kept), (3, 1), "{report:?}");
    assert_eq!((table("messages").renumbered, table("messages").kept_keys), (4, vec!["both".to_owned()]));
    let meta = table("state_meta");
    // The version of the tables of topics is the same too.
    assert_eq!((meta.copied, meta.same, meta.kept, meta.kept_keys), (1, 2, 1, vec!["\"other\"".to_owned()]));
    let kept = "a topic and a session of the target stay with each other";
    assert_eq!(bound(&db), ["1=here", "2=child", "9=both"], "{kept}");
    let bindings = table("telegram_dm_topic_bindings");
    let keys = ["\"c\", \"1\"", "\"c\", \"3\""].map(str::to_owned);
    assert_eq!((bindings.copied, bindings.kept, bindings.kept_keys), (1, 2, keys.to_vec()));

    // Once more: there is nothing left to bring over.
    let again = run(&from, into, &options).expect("merges");
    assert!(again.tables.iter().all(|table| table.copied == 0), "{again:?}");
    assert_eq!(said(&db, "parent").len(), 3);
}

#[test]
fn a_merge_into_a_file_brings_what_it_lacks_and_changes_nothing_else() {
    let world = World::new();
    merge(&world.path("here.db"));
    must_be_whole(&world.path("here.db"));
}

#[test]
fn a_merge_into_a_server_brings_what_it_lacks_and_changes_nothing_else() {
    let Some(server) = shared() else { return };
    let space = server.fresh();
    merge(&space.url());
}

#[test]
fn a_merge_that_was_cut_short_within_a_session_goes_on_within_it() {
    let world = World::new();
    let from = world.path("laptop.db");
    let laptop = SessionDb::open(&from).expect("opens");
    say(&laptop, "s", &["one", "two", "three"]);
    let to = SessionDb::open(world.path("here.db")).expect("opens");
    say(&to, "s", &["one", "two"]);
    let source = laptop.path().display().to_string();
    to.set_meta("unfinished_migration", format!(r#"{{"source":{source:?},"merge":true,"session":["s",2]}}"#))
        .expect("sets");
    let report = run(&from, world.path("here.db"), &MigrateOptions::new().merge(true)).expect("goes on");
    assert!(report.resumed);
    assert_eq!(said(&to, "s"), ["one", "two", "three"]);
}
