//! Upkeep: keys that one of several wins, the automatic prune, giving space back, and who is there.

use std::time::Duration;

use hermes_state::{AutoPruneOptions, Error, NewMessage, Value};

use crate::world::{World, on_each_engine};

on_each_engine! {
    a_key_is_replaced_only_if_it_holds_what_was_seen
    of_many_that_have_seen_the_same_one_replaces_it
    an_automatic_prune_runs_once_in_its_interval
    a_prune_that_fails_gives_its_turn_back
    a_vacuum_keeps_everything_and_a_reader_may_not
    giving_space_back_keeps_everything
    who_is_there_is_told
}

fn a_key_is_replaced_only_if_it_holds_what_was_seen(db: World) {
    assert!(db.replace_meta("k", Value::Null, "one").expect("writes"), "it is not there");
    assert!(!db.replace_meta("k", Value::Null, "two").expect("writes"));
    assert!(!db.replace_meta("k", "two", "three").expect("writes"));
    assert_eq!(db.meta("k").expect("reads").as_deref(), Some("one"));
    assert!(db.replace_meta("k", "one", "").expect("writes"));
    assert!(db.replace_meta("k", "", Value::Null).expect("writes"));
    assert_eq!(db.meta_value("k").expect("reads"), Value::Null);
    assert!(db.replace_meta("k", Value::Null, "four").expect("writes"), "it is gone");
}

fn of_many_that_have_seen_the_same_one_replaces_it(db: World) {
    for round in 0..5 {
        let seen = db.meta_value("turn").expect("reads");
        let won: Vec<bool> = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..6)
                .map(|racer| {
                    let (db, seen) = (&db, seen.clone());
                    scope.spawn(move || db.replace_meta("turn", seen, format!("{round}-{racer}")).expect("writes"))
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().expect("ends")).collect()
        });
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "{won:?}");
    }
}

fn an_automatic_prune_runs_once_in_its_interval(db: World) {
    let options = AutoPruneOptions::default();
    let first = db.maybe_auto_prune_and_vacuum(&options, |_| Ok(3)).expect("prunes");
    assert_eq!((first.skipped, first.pruned, first.vacuumed), (false, 3, true));
    let stamp = db.meta("last_auto_prune").expect("reads").expect("a time");
    assert!(stamp.parse::<f64>().expect("a number") > 1e9, "{stamp}");
    let second = db.maybe_auto_prune_and_vacuum(&options, |_| unreachable!("it is not time")).expect("skips");
    assert!(second.skipped);
    assert_eq!(db.meta("last_auto_prune").expect("reads"), Some(stamp));
    let mut always = AutoPruneOptions::default();
    always.min_interval = Duration::ZERO;
    let third = db.maybe_auto_prune_and_vacuum(&always, |_| Ok(0)).expect("prunes");
    assert_eq!((third.skipped, third.pruned, third.vacuumed), (false, 0, false));
    // A clock that was days ahead does not stop it for days.
    let ahead = stamp_in(40.0 * 86_400.0);
    db.set_meta("last_auto_prune", ahead.as_str()).expect("writes");
    assert!(!db.maybe_auto_prune_and_vacuum(&options, |_| Ok(0)).expect("prunes").skipped);
    db.set_meta("last_auto_prune", stamp_in(600.0).as_str()).expect("writes");
    assert!(db.maybe_auto_prune_and_vacuum(&options, |_| Ok(0)).expect("skips").skipped);
}

fn stamp_in(seconds: f64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    (now.as_secs_f64() + seconds).to_string()
}

fn a_prune_that_fails_gives_its_turn_back(db: World) {
    let options = AutoPruneOptions::default();
    let failed = db.maybe_auto_prune_and_vacuum(&options, |_| Err(Error::Invalid("no".into())));
    assert_eq!(failed.expect_err("fails").to_string(), "no");
    assert_eq!(db.meta_value("last_auto_prune").expect("reads"), Value::Null);
    assert_eq!(db.maybe_auto_prune_and_vacuum(&options, |_| Ok(1)).expect("prunes").pruned, 1);
}

fn fill(db: &World) {
    let texts = (0..200).map(|number| format!("marker{number}q {}", "filler ".repeat(80)));
    db.append_messages("s", texts.map(|text| NewMessage::new("user", text)).collect()).expect("appends");
}

fn a_vacuum_keeps_everything_and_a_reader_may_not(db: World) {
    let db = db.with_session();
    fill(&db);
    let report = db.vacuum().expect("vacuums");
    assert!(report.after > 0, "{report:?}");
    assert_eq!(db.message_count(Some("s")).expect("counts"), 200);
    assert_eq!(db.search_messages("marker7q", &Default::default()).expect("searches").len(), 1);
    let reader = db.looking();
    assert!(matches!(reader.vacuum(), Err(Error::ReadOnly { .. })));
    assert!(matches!(reader.release_space(), Err(Error::ReadOnly { .. })));
}

fn giving_space_back_keeps_everything(db: World) {
    let mut db = db.with_session();
    fill(&db);
    db.behind_its_back("DELETE FROM messages WHERE id % 2 = 0");
    let report = db.release_space().expect("gives back");
    assert!(report.after <= report.before, "{report:?}");
    assert_eq!(db.message_count(Some("s")).expect("counts"), 100);
}

fn who_is_there_is_told(db: World) {
    let users = db.who().expect("looks");
    let status = db.status().expect("looks");
    let on_file = matches!(status.engine, hermes_state::EngineStatus::File { .. });
    if on_file {
        let own: Vec<_> = users.iter().filter(|user| user.pid == std::process::id().cast_signed()).collect();
        assert_eq!(own.len(), 1, "{users:?}");
        assert!(own[0].takes_turns && own[0].open_for.is_some_and(|time| time < Duration::from_secs(600)), "{own:?}");
    } else {
        assert!(users.iter().all(|user| user.open_for.is_some()), "{users:?}");
    }
}
