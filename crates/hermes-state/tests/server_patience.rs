//! Waiting for a server and for others on it: who is patient is served, and a patience that is over says why, truly.
#![cfg(all(feature = "postgres", target_os = "linux"))]

#[path = "support/world.rs"]
mod world;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hermes_state::{Error, MessageQuery, NewMessage, NewSession, OpenOptions, SearchOptions, SessionDb};
use hermes_state_testkit::CuttingProxy;
use world::{World, open_with, patience, wait_until};

fn message(text: &str) -> NewMessage {
    NewMessage::new("user", text)
}

/// A store behind a proxy.
fn proxied() -> Option<(World, CuttingProxy, String)> {
    let world = World::make()?;
    let proxy = CuttingProxy::start(&world.server.host_port(), 1);
    let url = proxy.url(&world.url);
    Some((world, proxy, url))
}

/// Runs a call that must fail, and how long it took.
fn fails<T: std::fmt::Debug>(call: impl FnOnce() -> hermes_state::Result<T>) -> (Error, f64) {
    let started = Instant::now();
    let error = call().expect_err("must fail");
    (error, started.elapsed().as_secs_f64())
}

#[track_caller]
fn assert_unreachable(error: &Error, waited: f64, within: Range<f64>) {
    assert!(within.contains(&waited), "{waited} s: {error:?}");
    let Error::Unreachable { since, message, perhaps_stored: false, .. } = error else { panic!("{error:?}") };
    assert!(!message.is_empty());
    assert!(since.as_secs_f64() <= waited + 0.1, "{error:?} after {waited} s");
}

#[test]
fn an_append_rides_out_a_server_that_is_gone_for_eight_seconds() {
    let Some(world) = World::make() else { return };
    let db = world.open();
    db.append_message("s", message("before")).expect("appends");
    world.server.kill();
    let started = Instant::now();
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| db.append_message("s", message("meanwhile")));
        let reading = scope.spawn(|| db.messages("s", &MessageQuery::default()));
        std::thread::sleep(Duration::from_secs(8));
        assert!(!appending.is_finished() && !reading.is_finished());
        world.server.restart();
        appending.join().expect("no panic").expect("is stored");
        let read = reading.join().expect("no panic").expect("is read").len();
        assert!((1..=2).contains(&read), "{read}");
    });
    assert!(started.elapsed() >= Duration::from_secs(8));
    assert_eq!(world.texts(), ["before", "meanwhile"]);
}

#[test]
fn a_server_that_is_gone_for_longer_than_the_patience_is_unreachable() {
    let Some(world) = World::make() else { return };
    let db = open_with(&world.url, 3.0);
    world.server.kill();
    let (error, waited) = fails(|| db.append_message("s", message("lost")));
    assert_unreachable(&error, waited, 2.9..4.5);
    let text = error.to_string();
    assert!(text.contains("unreachable for") && text.contains("127.0.0.1"), "{text}");
    world.server.restart();
    db.append_message("s", message("after")).expect("appends");
    assert_eq!(world.texts(), ["after"]);
}

#[test]
fn a_server_that_swallows_everything_is_unreachable_when_the_patience_is_over() {
    let Some((world, proxy, url)) = proxied() else { return };
    let db = open_with(&url, 3.0);
    db.append_message("s", message("before")).expect("appends");
    proxy.stall(true);
    let (error, waited) = fails(|| db.append_message("s", message("swallowed")));
    // It was sent with its COMMIT, and may reach the server yet.
    assert!(matches!(error, Error::Unreachable { perhaps_stored: true, .. }), "{error:?}");
    assert!((2.9..4.5).contains(&waited), "{waited}");
    // Of others it is known that they were never committed.
    let (error, waited) = fails(|| db.append_messages("s", vec![message("swallowed 1"), message("swallowed 2")]));
    assert_unreachable(&error, waited, 2.9..4.5);
    let (error, waited) = fails(|| db.set_meta("key", "value"));
    assert!(matches!(error, Error::Unreachable { perhaps_stored: false, .. }), "{error:?}");
    assert!((2.9..4.5).contains(&waited), "{waited}");
    proxy.stall(false);
    db.append_message("s", message("after")).expect("appends");
    let mut texts = world.texts();
    texts.retain(|text| text != "swallowed");
    assert_eq!(texts, ["before", "after"]);
}

