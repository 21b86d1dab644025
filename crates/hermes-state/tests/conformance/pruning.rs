//! Clean-ups: what a prune takes and what it only tells of, archiving by the conversation, and what is mended.

use std::time::{SystemTime, UNIX_EPOCH};

use hermes_state::{Error, NewMessage, NewSession, PruneFilter, SearchOptions, Session, SessionDb};

use crate::world::{World, on_each_engine};

const DAY: f64 = 86_400.0;

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch").as_secs_f64()
}

fn create(db: &SessionDb, id: &str, parent: Option<&str>) {
    db.create_session(NewSession::new(id, "cli").parent_session_id(parent)).expect("creates");
}

fn configured(db: &SessionDb, id: &str, parent: &str, config: &str) {
    db.create_session(NewSession::new(id, "cli").parent_session_id(parent).model_config(config)).expect("creates");
}

fn say(db: &SessionDb, id: &str, text: &str, at: f64) {
    db.append_message(id, NewMessage::new("user", text).timestamp(at)).expect("appends");
}

fn ids(sessions: &[Session]) -> Vec<&str> {
    sessions.iter().map(Session::id).collect()
}

fn is_there(db: &SessionDb, id: &str) -> bool {
    db.session(id).expect("reads").is_some()
}

fn hits(db: &SessionDb, word: &str) -> usize {
    db.search_messages(word, &SearchOptions::default()).expect("searches").len()
}

/// Sets when sessions began, and when they ended for `done`, in days before now.
fn dated(db: &mut World, dates: &[(&str, f64, Option<f64>)]) {
    let now = now();
    let mut sql = String::new();
    for (id, began, ended) in dates {
        let (began, ended) = (now - began * DAY, ended.map(|days| now - days * DAY));
        let ended = ended.map_or("NULL, end_reason = NULL".to_owned(), |at| format!("{at}, end_reason = 'done'"));
        sql.push_str(&format!("UPDATE sessions SET started_at = {began}, ended_at = {ended} WHERE id = '{id}';\n"));
    }
    db.behind_its_back(&sql);
}

/// A chain of which all but the last ended long ago, and one that never ended and whose owner is gone.
fn chain(db: &mut World) {
    const HOUR: f64 = 1.0 / 24.0;
    let now = now();
    for (id, parent, word, days) in [
        ("A", None, "aardvark", 40.0),
        ("B", Some("A"), "buffalo", 40.0),
        ("C", Some("B"), "cormorant", 40.0),
        ("D", Some("C"), "dormouse", 2.0),
        ("E", None, "echidna", 50.0),
    ] {
        create(db, id, parent);
        say(db, id, word, now - days * DAY);
    }
    dated(
        db,
        &[
            ("A", 40.0 + HOUR, Some(40.0)),
            ("B", 40.0 + HOUR, Some(40.0)),
            ("C", 40.0 + HOUR, Some(40.0)),
            ("D", 2.0 + HOUR, Some(2.0)),
            ("E", 50.0, None),
        ],
    );
}

fn a_prune_goes_through_a_chain_and_tells_of_what_was_left_open(mut db: World) {
    chain(&mut db);
    let filter = PruneFilter::older_than_days(30.0);
    let plan = db.plan_prune(&filter).expect("plans");
    assert_eq!((ids(&plan.ended), ids(&plan.abandoned)), (vec!["A", "B", "C"], vec!["E"]));
    assert_eq!(ids(&db.list_prune_candidates(&filter).expect("lists")), ["A", "B", "C"]);
    assert!(is_there(&db, "A"), "a plan changes nothing");
    assert_eq!(db.prune_sessions(&filter, None).expect("prunes"), 3);
    let left = db.session("D").expect("reads").expect("stays");
    assert_eq!((left.parent_session_id(), left.message_count()), (None, 1));
    assert!(is_there(&db, "E"));
    assert_eq!(db.prune_sessions(&filter, None).expect("prunes"), 0);
    for (word, found) in [("aardvark", 0), ("buffalo", 0), ("cormorant", 0), ("dormouse", 1), ("echidna", 1)] {
        assert_eq!(hits(&db, word), found, "{word}");
    }
    let orphans = "SELECT COUNT(*) FROM sessions s WHERE s.parent_session_id IS NOT NULL \
                   AND NOT EXISTS (SELECT 1 FROM sessions p WHERE p.id = s.parent_session_id)";
    let homeless =
        "SELECT COUNT(*) FROM messages m WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = m.session_id)";
    assert_eq!((db.seen_from_outside(orphans), db.seen_from_outside(homeless)), ("0".into(), "0".into()));
}

