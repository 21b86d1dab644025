//! Finding sessions: by the beginning of an id, by folder, along a compressed conversation.

use hermes_state::{Error, NewMessage, NewSession, SessionDb, Value};

use crate::world::{World, on_each_engine};

fn create(db: &SessionDb, id: &str) {
    db.create_session(NewSession::new(id, "cli")).expect("creates");
}

fn child(db: &SessionDb, id: &str, parent: &str) {
    db.create_session(NewSession::new(id, "cli").parent_session_id(parent)).expect("creates");
}

fn end(db: &SessionDb, id: &str, reason: &str) {
    db.end_session(id, reason).expect("ends");
}

fn said_at(db: &SessionDb, id: &str, time: f64) {
    db.append_message(id, NewMessage::new("user", "x").timestamp(time)).expect("appends");
}

fn tip(db: &SessionDb, id: &str) -> String {
    db.compression_tip(id).expect("reads")
}

fn an_id_is_found_by_its_beginning_if_that_is_enough(db: World) {
    let find = |text: &str| db.resolve_session_id(text).expect("reads");
    create(&db, "20260704_a");
    assert_eq!(find(""), None, "the empty text says nothing, even if there is only one");
    for id in ["20260704_ab", "20260705_x", "Under_score", "UnderXscore2", "per%cent", "é1", "back\\slash"] {
        create(&db, id);
    }
    for (text, found) in [
        ("20260704_a", Some("20260704_a")),
        ("20260704_ab", Some("20260704_ab")),
        ("20260704", None),
        ("20260705", Some("20260705_x")),
        ("UNDER_", Some("Under_score")),
        ("under", None),
        ("per%", Some("per%cent")),
        ("p%t", None),
        ("back\\", Some("back\\slash")),
        ("é", Some("é1")),
        ("É", None),
        ("score", None),
        ("nobody", None),
    ] {
        assert_eq!(find(text).as_deref(), found, "{text:?}");
    }
    child(&db, "zchild", "é1");
    db.set_session_archived("zchild", true).expect("archives");
    assert_eq!(find("zc").as_deref(), Some("zchild"), "children and what is archived too");
    assert!(matches!(db.resolve_session_id(&"%".repeat(25_000)), Err(Error::Engine { code: 1, .. })));
    assert_eq!(find(&"%".repeat(24_999)), None);
}

fn one_session_is_shown_as_in_a_listing(db: World) {
    db.create_session(NewSession::new("s", "cli").system_prompt("long")).expect("creates");
    said_at(&db, "s", 5.0);
    let row = db.rich_session("s", false).expect("reads").expect("is there");
    let columns = row.record().columns();
    assert_eq!((columns.len(), &*columns[46], &*columns[47]), (48, "last_active", "preview"));
    assert_eq!(
        (row.last_active(), row.preview(), row.record().text("system_prompt")),
        (Some(5.0), Some("x"), Some("long"))
    );
    let compact = db.rich_session("s", true).expect("reads").expect("is there");
    assert_eq!((compact.record().columns().len(), compact.record().get("system_prompt")), (47, None));
    assert_eq!(db.rich_session("nobody", false).expect("reads"), None);
    end(&db, "s", "compression");
    child(&db, "t", "s");
    assert_eq!(
        db.rich_session("s", false).expect("reads").expect("is there").id(),
        "s",
        "the row itself, not what follows"
    );
}

fn folders_are_counted_as_they_are_written(mut db: World) {
    for (id, cwd) in [
        ("a", Some("/x")),
        ("b", Some("/x")),
        ("c", Some("/X")),
        ("d", Some("  ")),
        ("e", Some("")),
        ("f", None),
        ("g", Some("\t")),
    ] {
        db.create_session(NewSession::new(id, "cli").cwd(cwd)).expect("creates");
    }
    db.create_session(NewSession::new("h", "cli").cwd("/x").parent_session_id("a")).expect("creates");
    db.create_session(NewSession::new("hidden", "cli").cwd("/y")).expect("creates");
    db.set_session_archived("hidden", true).expect("archives");
    said_at(&db, "a", 9e9);
    end(&db, "b", "done");
    db.behind_its_back(
        "UPDATE sessions SET started_at = 10; UPDATE sessions SET ended_at = 30.5 WHERE id = 'b'; \
         UPDATE sessions SET started_at = 20 WHERE id = 'h'; \
         UPDATE sessions SET ended_at = 5 WHERE id = 'c';",
    );
    let folders = |archived| {
        let found = db.working_folders(archived).expect("reads");
        found.into_iter().map(|folder| (folder.cwd, folder.sessions, folder.last_active)).collect::<Vec<_>>()
    };
    let shown = [("\t".to_owned(), 1, 10.0), ("/X".to_owned(), 1, 5.0), ("/x".to_owned(), 3, 30.5)];
    assert_eq!(folders(false), shown);
    assert_eq!(folders(true).len(), 4);
    assert_eq!(folders(true)[3], ("/y".to_owned(), 1, 10.0));
}