#[test]
fn a_read_from_a_server_that_is_gone_or_swallows_everything_is_unreachable_after_twenty_seconds() {
    let Some((world, proxy, url)) = proxied() else { return };
    let (swallowed, gone) = (SessionDb::open(&url).expect("opens"), world.open());
    swallowed.message_count(None).expect("counts");
    gone.message_count(None).expect("counts");
    proxy.stall(true);
    world.server.kill();
    std::thread::scope(|scope| {
        // A store that is not there is said so sooner: status is for people.
        let status = scope.spawn(|| fails(|| gone.status().map(|_| ())));
        let calls = [
            scope.spawn(|| fails(|| swallowed.message_count(None))),
            scope.spawn(|| fails(|| gone.message_count(None))),
        ];
        for call in calls {
            let (error, waited) = call.join().expect("no panic");
            assert_unreachable(&error, waited, 19.9..22.0);
        }
        let (error, waited) = status.join().expect("no panic");
        assert!(matches!(error, Error::Server { .. } | Error::Unreachable { .. }), "{error:?}");
        assert!(waited < 22.0, "{waited}");
    });
    proxy.stall(false);
    world.server.restart();
    assert_eq!(swallowed.message_count(None).expect("counts"), 0);
}

#[test]
fn who_is_more_patient_than_others_in_the_same_commit_is_not_answered_with_them() {
    let Some((world, proxy, url)) = proxied() else { return };
    let (hasty, patient) = (open_with(&url, 2.0), open_with(&url, 60.0));
    hasty.append_message("s", message("before")).expect("appends");
    proxy.stall(true);
    std::thread::scope(|scope| {
        // The first is alone; while it waits the others come.
        let waiting: Vec<_> = (0..3)
            .map(|n| {
                let patient = &patient;
                scope.spawn(move || patient.append_message("s", message(&format!("patient {n}"))))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        let (error, waited) = fails(|| hasty.append_message("s", message("hasty")));
        // Not after the patience of the others: it is noticed within ten seconds that nobody answers.
        assert_unreachable(&error, waited, 1.9..16.0);
        proxy.stall(false);
        for one in waiting {
            one.join().expect("no panic").expect("is stored");
        }
    });
    let mut texts = world.texts();
    texts.sort();
    assert_eq!(texts, ["before", "patient 0", "patient 1", "patient 2"]);
}

#[test]
fn a_connection_of_which_the_server_hears_nothing_any_more_is_replaced() {
    let Some(world) = World::make() else { return };
    let db = world.open();
    db.append_message("s", message("before")).expect("appends");
    let process = world.psql("SELECT pid FROM pg_stat_activity WHERE query = 'COMMIT';");
    let signal = |signal: &str| {
        let sent = std::process::Command::new("kill").args([signal, &process]).status().expect("kill");
        assert!(sent.success());
    };
    // To us this is a connection that takes what is sent and never answers; others are well.
    signal("-STOP");
    let started = Instant::now();
    let stored = db.append_message("s", message("by another"));
    let waited = started.elapsed();
    signal("-CONT");
    stored.expect("is stored");
    assert!(waited > Duration::from_secs(2), "there was nothing to wait for: {waited:?}");
    assert_eq!(world.texts(), ["before", "by another"]);
}

#[test]
fn a_lock_that_is_released_in_time_is_waited_for() {
    let Some(world) = World::make() else { return };
    let db = open_with(&world.url, 60.0);
    let mut other = world.other_session("BEGIN; SELECT 1 FROM sessions WHERE id = 's' FOR UPDATE;");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| db.append_message("s", message("waited")));
        std::thread::sleep(Duration::from_secs(5));
        assert!(!waiting.is_finished());
        other.say("COMMIT;");
        waiting.join().expect("no panic").expect("is stored");
    });
    assert_eq!(world.texts(), ["waited"]);
}

