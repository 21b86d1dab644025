//! How sessions descend from each other: roots, compressed conversations, and which session a resumed id leads to.

use hermes_state::{NewMessage, NewSession, SessionDb};

use crate::world::{World, on_each_engine};

fn create(db: &SessionDb, id: &str, parent: Option<&str>) {
    db.create_session(NewSession::new(id, "cli").parent_session_id(parent)).expect("creates");
}

fn create_with(db: &SessionDb, id: &str, parent: &str, config: &str) {
    let session = NewSession::new(id, "cli").parent_session_id(parent).model_config(config);
    db.create_session(session).expect("creates");
}

fn say(db: &SessionDb, id: &str) {
    db.append_message(id, NewMessage::new("user", "hi")).expect("appends");
}

fn compress(db: &SessionDb, id: &str) {
    db.end_session(id, "compression").expect("ends");
}

fn every_link_counts_up_to_the_root(db: World) {
    create(&db, "root", None);
    create_with(&db, "branch", "root", r#"{"_branched_from": "root"}"#);
    create_with(&db, "agent", "branch", r#"{"_delegate_from": "branch"}"#);
    assert_eq!(db.session_lineage("agent").unwrap(), ["root", "branch", "agent"]);
    for (id, root) in [("agent", "root"), ("root", "root"), ("nobody", "nobody"), ("", "")] {
        assert_eq!(db.conversation_root(id).unwrap(), root);
    }
}

fn of_a_hundred_generations_the_hundredth_is_the_root(db: World) {
    create(&db, "g0", None);
    for number in 1..=150 {
        create(&db, &format!("g{number}"), Some(&format!("g{}", number - 1)));
    }
    assert_eq!(db.conversation_root("g99").unwrap(), "g0");
    assert_eq!(db.conversation_root("g100").unwrap(), "g1");
    assert_eq!(db.conversation_root("g150").unwrap(), "g51");
    assert_eq!(db.session_lineage("g150").unwrap().len(), 100);
}

fn rings_end_with_a_member(db: World) {
    for id in ["a", "b", "c"] {
        create(&db, id, None);
        compress(&db, id);
    }
    let mut db = db;
    db.behind_its_back(
        "UPDATE sessions SET parent_session_id = 'b' WHERE id = 'a'; \
         UPDATE sessions SET parent_session_id = 'c' WHERE id = 'b'; \
         UPDATE sessions SET parent_session_id = 'a' WHERE id = 'c'",
    );
    assert_eq!(db.session_lineage("a").unwrap(), ["c", "b", "a"]);
    let mut line = db.compression_lineage("a").unwrap();
    line.sort();
    assert_eq!(line, ["a", "b", "c"]);
    assert!(["a", "b", "c"].contains(&db.resolve_resume_session_id("a").unwrap().as_str()));
}

fn a_compressed_conversation_is_all_its_sessions_whichever_is_asked_for(db: World) {
    create(&db, "one", None);
    compress(&db, "one");
    create(&db, "two", Some("one"));
    compress(&db, "two");
    create(&db, "three", Some("two"));
    for id in ["one", "two", "three"] {
        assert_eq!(db.compression_lineage(id).unwrap(), ["one", "two", "three"]);
    }
    create_with(&db, "branch", "two", r#"{"_branched_from": "two"}"#);
    assert_eq!(db.compression_lineage("branch").unwrap(), ["branch"]);
    create_with(&db, "agent", "two", r#"{"_delegate_from": "two"}"#);
    assert_eq!(db.compression_lineage("agent").unwrap(), ["agent"], "beside the line");
    assert!(db.compression_lineage("nobody").unwrap().is_empty());
    assert!(db.compression_lineage("").unwrap().is_empty());
    create(&db, "child of a live one", Some("three"));
    assert_eq!(db.compression_lineage("child of a live one").unwrap(), ["child of a live one"]);
}

/// The reference takes the earliest child here and the best one elsewhere.
fn lineage_and_tip_name_the_same_sessions(db: World) {
    create(&db, "one", None);
    compress(&db, "one");
    create_with(&db, "agent", "one", r#"{"_delegate_from": "one"}"#);
    create(&db, "dead end", Some("one"));
    db.end_session("dead end", "done").unwrap();
    create(&db, "goes on", Some("one"));
    compress(&db, "goes on");
    create(&db, "tip", Some("goes on"));
    say(&db, "tip");
    assert_eq!(db.compression_lineage("one").unwrap(), ["one", "goes on", "tip"]);
    assert_eq!(db.compression_lineage("dead end").unwrap(), ["dead end"]);
    assert_eq!(db.resolve_resume_session_id("one").unwrap(), "tip");
}

fn a_resumed_id_leads_to_the_deepest_session_with_messages(db: World) {
    create(&db, "s", None);
    assert_eq!(db.resolve_resume_session_id("s").unwrap(), "s", "nobody has messages");
    create(&db, "child", Some("s"));
    create(&db, "grandchild", Some("child"));
    say(&db, "s");
    assert_eq!(db.resolve_resume_session_id("s").unwrap(), "s");
    say(&db, "child");
    assert_eq!(db.resolve_resume_session_id("s").unwrap(), "child", "though shallower ones have messages, too");
    say(&db, "grandchild");
    assert_eq!(db.resolve_resume_session_id("s").unwrap(), "grandchild");
    create(&db, "later", Some("s"));
    assert_eq!(db.resolve_resume_session_id("s").unwrap(), "s", "the latest child leads elsewhere");
    for id in ["nobody", ""] {
        assert_eq!(db.resolve_resume_session_id(id).unwrap(), id);
    }
}

fn branches_delegates_and_tools_are_not_resumed_into(db: World) {
    create(&db, "s", None);
    create_with(&db, "branch", "s", r#"{"_branched_from": "s"}"#);
    create_with(&db, "agent", "s", r#"{"_delegate_from": "s"}"#);
    db.create_session(NewSession::new("tool", "tool").parent_session_id("s")).unwrap();
    create_with(&db, "odd", "s", "no json");
    for id in ["branch", "agent", "tool"] {
        say(&db, id);
    }
    assert_eq!(db.resolve_resume_session_id("s").unwrap(), "s");
    say(&db, "odd");
    assert_eq!(db.resolve_resume_session_id("s").unwrap(), "odd", "malformed configuration marks nothing");
}

/// The page has it so: after a compression the continuation is what is resumed, empty or not.
fn a_compressed_session_is_resumed_at_its_tip_even_if_that_is_empty(db: World) {
    create(&db, "s", None);
    say(&db, "s");
    compress(&db, "s");
    create(&db, "tip", Some("s"));
    assert_eq!(db.resolve_resume_session_id("s").unwrap(), "tip");
}

fn a_resumed_id_is_followed_through_thirty_two_sessions(db: World) {
    create(&db, "g0", None);
    for number in 1..40 {
        create(&db, &format!("g{number}"), Some(&format!("g{}", number - 1)));
    }
    say(&db, "g39");
    assert_eq!(db.resolve_resume_session_id("g0").unwrap(), "g0");
    say(&db, "g31");
    say(&db, "g32");
    assert_eq!(db.resolve_resume_session_id("g0").unwrap(), "g31");
}

on_each_engine! {
    every_link_counts_up_to_the_root
    of_a_hundred_generations_the_hundredth_is_the_root
    rings_end_with_a_member
    a_compressed_conversation_is_all_its_sessions_whichever_is_asked_for
    lineage_and_tip_name_the_same_sessions
    a_resumed_id_leads_to_the_deepest_session_with_messages
    branches_delegates_and_tools_are_not_resumed_into
    a_compressed_session_is_resumed_at_its_tip_even_if_that_is_empty
    a_resumed_id_is_followed_through_thirty_two_sessions
}