fn a_conversation_is_followed_to_its_last_continuation(db: World) {
    create(&db, "c1");
    assert_eq!(tip(&db, "c1"), "c1");
    child(&db, "early", "c1");
    assert_eq!(tip(&db, "c1"), "c1", "a child of a session that goes on is no continuation");
    end(&db, "c1", "compression");
    assert_eq!(tip(&db, "c1"), "early", "it may be older than its parent's end");
    end(&db, "early", "compression");
    child(&db, "c3", "early");
    assert_eq!((tip(&db, "c1"), tip(&db, "early"), tip(&db, "c3")), ("c3".into(), "c3".into(), "c3".into()));
    for unknown in ["", "nobody"] {
        assert_eq!(tip(&db, unknown), unknown);
    }
    end(&db, "c3", "compression");
    db.create_session(NewSession::new("tool", "tool").parent_session_id("c3")).expect("creates");
    for marker in ["_branched_from", "_delegate_from"] {
        let config = format!(r#"{{"{marker}": ""}}"#);
        db.create_session(NewSession::new(marker, "cli").parent_session_id("c3").model_config(config))
            .expect("creates");
    }
    assert_eq!(tip(&db, "c1"), "c3", "neither tools nor branches nor delegates go on with it");
}

fn of_several_continuations_the_one_that_went_on_counts(db: World) {
    create(&db, "p");
    end(&db, "p", "compression");
    child(&db, "closed", "p");
    said_at(&db, "closed", 9e9);
    end(&db, "closed", "ws_orphan_reap");
    assert_eq!(tip(&db, "p"), "closed");
    child(&db, "live1", "p");
    child(&db, "live2", "p");
    assert_eq!(tip(&db, "p"), "live2", "what is live comes before what was closed, then what began last");
    said_at(&db, "live1", 5e9);
    assert_eq!(tip(&db, "p"), "live1", "the newest message comes first");
    child(&db, "went on", "p");
    end(&db, "went on", "compression");
    said_at(&db, "went on", 1.0);
    assert_eq!(tip(&db, "p"), "went on", "what was compressed itself comes before all");
}

fn equal_continuations_go_by_start_and_then_by_id(mut db: World) {
    create(&db, "p");
    end(&db, "p", "compression");
    for id in ["a", "c", "b"] {
        child(&db, id, "p");
        said_at(&db, id, 7.0);
    }
    assert_eq!(tip(&db, "p"), "b");
    db.behind_its_back("UPDATE sessions SET started_at = 5 WHERE parent_session_id = 'p'");
    assert_eq!(tip(&db, "p"), "c");
}

fn the_walk_ends_in_circles_and_after_a_hundred_steps(mut db: World) {
    let mut parent = "n0".to_owned();
    create(&db, &parent);
    for number in 1..=103 {
        end(&db, &parent, "compression");
        let next = format!("n{number}");
        child(&db, &next, &parent);
        parent = next;
    }
    assert_eq!((tip(&db, "n0"), tip(&db, "n3"), tip(&db, "n50")), ("n100".into(), "n103".into(), "n103".into()));
    end(&db, "n103", "compression");
    db.behind_its_back("UPDATE sessions SET parent_session_id = 'n103' WHERE id = 'n101'");
    assert_eq!(tip(&db, "n101"), "n103");
    assert_eq!(tip(&db, "n102"), "n101");
    let row = db.session("n103").expect("reads").expect("is there");
    assert_eq!(row.record().get("parent_session_id"), Some(&Value::from("n102")));
}

on_each_engine! {
    an_id_is_found_by_its_beginning_if_that_is_enough
    one_session_is_shown_as_in_a_listing
    folders_are_counted_as_they_are_written
    a_conversation_is_followed_to_its_last_continuation
    of_several_continuations_the_one_that_went_on_counts
    equal_continuations_go_by_start_and_then_by_id
    the_walk_ends_in_circles_and_after_a_hundred_steps
}