#[test]
fn locks_on_some_sessions_hold_up_nobody_who_writes_to_another() {
    let Some(world) = World::make() else { return };
    let db = open_with(&world.url, 60.0);
    for n in 0..10 {
        db.create_session(NewSession::new(format!("locked{n}"), "cli")).expect("creates");
    }
    let mut other = world.other_session("BEGIN; UPDATE sessions SET user_id = 'x' WHERE id LIKE 'locked%';");
    let sibling =
        hermes_state::OpenOptions::new().patience(patience(60.0)).open(format!("{}&application_name=b", world.url));
    let sibling = sibling.expect("opens");
    std::thread::scope(|scope| {
        let mut waiting = Vec::new();
        for n in 0..10 {
            let (db, locked) = (&db, format!("locked{n}"));
            let again = locked.clone();
            waiting.push(scope.spawn(move || db.append_message(locked.as_str(), message("waited")).map(|_| ())));
            waiting.push(scope.spawn(move || db.end_session(again.as_str(), "done")));
        }
        std::thread::sleep(Duration::from_secs(1));
        // Those that wait are tried again now and then, each for a second or so.
        let mut longest = [Duration::ZERO; 2];
        for n in 0..4 {
            for (one, longest) in [&db, &sibling].into_iter().zip(&mut longest) {
                let started = Instant::now();
                one.append_message("s", message("not held up")).expect("is stored");
                one.set_meta("key", n).expect("is stored");
                *longest = started.elapsed().max(*longest);
            }
        }
        assert!(longest.iter().all(|longest| *longest < Duration::from_secs(10)), "{longest:?}");
        assert!(waiting.iter().all(|one| !one.is_finished()));
        other.say("COMMIT;");
        for one in waiting {
            one.join().expect("no panic").expect("is stored");
        }
    });
    assert_eq!(world.texts().len(), 8);
    let waited =
        "SELECT count(*) FROM sessions WHERE id LIKE 'locked%' AND message_count = 1 AND ended_at IS NOT NULL;";
    assert_eq!(world.psql(waited), "10");
}

#[track_caller]
fn assert_locked(error: &Error, waited: f64, within: Range<f64>, by: i32) {
    assert!(within.contains(&waited), "{waited} s: {error:?}");
    let Error::LockedOnServer { holder: Some(holder), .. } = error else { panic!("{error:?} after {waited} s") };
    assert_eq!((holder.pid, holder.program.as_deref()), (by, Some("psql")));
    let text = error.to_string();
    assert!(text.contains("database is locked") && text.contains(&format!("pid {by} (psql)")), "{text}");
}

#[test]
fn a_lock_on_the_session_that_outlasts_the_patience_names_who_holds_it() {
    let Some(world) = World::make() else { return };
    let other = world.other_session("BEGIN; UPDATE sessions SET title = 'mine' WHERE id = 's';");
    for seconds in [1.5, 2.3, 5.0] {
        let db = open_with(&world.url, seconds);
        let (error, waited) = fails(|| db.append_message("s", message("locked out")));
        assert_locked(&error, waited, seconds - 0.1..seconds + 1.5, other.pid);
        let Error::LockedOnServer { waited: said, .. } = error else { unreachable!("asserted") };
        assert!((said.as_secs_f64() - waited).abs() < 0.5, "{said:?} and {waited} s");
        let (error, waited) = fails(|| db.set_session_title("s", Some("ours")));
        assert_locked(&error, waited, seconds - 0.1..seconds + 1.5, other.pid);
    }
    drop(other);
    world.open().append_message("s", message("after")).expect("appends");
    assert_eq!(world.texts(), ["after"]);
}

#[test]
fn a_lock_on_a_table_that_outlasts_the_patience_names_who_holds_it_to_writes_and_reads() {
    let Some(world) = World::make() else { return };
    // No statement has been prepared yet, which already needs the table.
    let db = open_with(&world.url, 3.0);
    let other = world.other_session("BEGIN; LOCK TABLE messages;");
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| fails(|| db.message_count(None)));
        let (error, waited) = fails(|| db.append_message("s", message("locked out")));
        assert_locked(&error, waited, 2.9..4.5, other.pid);
        let (error, waited) = reading.join().expect("no panic");
        assert_locked(&error, waited, 19.9..22.0, other.pid);
    });
    drop(other);
    db.append_message("s", message("after")).expect("appends");
    assert_eq!(db.message_count(None).expect("counts"), 1);
}

#[test]
fn a_write_that_waits_for_a_dead_server_can_be_withdrawn() {
    let Some((world, proxy, url)) = proxied() else { return };
    for swallows in [false, true] {
        let wanted_no_longer = Arc::new(AtomicBool::new(false));
        let asked = wanted_no_longer.clone();
        let db = OpenOptions::new().interrupt(move || asked.load(Ordering::Relaxed)).open(&url).expect("opens");
        db.append_message("s", message("before")).expect("appends");
        if swallows {
            proxy.stall(true)
        } else {
            world.server.kill()
        }
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| fails(|| db.append_message("s", message("withdrawn"))));
            std::thread::sleep(Duration::from_millis(500));
            wanted_no_longer.store(true, Ordering::Relaxed);
            let (error, waited) = waiting.join().expect("no panic");
            // What was sent with its COMMIT to a server that does not answer may reach it yet.
            assert!(matches!(error, Error::Interrupted { perhaps_stored } if perhaps_stored == swallows), "{error:?}");
            // A silent server is only known to be dead after some seconds of silence; long before the patience ends.
            assert!(waited < if swallows { 25.0 } else { 10.0 }, "{waited}");
        });
        if swallows { proxy.stall(false) } else { world.server.restart() }
    }
    let mut texts = world.texts();
    texts.retain(|text| text != "withdrawn");
    assert_eq!(texts, ["before", "before"]);
}