fn open_sessions_go_only_when_asked_for_and_only_if_silent(mut db: World) {
    chain(&mut db);
    create(&db, "talking", None);
    say(&db, "talking", "old", now() - 49.0 * DAY);
    say(&db, "talking", "new", now() - DAY);
    create(&db, "mute", None);
    create(&db, "fresh", None);
    dated(&mut db, &[("talking", 50.0, None), ("mute", 60.0, None)]);
    let asked = PruneFilter { abandoned: true, ..PruneFilter::older_than_days(30.0) };
    assert_eq!(ids(&db.plan_prune(&asked).expect("plans").abandoned), ["mute", "E"]);
    assert_eq!(ids(&db.list_prune_candidates(&asked).expect("lists")), ["mute", "E", "A", "B", "C"]);
    let other = PruneFilter { source: Some("web".into()), ..asked.clone() };
    assert_eq!(db.plan_prune(&other).expect("plans").abandoned.len(), 0, "other filters hold for them, too");
    let endless = PruneFilter { abandoned: true, ..PruneFilter::default() };
    assert_eq!(db.plan_prune(&endless).expect("plans").abandoned.len(), 0, "without a limit there is no telling");
    assert_eq!(db.prune_sessions(&asked, None).expect("prunes"), 5);
    assert!(is_there(&db, "talking") && is_there(&db, "fresh") && is_there(&db, "D"));
}

