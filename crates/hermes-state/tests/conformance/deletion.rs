//! Deleting sessions: what goes with one, what stays, and that many go in steps that can be repeated.

use std::path::Path;

use hermes_state::{
    MessageQuery, NewMessage, NewSession, SearchOptions, SessionDb, SessionQuery, remove_session_files,
};

use crate::world::{World, on_each_engine};

fn create(db: &SessionDb, id: &str) {
    db.create_session(NewSession::new(id, "cli")).expect("creates");
}

fn child(db: &SessionDb, id: &str, parent: &str, config: Option<&str>) {
    db.create_session(NewSession::new(id, "cli").parent_session_id(parent).model_config(config)).expect("creates");
}

fn say(db: &SessionDb, id: &str, text: &str) {
    db.append_message(id, NewMessage::new("user", text)).expect("appends");
}

/// All sessions, in the order of their ids.
fn all(db: &SessionDb) -> Vec<String> {
    let query = SessionQuery { limit: -1, include_children: true, include_archived: true, ..SessionQuery::default() };
    let mut ids: Vec<String> =
        db.list_sessions(&query).expect("lists").iter().map(|session| session.id().to_owned()).collect();
    ids.sort();
    ids
}

fn parent(db: &SessionDb, id: &str) -> Option<String> {
    db.session(id).expect("reads").expect("is there").parent_session_id().map(str::to_owned)
}

fn hits(db: &SessionDb, word: &str) -> usize {
    db.search_messages(word, &SearchOptions::default()).expect("searches").len()
}