#[test]
fn opening_rides_out_a_server_that_comes_back_and_ends_with_a_patience_that_a_silent_one_outlasts() {
    let Some((_world, proxy, url)) = proxied() else { return };
    proxy.stall(true);
    let (error, waited) = fails(|| OpenOptions::new().patience(patience(2.0)).open(&url));
    assert!(matches!(error, Error::Server { .. } | Error::Unreachable { .. }), "{error:?}");
    assert!((1.9..4.0).contains(&waited), "{waited}");
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| SessionDb::open(&url));
        std::thread::sleep(Duration::from_secs(2));
        // Now the connection that it makes is cut, too.
        proxy.stall(false);
        proxy.cut_all();
        opening.join().expect("no panic").expect("opens");
    });
}

#[test]
fn an_opening_that_meets_a_lock_ends_with_its_patience_and_names_who_holds_it() {
    let Some(world) = World::make() else { return };
    let other = world.other_session("BEGIN; LOCK TABLE schema_version;");
    let (error, waited) = fails(|| OpenOptions::new().patience(patience(3.0)).open(&world.url));
    assert_locked(&error, waited, 2.9..4.5, other.pid);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| SessionDb::open(&world.url));
        drop(other);
        waiting.join().expect("no panic").expect("opens");
    });
}

#[test]
fn closing_while_the_server_is_away_waits_no_longer_than_the_writes_do() {
    let Some((world, proxy, url)) = proxied() else { return };
    for swallows in [false, true] {
        let db = open_with(&url, 2.0);
        db.append_message("s", message("before")).expect("appends");
        db.message_count(None).expect("counts");
        if swallows {
            proxy.stall(true)
        } else {
            world.server.kill()
        }
        let started = Instant::now();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| db.append_message("s", message("waiting")));
            std::thread::sleep(Duration::from_millis(200));
            db.close().expect("closes");
            assert!(waiting.join().expect("no panic").is_err());
        });
        assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
        if swallows { proxy.stall(false) } else { world.server.restart() }
    }
}

#[test]
fn a_process_that_is_frozen_in_the_middle_of_a_write_holds_up_nobody_for_long() {
    let Some((world, proxy, url)) = proxied() else { return };
    let frozen = SessionDb::open(&url).expect("opens");
    let other = world.other_session("BEGIN; SELECT 1 FROM sessions WHERE id = 's' FOR UPDATE;");
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| frozen.append_message("s", message("frozen")));
        let waits = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock';";
        wait_until("the writer waits for the session", || world.psql(waits) == "1");
        // From here on it hears nothing: it gets the lock, and nobody says what to do next.
        proxy.stall(true);
        drop(other);
        let db = world.open();
        let started = Instant::now();
        db.append_message("s", message("sibling")).expect("is stored in time");
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
        // A routine write is less patient.
        db.set_session_title("s", Some("title")).expect("is stored in time");
        proxy.stall(false);
        writing.join().expect("no panic").expect("is stored in the end");
    });
    assert_eq!(world.texts(), ["sibling", "frozen"]);
}

/// Cutting its words takes longer than the server, in this test, waits for a client in the middle of a transaction.
#[test]
fn a_long_message_outlasts_what_the_server_allows_idle_clients() {
    let Some(world) = World::make() else { return };
    let url = format!("{}&options=-c%20idle_in_transaction_session_timeout%3D150ms", world.url);
    let db = SessionDb::open(&url).expect("opens");
    let words: String = (0..600_000).map(|n| format!("w{n} ")).collect();
    let id =
        db.append_message("s", NewMessage::new("user", words.as_str())).expect("is stored").stored().expect("stored");
    let hits = db.search_messages("w599999", &SearchOptions::default()).expect("searches");
    assert_eq!(hits.iter().map(|hit| hit.id).collect::<Vec<_>>(), [id]);
}
