//! Policies of retention: what they take by age, source and state, that a plan is what is done, and whose owner is gone.

use std::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use hermes_state::{
    AutoPruneOptions, Error, NewMessage, NewSession, RetentionPlan, RetentionPolicy, RetentionRule, SearchOptions,
    Session, SessionDb, SessionState,
};

use crate::world::{World, on_each_engine};

const DAY: f64 = 86_400.0;
const HOUR: f64 = 1.0 / 24.0;

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch").as_secs_f64()
}

fn days(days: u64) -> Duration {
    Duration::from_secs(days * 86_400)
}

fn rule(age: u64, states: &[SessionState]) -> RetentionRule {
    RetentionRule { states: states.to_vec(), ..RetentionRule::older_than(days(age)) }
}

fn of(age: u64, states: &[SessionState]) -> RetentionPolicy {
    RetentionPolicy::of(rule(age, states))
}

fn create(db: &SessionDb, id: &str, source: &str, parent: Option<&str>) {
    db.create_session(NewSession::new(id, source).parent_session_id(parent)).expect("creates");
}

fn say(db: &SessionDb, id: &str, text: &str, days: f64) {
    db.append_message(id, NewMessage::new("user", text).timestamp(now() - days * DAY)).expect("appends");
}

/// Sets when sessions began, and when they ended if they did, in days before now.
fn dated(db: &mut World, dates: &[(&str, f64, Option<f64>)]) {
    let now = now();
    let sql: Vec<String> = dates
        .iter()
        .map(|(id, began, ended)| {
            let ended = ended.map_or("NULL".to_owned(), |days| (now - days * DAY).to_string());
            format!("UPDATE sessions SET started_at = {}, ended_at = {ended} WHERE id = '{id}'", now - began * DAY)
        })
        .collect();
    db.behind_its_back(&sql.join(";\n"));
}

fn going(plan: &RetentionPlan) -> Vec<&str> {
    plan.sessions.iter().map(|session| session.id.as_str()).collect()
}

fn ids(sessions: &[Session]) -> Vec<&str> {
    sessions.iter().map(Session::id).collect()
}

fn is_there(db: &SessionDb, id: &str) -> bool {
    db.session(id).expect("reads").is_some()
}

fn there(db: &World) -> String {
    db.seen_from_outside("SELECT COUNT(*) FROM sessions WHERE source <> 'other'")
}

/// A chain of which all but the last ended long ago, and one that never ended and whose owner is gone.
fn chain(db: &mut World) {
    for (id, parent, word, days) in [
        ("A", None, "aardvark", 40.0),
        ("B", Some("A"), "buffalo", 40.0),
        ("C", Some("B"), "cormorant", 40.0),
        ("D", Some("C"), "dormouse", 2.0),
        ("E", None, "echidna", 50.0),
    ] {
        create(db, id, "cli", parent);
        say(db, id, word, days);
    }
    let ended = |id, days| (id, days + HOUR, Some(days));
    dated(db, &[ended("A", 40.0), ended("B", 40.0), ended("C", 40.0), ended("D", 2.0), ("E", 50.0, None)]);
}

fn a_prune_goes_through_a_chain_and_tells_of_what_was_left_open(mut db: World) {
    chain(&mut db);
    let month = RetentionPolicy::of(RetentionRule::older_than(days(30)));
    let plan = db.plan_retention(&month).expect("plans");
    assert_eq!((going(&plan), ids(&plan.owner_gone), ids(&plan.open)), (vec!["A", "B", "C"], vec!["E"], vec![]));
    assert_eq!((plan.chosen(), plan.messages()), (3, 3));
    assert_eq!(plan.bytes(), "aardvarkbuffalocormorant".len() as i64);
    assert!(is_there(&db, "A"), "a plan changes nothing");
    let report = db.apply_retention(&month, None).expect("prunes");
    assert_eq!((report.deleted, &report.plan), (3, &plan));
    let left = db.session("D").expect("reads").expect("stays");
    assert_eq!((left.parent_session_id(), left.message_count()), (None, 1));
    assert!(is_there(&db, "E"));
    assert_eq!(db.apply_retention(&month, None).expect("prunes").deleted, 0);
    for (word, found) in [("aardvark", 0), ("buffalo", 0), ("cormorant", 0), ("dormouse", 1), ("echidna", 1)] {
        let hits = db.search_messages(word, &SearchOptions::default()).expect("searches");
        assert_eq!(hits.len(), found, "{word}");
    }
    let orphans = "SELECT COUNT(*) FROM sessions s WHERE s.parent_session_id IS NOT NULL \
                   AND NOT EXISTS (SELECT 1 FROM sessions p WHERE p.id = s.parent_session_id)";
    let homeless =
        "SELECT COUNT(*) FROM messages m WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = m.session_id)";
    assert_eq!((db.seen_from_outside(orphans), db.seen_from_outside(homeless)), ("0".into(), "0".into()));
    let asked = db.apply_retention(&of(30, &[SessionState::OwnerGone]), None).expect("prunes");
    assert_eq!((asked.deleted, going(&asked.plan), ids(&asked.plan.owner_gone)), (1, vec!["E"], vec![]));
    assert!(!is_there(&db, "E") && is_there(&db, "D"));
}

