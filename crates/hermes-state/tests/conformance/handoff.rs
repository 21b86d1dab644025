//! Handoffs: every step from every state, and races for one.

use std::sync::Barrier;

use hermes_state::{Error, Handoff, NewSession, SessionDb, Value};

use crate::world::{World, on_each_engine};

fn handoff(state: Option<&str>, platform: Option<&str>, error: Option<&str>) -> Handoff {
    Handoff { state: state.map(str::to_owned), platform: platform.map(str::to_owned), error: error.map(str::to_owned) }
}

fn state(db: &SessionDb, id: &str) -> Handoff {
    db.handoff_state(id).expect("reads").expect("is there")
}

/// All states that a handoff can be found in; the last is none of ours.
const STATES: [Option<&str>; 7] =
    [None, Some("pending"), Some("running"), Some("completed"), Some("failed"), Some(""), Some("paused")];

/// A session for each state, in which a platform and an error are stored.
fn with_states(db: &mut World) {
    for number in 0..STATES.len() {
        db.create_session(NewSession::new(number.to_string(), "cli")).expect("creates");
    }
    set_states(db);
}

fn set_states(db: &mut World) {
    let mut script = String::new();
    for (number, state) in STATES.iter().enumerate() {
        let state = state.map_or("NULL".to_owned(), |state| format!("'{state}'"));
        script.push_str(&format!(
            "UPDATE sessions SET handoff_state = {state}, handoff_platform = 'old', handoff_error = 'why', \
             started_at = {number} WHERE id = '{number}';\n"
        ));
    }
    db.behind_its_back(&script);
}

fn a_request_is_taken_unless_a_handoff_is_under_way(mut db: World) {
    with_states(&mut db);
    for (number, before) in STATES.iter().enumerate() {
        let id = number.to_string();
        let taken = matches!(before, None | Some("completed" | "failed"));
        assert_eq!(db.request_handoff(id.as_str(), " Tele\nGram ").expect("asks"), taken, "{before:?}");
        let expected = if taken {
            handoff(Some("pending"), Some(" Tele\nGram "), None)
        } else {
            handoff(*before, Some("old"), Some("why"))
        };
        assert_eq!(state(&db, &id), expected, "{before:?}");
    }
    assert!(!db.request_handoff("nobody", "telegram").expect("asks"));
    assert!(!db.request_handoff(Value::Null, "telegram").expect("asks"));
}

fn a_claim_is_had_only_of_what_is_pending(mut db: World) {
    with_states(&mut db);
    for (number, before) in STATES.iter().enumerate() {
        let id = number.to_string();
        let claimed = *before == Some("pending");
        assert_eq!(db.claim_handoff(id.as_str()).expect("claims"), claimed, "{before:?}");
        let after = if claimed { Some("running") } else { *before };
        assert_eq!(state(&db, &id), handoff(after, Some("old"), Some("why")), "{before:?}");
        assert!(!db.claim_handoff(id.as_str()).expect("claims"), "{before:?}, again");
    }
    assert!(!db.claim_handoff("nobody").expect("claims"));
}

fn completing_and_failing_ask_for_no_state(mut db: World) {
    with_states(&mut db);
    for (number, before) in STATES.iter().enumerate() {
        let id = number.to_string();
        db.complete_handoff(id.as_str()).expect("completes");
        assert_eq!(state(&db, &id), handoff(Some("completed"), Some("old"), None), "{before:?}");
    }
    set_states(&mut db);
    for (number, before) in STATES.iter().enumerate() {
        let id = number.to_string();
        db.fail_handoff(id.as_str(), "it broke").expect("fails it");
        assert_eq!(state(&db, &id), handoff(Some("failed"), Some("old"), Some("it broke")), "{before:?}");
    }
    db.complete_handoff("0").expect("completes");
    assert_eq!(state(&db, "0"), handoff(Some("completed"), Some("old"), None), "a late end overwrites a failure");
    db.complete_handoff("nobody").expect("does nothing");
    db.fail_handoff("nobody", "x").expect("does nothing");
    assert_eq!(db.seen_from_outside("SELECT COUNT(*) FROM sessions"), STATES.len().to_string());
}

fn the_first_500_characters_of_an_error_are_kept(db: World) {
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    db.fail_handoff("s", &"é😀".repeat(300)).expect("fails it");
    assert_eq!(state(&db, "s").error, Some("é😀".repeat(250)));
    db.fail_handoff("s", "").expect("fails it");
    assert_eq!(state(&db, "s").error.as_deref(), Some(""));
}