fn delegates_go_along_uncounted_and_other_children_stay(mut db: World) {
    create(&db, "p", None);
    configured(&db, "agent", "p", r#"{"_delegate_from": "p"}"#);
    configured(&db, "second", "agent", r#"{"_delegate_from": "agent"}"#);
    say(&db, "second", "wombat", 5.0);
    configured(&db, "branch", "p", r#"{"_branched_from": "p"}"#);
    create(&db, "kid", Some("p"));
    dated(&mut db, &[("p", 99.0, Some(98.0)), ("second", 97.0, Some(96.0))]);
    assert_eq!(db.prune_sessions(&PruneFilter::older_than_days(98.0), None).expect("prunes"), 1);
    assert!(!is_there(&db, "agent") && !is_there(&db, "second") && is_there(&db, "branch") && is_there(&db, "kid"));
    assert_eq!(hits(&db, "wombat"), 0);
}

fn the_age_is_that_of_the_start_and_ties_are_on_the_younger_side(mut db: World) {
    for id in ["old", "edge", "young"] {
        create(&db, id, None);
        db.end_session(id, "done").expect("ends");
    }
    db.behind_its_back(
        "UPDATE sessions SET started_at = 99.5 WHERE id = 'old'; UPDATE sessions SET started_at = 100.0 WHERE id = 'edge'; \
         UPDATE sessions SET started_at = 101.0, archived = 1 WHERE id = 'young'",
    );
    let found = |filter: PruneFilter| {
        db.list_prune_candidates(&filter).expect("lists").iter().map(|s| s.id().to_owned()).collect::<Vec<_>>()
    };
    let all = PruneFilter::default();
    assert_eq!(found(all.clone()), ["old", "edge", "young"]);
    assert_eq!(found(PruneFilter { started_before: Some(100.0), ..all.clone() }), ["old"]);
    assert_eq!(found(PruneFilter { started_after: Some(100.0), ..all.clone() }), ["edge", "young"]);
    assert_eq!(found(PruneFilter { archived: Some(true), ..all.clone() }), ["young"]);
    assert_eq!(found(PruneFilter { archived: Some(false), ..all.clone() }), ["old", "edge"]);
    assert_eq!(found(PruneFilter::older_than_days(0.0)).len(), 3);
    assert_eq!(found(PruneFilter::older_than_days(40_000.0)).len(), 0);
    let nan = PruneFilter { started_before: Some(f64::NAN), ..all };
    assert!(matches!(db.prune_sessions(&nan, None), Err(Error::Invalid(_))));
    let row = &db.list_prune_candidates(&PruneFilter::default()).expect("lists")[0];
    let columns: Vec<&str> = row.record().columns().iter().map(|column| &**column).collect();
    assert_eq!(columns, ["id", "source", "title", "model", "started_at", "ended_at", "message_count", "archived"]);
}

fn every_filter_judges_its_column_and_patterns_stand_for_themselves(mut db: World) {
    for id in ["a", "b", "c"] {
        create(&db, id, None);
        db.end_session(id, "done").expect("ends");
    }
    db.behind_its_back(
        "UPDATE sessions SET source = 'web', end_reason = 'idle', user_id = 'u', chat_id = 'c', chat_type = 'dm', \
             billing_provider = 'OpenÄI', title = 'Über 100%', model = 'Large_1', git_branch = 'feat/x', cwd = '/w/x', \
             message_count = 5, input_tokens = 10, output_tokens = 7, actual_cost_usd = 0, estimated_cost_usd = 9, \
             tool_call_count = 3 WHERE id = 'a'; \
         UPDATE sessions SET title = 'over 1000', model = 'large-1', git_branch = 'featsx', cwd = '/wx', \
             estimated_cost_usd = 2.5 WHERE id = 'b'; \
         UPDATE sessions SET message_count = NULL, input_tokens = NULL, tool_call_count = NULL WHERE id = 'c'",
    );
    let text = |text: &str| Some(text.to_owned());
    let all = PruneFilter::default;
    for (filter, expected) in [
        (PruneFilter { source: text("web"), ..all() }, "a"),
        (PruneFilter { source: text("WEB"), ..all() }, ""),
        (PruneFilter { source: text(""), ..all() }, "abc"),
        (PruneFilter { end_reason: text("idle"), ..all() }, "a"),
        (PruneFilter { user_id: text("u"), ..all() }, "a"),
        (PruneFilter { chat_id: text("c"), chat_type: text("dm"), ..all() }, "a"),
        (PruneFilter { provider: text("OPENäi"), ..all() }, "a"),
        (PruneFilter { provider: text("open"), ..all() }, ""),
        (PruneFilter { title_like: text("ÜBER"), ..all() }, "a"),
        (PruneFilter { title_like: text("100%"), ..all() }, "a"),
        (PruneFilter { title_like: text("100"), ..all() }, "ab"),
        (PruneFilter { model_like: text("LARGE_1"), ..all() }, "a"),
        (PruneFilter { branch_like: text("feat_x"), ..all() }, ""),
        (PruneFilter { branch_like: text("feat/"), ..all() }, "a"),
        (PruneFilter { cwd_prefix: text("/w/"), ..all() }, "a"),
        (PruneFilter { cwd_prefix: text("/"), ..all() }, "ab"),
        (PruneFilter { min_messages: Some(5), ..all() }, "a"),
        (PruneFilter { max_messages: Some(0), ..all() }, "b"),
        (PruneFilter { min_tokens: Some(17), ..all() }, "a"),
        (PruneFilter { max_tokens: Some(16), ..all() }, "bc"),
        (PruneFilter { max_cost: Some(0.0), ..all() }, "ac"),
        (PruneFilter { min_cost: Some(2.5), ..all() }, "b"),
        (PruneFilter { min_tool_calls: Some(1), ..all() }, "a"),
        (PruneFilter { max_tool_calls: Some(0), ..all() }, "bc"),
    ] {
        let mut found: Vec<String> =
            db.list_prune_candidates(&filter).expect("lists").iter().map(|s| s.id().to_owned()).collect();
        found.sort();
        assert_eq!(found.concat(), expected, "{filter:?}");
    }
}

fn archived(db: &SessionDb, id: &str) -> bool {
    db.session(id).expect("reads").expect("is there").record().integer("archived") == Some(1)
}

fn archiving_takes_the_whole_conversation_and_no_other(mut db: World) {
    create(&db, "root", None);
    db.end_session("root", "compression").expect("ends");
    create(&db, "middle", Some("root"));
    db.end_session("middle", "compression").expect("ends");
    create(&db, "tip", Some("middle"));
    configured(&db, "branch", "middle", r#"{"_branched_from": "middle"}"#);
    configured(&db, "agent", "middle", r#"{"_delegate_from": "middle"}"#);
    create(&db, "plain", None);
    db.end_session("plain", "done").expect("ends");
    db.behind_its_back("UPDATE sessions SET started_at = 5 WHERE id = 'middle'");
    let old = PruneFilter { archived: Some(false), ..PruneFilter::older_than_days(30.0) };
    assert_eq!(db.archive_sessions(&old).expect("archives"), 1);
    for (id, expected) in
        [("root", true), ("middle", true), ("tip", true), ("branch", false), ("agent", false), ("plain", false)]
    {
        assert_eq!(archived(&db, id), expected, "{id}");
    }
    assert_eq!(db.archive_sessions(&old).expect("nothing is left"), 0);
    db.behind_its_back(
        "UPDATE sessions SET archived = 0, parent_session_id = 'tip', ended_at = 1, \
         end_reason = 'compression' WHERE id = 'root'; UPDATE sessions SET end_reason = 'compression' WHERE id = 'tip'",
    );
    let all = PruneFilter { archived: Some(false), ..PruneFilter::default() };
    assert_eq!(db.archive_sessions(&all).expect("a circle comes to an end"), 2);
    assert!(archived(&db, "root") && archived(&db, "plain") && !archived(&db, "branch"));
}

fn ghosts_of_terminals_go_and_their_children_stay(mut db: World) {
    for id in ["ghost", "parent", "live", "titled", "said"] {
        db.create_session(NewSession::new(id, "tui")).expect("creates");
    }
    create(&db, "cli", None);
    create(&db, "kid", Some("parent"));
    assert!(db.set_session_title("titled", Some("T")).expect("sets"));
    say(&db, "said", "x", 1.0);
    let dates: Vec<_> = ["ghost", "parent", "titled", "said", "cli"].map(|id| (id, 1.1, Some(1.0))).to_vec();
    dated(&mut db, &dates);
    db.create_session(NewSession::new("recent", "tui")).expect("creates");
    dated(&mut db, &[("recent", 0.9, Some(0.5)), ("live", 3.0, None)]);
    db.behind_its_back("UPDATE sessions SET archived = 1 WHERE id = 'ghost'");
    assert_eq!(db.prune_empty_ghost_sessions(None).expect("prunes"), 2);
    assert_eq!(db.prune_empty_ghost_sessions(None).expect("prunes"), 0);
    assert_eq!(db.session("kid").expect("reads").expect("stays").parent_session_id(), None);
    for id in ["live", "titled", "said", "cli", "recent"] {
        assert!(is_there(&db, id), "{id}");
    }
}

fn continuations_that_nobody_took_up_are_ended(mut db: World) {
    create(&db, "p", None);
    db.end_session("p", "compression").expect("ends");
    create(&db, "q", None);
    db.end_session("q", "done").expect("ends");
    for (id, parent) in [("orphan", "p"), ("silent", "p"), ("young", "p"), ("used", "p"), ("of-q", "q")] {
        create(&db, id, Some(parent));
        if id != "silent" {
            say(&db, id, "x", 1.0);
        }
    }
    configured(&db, "agent", "p", r#"{"_delegate_from": "p"}"#);
    say(&db, "agent", "x", 1.0);
    let dates: Vec<_> = ["orphan", "silent", "used", "of-q", "agent"].map(|id| (id, 7.1, None)).to_vec();
    dated(&mut db, &dates);
    db.behind_its_back("UPDATE sessions SET api_call_count = 1 WHERE id = 'used'");
    dated(&mut db, &[("young", 6.9, None)]);
    assert_eq!(db.finalize_orphaned_compression_sessions().expect("ends"), 1);
    assert_eq!(db.finalize_orphaned_compression_sessions().expect("ends"), 0);
    let orphan = db.session("orphan").expect("reads").expect("is there");
    assert_eq!((orphan.end_reason(), orphan.message_count()), (Some("orphaned_compression"), 1));
    assert!(orphan.ended_at().is_some_and(|at| (now() - at).abs() < 60.0));
    for id in ["silent", "young", "used", "of-q", "agent"] {
        assert_eq!(db.session(id).expect("reads").expect("is there").ended_at(), None, "{id}");
    }
}

on_each_engine! {
    a_prune_goes_through_a_chain_and_tells_of_what_was_left_open
    open_sessions_go_only_when_asked_for_and_only_if_silent
    delegates_go_along_uncounted_and_other_children_stay
    the_age_is_that_of_the_start_and_ties_are_on_the_younger_side
    every_filter_judges_its_column_and_patterns_stand_for_themselves
    archiving_takes_the_whole_conversation_and_no_other
    ghosts_of_terminals_go_and_their_children_stay
    continuations_that_nobody_took_up_are_ended
}