fn a_plan_is_what_is_done_delegates_and_all(mut db: World) {
    create(&db, "p", "cli", None);
    db.create_session(NewSession::new("d1", "cli").parent_session_id("p").model_config(r#"{"_delegate_from": "p"}"#))
        .expect("creates");
    db.create_session(NewSession::new("d2", "cli").parent_session_id("d1").model_config(r#"{"_delegate_from": "d1"}"#))
        .expect("creates");
    create(&db, "child", "cli", Some("p"));
    create(&db, "young", "cli", None);
    for id in ["p", "d1", "d2", "child", "young"] {
        let calls = NewMessage::new("assistant", "zebrafinch é").reasoning("thought").tool_name("t");
        db.append_message(id, calls).expect("appends");
    }
    db.set_session_title("p", Some("Harbour plan")).expect("titles");
    dated(&mut db, &[("p", 40.0, Some(39.0)), ("young", 3.0, Some(2.0))]);
    let policy = RetentionPolicy::of(RetentionRule::older_than(days(30)));
    let plan = db.plan_retention(&policy).expect("plans");
    assert_eq!((going(&plan), plan.chosen(), plan.messages()), (vec!["d2", "d1", "p"], 1, 3));
    let with: Vec<Option<&str>> = plan.sessions.iter().map(|session| session.delegated_by.as_deref()).collect();
    assert_eq!(with, [Some("p"), Some("p"), None]);
    let last = &plan.sessions[2];
    assert_eq!(
        (last.title.as_deref(), last.source.as_deref(), last.archived),
        (Some("Harbour plan"), Some("cli"), false)
    );
    assert_eq!((last.messages, last.bytes), (1, ("zebrafinch é".len() + "thought".len() + "t".len()) as i64));
    assert!(last.started_at.is_some() && last.ended_at.is_some());
    let before: i64 = there(&db).parse().expect("a number");
    let report = db.apply_retention(&policy, None).expect("prunes");
    assert_eq!((report.deleted, &report.plan), (1, &plan));
    assert_eq!(there(&db).parse::<i64>().expect("a number"), before - 3);
    assert!(plan.sessions.iter().all(|session| !is_there(&db, &session.id)));
    assert!(is_there(&db, "child") && is_there(&db, "young"));
    assert_eq!(db.plan_retention(&policy).expect("plans"), RetentionPlan::default());
}

/// Sessions in each state, all of them old, and two that are not.
fn zoo(db: &mut World) {
    for (id, source) in [
        ("ended", "cli"),
        ("archived", "cli"),
        ("empty", "cli"),
        ("open", "cli"),
        ("cron", "cron"),
        ("telegram", "telegram"),
        ("new", "cli"),
        ("talking", "cli"),
    ] {
        create(db, id, source, None);
        if id != "empty" {
            say(db, id, id, if id == "talking" { 0.0 } else { 20.0 });
        }
    }
    db.set_session_archived("archived", true).expect("archives");
    let old = |id, began| (id, began, Some(19.0));
    dated(
        db,
        &[
            old("ended", 28.0),
            old("archived", 27.0),
            old("empty", 26.0),
            ("open", 25.0, None),
            old("cron", 24.0),
            old("telegram", 23.0),
            ("new", 2.0, Some(1.0)),
            ("talking", 22.0, None),
        ],
    );
}

fn a_rule_takes_its_states_and_sources(mut db: World) {
    use SessionState::{Archived, Empty, Ended, Open, OwnerGone};
    zoo(&mut db);
    let takes = |rule: RetentionRule| {
        let plan = db.plan_retention(&RetentionPolicy::of(rule)).expect("plans");
        going(&plan).join(" ")
    };
    assert_eq!(takes(RetentionRule::older_than(days(10))), "ended archived empty cron telegram");
    assert_eq!(takes(rule(10, &[Ended])), "ended empty cron telegram");
    assert_eq!(takes(rule(10, &[Archived])), "archived");
    assert_eq!(takes(rule(10, &[Empty])), "empty");
    assert_eq!(takes(rule(10, &[OwnerGone])), "open");
    assert_eq!(takes(rule(10, &[Open])), "open", "what is talking is not silent");
    assert_eq!(takes(rule(10, &[Open, Archived])), "archived open");
    assert_eq!(takes(rule(27, &[Ended])), "ended");
    assert_eq!(takes(rule(0, &[Ended])), "ended empty cron telegram new");
    let sources = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(takes(RetentionRule { sources: sources(&["cron", "telegram"]), ..rule(10, &[Ended]) }), "cron telegram");
    assert_eq!(takes(RetentionRule { except_sources: sources(&["cli"]), ..rule(10, &[Ended]) }), "cron telegram");
    let neither = RetentionRule { sources: sources(&["web' OR 1=1 --"]), ..rule(0, &SessionState::ALL) };
    assert_eq!(takes(neither), "");
}

fn rules_of_a_policy_add_up_and_delete_just_that(mut db: World) {
    zoo(&mut db);
    let policy = RetentionPolicy::from_json(
        r#"{"rules": [{"older_than": "7d", "sources": ["cron"]}, {"older_than": "25d", "states": ["empty", "archived"]},
            {"older_than": "365d"}]}"#,
    )
    .expect("reads");
    let plan = db.plan_retention(&policy).expect("plans");
    assert_eq!((going(&plan), ids(&plan.owner_gone)), (vec!["archived", "empty", "cron"], vec![]));
    assert_eq!(db.apply_retention(&policy, None).expect("prunes").deleted, 3);
    assert_eq!(there(&db), "5");
}

fn who_may_be_there_is_not_taken_for_gone(mut db: World) {
    create(&db, "mine", "cli", None);
    say(&db, "mine", "just now", 0.0);
    // This process began before: it may be the owner.
    let policy = of(0, &[SessionState::OwnerGone]);
    let plan = db.plan_retention(&policy).expect("plans");
    assert_eq!((going(&plan), ids(&plan.owner_gone), ids(&plan.open)), (vec![], vec![], vec!["mine"]));
    assert_eq!(db.apply_retention(&policy, None).expect("prunes").deleted, 0);
    let filter = hermes_state::PruneFilter { abandoned: true, ..hermes_state::PruneFilter::older_than_days(0.0) };
    assert_eq!(db.prune_sessions(&filter, None).expect("prunes"), 0);
    assert!(db.plan_prune(&filter).expect("plans").abandoned.is_empty());
    dated(&mut db, &[("mine", 50.0, None)]);
    assert!(db.plan_retention(&policy).expect("plans").owner_gone.is_empty(), "it spoke a moment ago");
    let asked = db.apply_retention(&of(0, &[SessionState::Open]), None).expect("prunes");
    assert_eq!((asked.deleted, going(&asked.plan)), (1, vec!["mine"]), "named, it goes");
}

fn a_policy_that_takes_nothing_is_refused(mut db: World) {
    zoo(&mut db);
    for policy in [RetentionPolicy { rules: vec![] }, of(0, &[])] {
        for refused in [
            db.plan_retention(&policy).map(drop),
            db.apply_retention(&policy, None).map(drop),
            db.maybe_apply_retention(&AutoPruneOptions::default(), &policy, None).map(drop),
        ] {
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        }
    }
    assert_eq!(there(&db), "8");
    let ages = of(u64::MAX / 86_400, &SessionState::ALL);
    assert_eq!(db.apply_retention(&ages, None).expect("nothing is so old").deleted, 0);
}

fn it_is_applied_from_time_to_time(mut db: World) {
    zoo(&mut db);
    let policy = of(10, &[SessionState::Ended]);
    let first = db.maybe_apply_retention(&AutoPruneOptions::default(), &policy, None).expect("prunes");
    assert_eq!((first.skipped, first.pruned), (false, 4));
    let second = db.another().maybe_apply_retention(&AutoPruneOptions::default(), &policy, None).expect("skips");
    assert_eq!((second.skipped, second.pruned), (true, 0));
}

on_each_engine! {
    a_prune_goes_through_a_chain_and_tells_of_what_was_left_open
    a_plan_is_what_is_done_delegates_and_all
    a_rule_takes_its_states_and_sources
    rules_of_a_policy_add_up_and_delete_just_that
    who_may_be_there_is_not_taken_for_gone
    a_policy_that_takes_nothing_is_refused
    it_is_applied_from_time_to_time
}