fn a_session_without_a_handoff_has_an_empty_one_and_no_session_has_none(db: World) {
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    assert_eq!(state(&db, "s"), Handoff::default());
    assert_eq!(db.handoff_state("nobody").expect("reads"), None);
}

fn pending_handoffs_are_listed_in_the_order_of_their_sessions(mut db: World) {
    for id in ["third", "first", "second", "not"] {
        db.create_session(NewSession::new(id, "cli")).expect("creates");
        db.request_handoff(id, "telegram").expect("asks");
    }
    db.claim_handoff("not").expect("claims");
    db.end_session("first", "done").expect("ends");
    db.behind_its_back(
        "UPDATE sessions SET started_at = 1, archived = 1 WHERE id = 'first'; \
         UPDATE sessions SET started_at = 2 WHERE id = 'second'; UPDATE sessions SET started_at = 3 WHERE id = 'third'; \
         UPDATE sessions SET started_at = 0 WHERE id = 'not'",
    );
    let found = db.list_pending_handoffs().expect("lists");
    assert_eq!(found.iter().map(|session| session.id()).collect::<Vec<_>>(), ["first", "second", "third"]);
    assert_eq!(found[0], db.session("first").expect("reads").expect("is there"), "whole rows, ended and archived too");
}

/// Threads of this process with a handle each, as if processes; processes are raced from Python.
fn of_many_claims_and_requests_exactly_one_wins(db: World) {
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    let handles: Vec<SessionDb> = (0..6).map(|_| db.another()).collect();
    for round in 0..8 {
        let barrier = Barrier::new(handles.len());
        let race = |step: &(dyn Fn(&SessionDb) -> bool + Sync)| {
            std::thread::scope(|scope| {
                let racers: Vec<_> = handles
                    .iter()
                    .map(|handle| {
                        scope.spawn(|| {
                            barrier.wait();
                            step(handle)
                        })
                    })
                    .collect();
                racers.into_iter().map(|racer| usize::from(racer.join().expect("races"))).sum::<usize>()
            })
        };
        assert_eq!(race(&|db| db.request_handoff("s", "telegram").expect("asks")), 1, "round {round}");
        assert_eq!(race(&|db| db.claim_handoff("s").expect("claims")), 1, "round {round}");
        db.complete_handoff("s").expect("completes");
    }
}

fn a_handle_that_only_reads_sees_handoffs_and_takes_no_step(db: World) {
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    db.request_handoff("s", "telegram").expect("asks");
    let looking = db.looking();
    assert_eq!(state(&looking, "s"), handoff(Some("pending"), Some("telegram"), None));
    assert_eq!(looking.list_pending_handoffs().expect("lists").len(), 1);
    assert!(matches!(looking.claim_handoff("s"), Err(Error::ReadOnly { .. })));
    assert!(matches!(looking.fail_handoff("s", "x"), Err(Error::ReadOnly { .. })));
}

/// The table is there for another component, whose rows the store neither reads nor changes.
fn the_table_of_delegations_has_its_columns_and_defaults(mut db: World) {
    db.behind_its_back(
        "INSERT INTO async_delegations (delegation_id, origin_session, state, dispatched_at, updated_at) \
         VALUES ('deleg_00000001', '', 'running', 1, 2)",
    );
    let row = "SELECT origin_ui_session_id || '|' || delivery_state || '|' || delivery_attempts FROM async_delegations \
               WHERE parent_session_id IS NULL AND completed_at IS NULL AND event_json IS NULL AND result_json IS NULL \
               AND delivered_at IS NULL AND owner_pid IS NULL AND owner_started_at IS NULL AND task_json IS NULL \
               AND delivery_claim IS NULL AND delivery_claimed_at IS NULL";
    assert_eq!(db.seen_from_outside(row), "|pending|0");
}

on_each_engine! {
    a_request_is_taken_unless_a_handoff_is_under_way
    a_claim_is_had_only_of_what_is_pending
    completing_and_failing_ask_for_no_state
    the_first_500_characters_of_an_error_are_kept
    a_session_without_a_handoff_has_an_empty_one_and_no_session_has_none
    pending_handoffs_are_listed_in_the_order_of_their_sessions
    of_many_claims_and_requests_exactly_one_wins
    a_handle_that_only_reads_sees_handoffs_and_takes_no_step
    the_table_of_delegations_has_its_columns_and_defaults
}