const DELEGATE_OF_P: Option<&str> = Some(r#"{"_delegate_from": "p"}"#);
const DELEGATE: Option<&str> = Some(r#"{"_delegate_from": false}"#);

fn a_session_goes_with_its_messages_and_delegates_and_its_children_stay(mut db: World) {
    create(&db, "p");
    say(&db, "p", "porcupine");
    child(&db, "agent", "p", DELEGATE_OF_P);
    say(&db, "agent", "armadillo");
    child(&db, "agents-agent", "agent", DELEGATE);
    child(&db, "agents-child", "agent", None);
    child(&db, "branch", "p", Some(r#"{"_branched_from": "p"}"#));
    child(&db, "kid", "p", None);
    child(&db, "grandkid", "kid", None);
    say(&db, "kid", "kingfisher");
    create(&db, "named");
    create(&db, "bystander");
    db.behind_its_back(
        "UPDATE sessions SET model_config = '{\"_delegate_from\": \"p\", \"_delegate_from\": \"x\"}' WHERE id = 'named'; \
         INSERT INTO session_model_usage (session_id, model) VALUES ('p', 'm'), ('kid', 'm'); \
         INSERT INTO gateway_routing (scope, session_key, entry_json, updated_at) VALUES ('', 'k', '{\"s\": \"p\"}', 1)",
    );
    assert!(!db.delete_session("nobody", None).expect("is unknown"));
    assert!(db.delete_session("p", None).expect("deletes"));
    assert!(!db.delete_session("p", None).expect("is gone"));
    assert_eq!(all(&db), ["agents-child", "branch", "bystander", "grandkid", "kid"]);
    assert_eq!((parent(&db, "kid"), parent(&db, "branch"), parent(&db, "agents-child")), (None, None, None));
    assert_eq!(parent(&db, "grandkid").as_deref(), Some("kid"));
    assert_eq!((hits(&db, "porcupine"), hits(&db, "armadillo"), hits(&db, "kingfisher")), (0, 0, 1));
    assert_eq!(db.seen_from_outside("SELECT COUNT(*) FROM messages"), "1");
    assert_eq!(db.seen_from_outside("SELECT COUNT(*) FROM session_model_usage"), "1");
    assert_eq!(db.seen_from_outside("SELECT COUNT(*) FROM gateway_routing"), "1");
}

fn of_listed_sessions_those_count_that_were_there(db: World) {
    create(&db, "p");
    child(&db, "listed-agent", "p", DELEGATE_OF_P);
    child(&db, "agent", "listed-agent", DELEGATE);
    create(&db, "q");
    create(&db, "stays");
    let none: [&str; 0] = [];
    assert_eq!(db.delete_sessions(none, None).expect("nothing to do"), 0);
    assert_eq!(db.delete_sessions(["x", "y"], None).expect("nothing there"), 0);
    assert_eq!(db.delete_sessions(["p", "q", "p", "x", "listed-agent"], None).expect("deletes"), 3);
    assert_eq!(all(&db), ["stays"]);
}

fn sessions_that_delegate_each_other_in_a_circle_all_go(mut db: World) {
    for id in ["a", "b", "c"] {
        create(&db, id);
    }
    db.behind_its_back(
        "UPDATE sessions SET parent_session_id = 'c', model_config = '{\"_delegate_from\": \"b\"}' WHERE id = 'a'; \
         UPDATE sessions SET parent_session_id = 'a', model_config = '{\"_delegate_from\": \"a\"}' WHERE id = 'b'; \
         UPDATE sessions SET parent_session_id = 'b', model_config = '{\"_delegate_from\": \"b\"}' WHERE id = 'c'",
    );
    assert_eq!(db.delete_sessions(["b"], None).expect("deletes"), 1);
    assert_eq!(all(&db).len(), 0);
}

fn a_quarter_of_a_million_ids_are_taken_at_once(db: World) {
    for n in 0..40 {
        create(&db, &format!("s{n}"));
        say(&db, &format!("s{n}"), "here today");
    }
    child(&db, "agent", "s0", DELEGATE);
    create(&db, "stays");
    assert_eq!(db.delete_sessions((0..250_000).map(|n| format!("s{n}")), None).expect("deletes"), 40);
    assert_eq!(all(&db), ["stays"]);
    assert_eq!(db.seen_from_outside("SELECT COUNT(*) FROM messages"), "0");
}

fn a_session_is_deleted_as_empty_only_without_title_message_and_child(mut db: World) {
    for id in ["bare", "titled", "said", "undone", "parent", "drifted"] {
        create(&db, id);
    }
    assert!(db.set_session_title("titled", Some("T")).expect("sets"));
    for id in ["said", "undone"] {
        say(&db, id, "x");
    }
    child(&db, "kid", "parent", None);
    db.behind_its_back(
        "UPDATE sessions SET message_count = 0 WHERE id = 'undone'; \
         UPDATE messages SET active = 0 WHERE session_id = 'undone'; \
         UPDATE sessions SET message_count = 5, archived = 1 WHERE id = 'drifted'",
    );
    for (id, goes) in [
        ("bare", true),
        ("bare", false),
        ("titled", false),
        ("said", false),
        ("undone", false),
        ("parent", false),
        ("drifted", true),
        ("nobody", false),
    ] {
        assert_eq!(db.delete_session_if_empty(id, None).expect("looks"), goes, "{id}");
    }
    assert_eq!(all(&db), ["kid", "parent", "said", "titled", "undone"]);
}

fn empty_sessions_are_those_without_rows_whatever_was_counted(mut db: World) {
    for id in ["empty", "empty-parent", "live", "archived", "titled", "drifted", "unknown"] {
        create(&db, id);
    }
    child(&db, "agent", "empty-parent", DELEGATE);
    child(&db, "kid", "empty-parent", None);
    say(&db, "agent", "albatross");
    say(&db, "drifted", "real words");
    assert!(db.set_session_title("titled", Some("T")).expect("sets"));
    for id in ["empty", "empty-parent", "archived", "titled", "drifted", "unknown"] {
        db.end_session(id, "done").expect("ends");
    }
    db.behind_its_back(
        "UPDATE sessions SET archived = 1 WHERE id = 'archived'; \
         UPDATE sessions SET message_count = 0 WHERE id = 'drifted'; \
         UPDATE sessions SET message_count = NULL WHERE id = 'unknown'",
    );
    assert_eq!(db.count_empty_sessions().expect("counts"), 2);
    assert_eq!(db.delete_empty_sessions(None).expect("deletes"), 2);
    assert_eq!(db.count_empty_sessions().expect("counts"), 0);
    assert_eq!(db.delete_empty_sessions(None).expect("nothing left"), 0);
    assert_eq!(all(&db), ["archived", "drifted", "kid", "live", "titled", "unknown"]);
    assert_eq!((hits(&db, "albatross"), hits(&db, "words")), (0, 1));
}

fn many_sessions_go_in_steps_and_others_write_between_them(db: World) {
    create(&db, "busy");
    let ids: Vec<String> = (0..300).map(|n| format!("s{n:03}")).collect();
    for id in &ids {
        create(&db, id);
        let messages = (0..6).map(|n| NewMessage::new("user", format!("message {n} of {id}")));
        db.append_messages(id.as_str(), messages.collect()).expect("appends");
    }
    let written = std::thread::scope(|scope| {
        let deleting = scope.spawn(|| db.delete_sessions(ids.clone(), None).expect("deletes"));
        let mut written = 0;
        while !deleting.is_finished() {
            say(&db, "busy", "in between");
            written += 1;
        }
        assert_eq!(deleting.join().expect("ends"), 300);
        written
    });
    assert!(written > 1, "{written} writes got in between");
    assert_eq!(all(&db), ["busy"]);
    let messages = db.messages("busy", &MessageQuery::default()).expect("reads");
    assert_eq!(messages.len(), written);
    assert_eq!(hits(&db, "message"), 0);
}

fn touch(folder: &Path, names: &[&str]) {
    for name in names {
        #[expect(clippy::disallowed_methods, reason = "files beside a store, none of its own")]
        std::fs::write(folder.join(name), "x").expect("writes");
    }
}

fn left(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

fn files_go_with_their_session_and_no_others(db: World) {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("sessions");
    std::fs::create_dir(&folder).expect("makes");
    touch(home.path(), &["out.json"]);
    touch(
        &folder,
        &[
            "a.json",
            "a.jsonl",
            "a.txt",
            "request_dump_a_.json",
            "request_dump_a_1.json",
            "request_dump_a_b_1_2.json",
            "request_dump_ab_1.json",
            "request_dump_x[1]_1.json",
            "x1.json",
            "x[1].json",
            "agent.json",
        ],
    );
    std::fs::create_dir(folder.join("nobody.json")).expect("makes");
    for id in ["a", "a_b", "x[1]", "../out", "*", "a/../a_b", "nobody"] {
        create(&db, id);
    }
    child(&db, "agent", "a", DELEGATE);
    assert!(!db.delete_session("unknown", Some(&folder)).expect("is unknown"));
    for id in ["../out", "*", "a/../a_b", "nobody"] {
        assert!(db.delete_session(id, Some(&folder)).expect("deletes"));
    }
    assert_eq!(left(&folder).len(), 12, "none of them has a file there");
    assert_eq!(left(home.path()), ["out.json", "sessions"]);
    assert_eq!(db.delete_sessions(["a", "x[1]"], Some(&folder)).expect("deletes"), 2);
    let names = ["a.txt", "nobody.json", "request_dump_a_b_1_2.json", "request_dump_ab_1.json", "x1.json"];
    assert_eq!(left(&folder), names);
    assert_eq!(db.delete_sessions(["a_b"], Some(&home.path().join("missing"))).expect("deletes"), 1);
    remove_session_files(&folder, "a_b");
    assert_eq!(left(&folder), ["a.txt", "nobody.json", "request_dump_ab_1.json", "x1.json"]);
}

fn a_handle_that_only_looks_deletes_nothing(db: World) {
    create(&db, "s");
    let looking = db.looking();
    assert!(looking.delete_session("s", None).is_err());
    assert!(looking.delete_sessions(["s"], None).is_err());
    assert!(!looking.delete_session("nobody", None).unwrap_or(false));
    assert_eq!(looking.count_empty_sessions().expect("reads"), 0);
    assert_eq!(all(&db), ["s"]);
}

on_each_engine! {
    a_session_goes_with_its_messages_and_delegates_and_its_children_stay
    of_listed_sessions_those_count_that_were_there
    sessions_that_delegate_each_other_in_a_circle_all_go
    a_quarter_of_a_million_ids_are_taken_at_once
    a_session_is_deleted_as_empty_only_without_title_message_and_child
    empty_sessions_are_those_without_rows_whatever_was_counted
    many_sessions_go_in_steps_and_others_write_between_them
    files_go_with_their_session_and_no_others
    a_handle_that_only_looks_deletes_nothing
}
