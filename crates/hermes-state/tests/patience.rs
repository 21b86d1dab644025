//! Waiting for siblings: a turn never dies because one is busy, a read never waits, and a patience that is over says why.

mod support;

use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use hermes_state::{Error, MessageQuery, NewMessage, NewSession, OpenOptions, Patience, SessionDb, SessionQuery};
use support::{python_says, python_started};

fn store() -> (tempfile::TempDir, SessionDb) {
    let folder = tempfile::tempdir().expect("a folder");
    let db = SessionDb::open(folder.path().join("state.db")).expect("opens");
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    (folder, db)
}

/// A process of the standard library's SQLite that holds the write lock so long.
fn hold(path: &Path, seconds: f64) -> std::process::Child {
    python_started(
        path,
        &format!(
            "c = sqlite3.connect(path, isolation_level=None)\nc.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\n\
             time.sleep({seconds})\nc.execute('COMMIT')"
        ),
    )
}

fn patience(seconds: f64) -> Patience {
    Patience { transcript: Duration::from_secs_f64(seconds), routine: Duration::from_secs_f64(seconds) }
}

#[test]
fn a_message_rides_out_a_hold_of_several_seconds() {
    let (_folder, db) = store();
    let mut holder = hold(db.path(), 3.0);
    let started = Instant::now();
    db.append_message("s", NewMessage::new("user", "rode it out")).expect("waits");
    assert!(started.elapsed() > Duration::from_secs(2), "there was something to wait for");
    assert_eq!(db.messages("s", &MessageQuery::default()).expect("reads")[0].content().text(), Some("rode it out"));
    holder.wait().expect("ends");
}

#[test]
fn the_standard_patience_is_a_minute_for_messages_and_twenty_seconds_for_the_rest() {
    let patience = Patience::default();
    assert_eq!((patience.transcript.as_secs(), patience.routine.as_secs()), (60, 20));
}

#[test]
fn a_patience_that_is_over_names_the_holder_and_not_the_disk() {
    let (_folder, db) = store();
    let mut holder = hold(db.path(), 3.0);
    db.set_patience(patience(0.3));
    let started = Instant::now();
    let error = db.set_meta("k", "v").expect_err("the lock is held");
    let waited = started.elapsed();
    assert!((Duration::from_millis(290)..Duration::from_millis(1500)).contains(&waited), "{waited:?}");
    let Error::Busy { holder: Some(named), .. } = &error else { panic!("{error:?}") };
    assert_eq!(named.pid, i32::try_from(holder.id()).expect("a pid"));
    let text = error.to_string().to_lowercase();
    for said in ["database is locked", "another hermes process", "healthy", "0.3 s", "python"] {
        assert!(text.contains(said), "{said:?} in {text:?}");
    }
    for alarm in ["malformed", "corrupt", "disk", "permission", "readonly", "read-only", "unable to open"] {
        assert!(!text.contains(alarm), "{alarm:?} in {text:?}");
    }
    holder.kill().expect("killed");
    holder.wait().expect("reaped");
    db.set_meta("k", "v").expect("the lock died with its holder");
}

#[test]
fn no_patience_means_one_attempt() {
    let (_folder, db) = store();
    db.set_patience(patience(0.0));
    db.set_meta("free", "yes").expect("one attempt is enough");
    let mut holder = hold(db.path(), 2.0);
    let started = Instant::now();
    assert!(matches!(db.set_meta("k", "v"), Err(Error::Busy { .. })));
    assert!(started.elapsed() < Duration::from_secs(1));
    holder.kill().expect("killed");
    holder.wait().expect("reaped");
}

#[test]
fn each_write_has_its_own_patience_although_they_queue_together() {
    let (folder, hasty) = store();
    let patient = SessionDb::open(folder.path().join("state.db")).expect("joins");
    hasty.set_patience(patience(0.3));
    patient.set_patience(patience(30.0));
    let mut holder = hold(hasty.path(), 2.0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| patient.append_message("s", NewMessage::new("user", "waited")));
        std::thread::sleep(Duration::from_millis(50));
        let started = Instant::now();
        let given_up = hasty.append_message("s", NewMessage::new("user", "hasty"));
        assert!(matches!(given_up, Err(Error::Busy { .. })), "{given_up:?}");
        assert!(started.elapsed() < Duration::from_millis(1500));
        waiting.join().expect("no panic").expect("is stored after the hold");
    });
    assert_eq!(patient.message_count(None).expect("counts"), 1);
    holder.wait().expect("ends");
}

/// Gives the next opening something to write, so that it must get the lock.
fn lose_an_index(path: &Path) {
    python_says(path, "sqlite3.connect(path).execute('DROP INDEX idx_sessions_handoff_state')");
}

#[test]
fn opening_rides_out_a_hold() {
    let (folder, db) = store();
    let path = db.path().to_owned();
    db.close().expect("closes");
    lose_an_index(&path);
    let mut holder = hold(&path, 2.5);
    let started = Instant::now();
    let db = SessionDb::open(&path).expect("waits");
    assert!(started.elapsed() > Duration::from_secs(1));
    db.append_message("s", NewMessage::new("user", "ok")).expect("appends");
    holder.wait().expect("ends");
    drop(folder);
}

#[test]
fn an_opening_that_cannot_wait_any_longer_says_the_same() {
    let (_folder, db) = store();
    let path = db.path().to_owned();
    db.close().expect("closes");
    lose_an_index(&path);
    let mut holder = hold(&path, 9.0);
    let error = OpenOptions::new().patience(patience(0.3)).open(&path).expect_err("the lock is held");
    assert!(matches!(&error, Error::Busy { holder: Some(_), .. }), "{error:?}");
    holder.kill().expect("killed");
    holder.wait().expect("reaped");
}

#[test]
fn a_read_never_waits_for_a_writer() {
    let (_folder, db) = store();
    db.append_message("s", NewMessage::new("user", "before")).expect("appends");
    let mut holder = hold(db.path(), 2.0);
    let started = Instant::now();
    for _ in 0..50 {
        assert_eq!(db.messages("s", &MessageQuery::default()).expect("reads").len(), 1);
        db.list_sessions(&SessionQuery::default()).expect("lists");
    }
    assert!(started.elapsed() < Duration::from_millis(1500), "{:?}", started.elapsed());
    holder.wait().expect("ends");
}

#[test]
fn a_write_that_fails_in_company_fails_alone() {
    let (_folder, db) = store();
    let db = Arc::new(db);
    let mut holder = hold(db.path(), 1.0);
    // All of them queue behind the hold and are committed together.
    let together = Arc::new(Barrier::new(20));
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..20)
            .map(|thread| {
                let (db, together) = (db.clone(), together.clone());
                scope.spawn(move || {
                    together.wait();
                    let session = if thread % 5 == 0 { "missing" } else { "s" };
                    db.append_message(session, NewMessage::new("user", format!("thread {thread}")))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for (thread, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.is_err(), thread % 5 == 0, "{thread}: {outcome:?}");
        if let Err(error) = outcome {
            assert!(matches!(error, Error::Constraint { .. }), "{error:?}");
        }
    }
    let session = db.session("s").expect("reads").expect("is there");
    assert_eq!((session.message_count(), db.message_count(None).expect("counts")), (16, 16));
    holder.wait().expect("ends");
}

#[test]
fn what_was_acknowledged_is_seen_by_every_later_read_of_any_thread() {
    let (folder, db) = store();
    let other = SessionDb::open(folder.path().join("state.db")).expect("joins");
    std::thread::scope(|scope| {
        for n in 1..=50 {
            let id = db.append_message("s", NewMessage::new("user", format!("{n}"))).expect("appends");
            let seen = scope.spawn(|| other.messages("s", &MessageQuery::default()).expect("reads"));
            assert_eq!(seen.join().expect("no panic").last().map(hermes_state::Message::id), Some(id));
        }
    });
}

#[test]
fn a_write_that_waits_can_be_withdrawn_and_is_then_not_stored() {
    let (_folder, db) = store();
    let path = db.path().to_owned();
    let interrupted = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let asked = interrupted.clone();
    let other = OpenOptions::new()
        .interrupt(move || asked.load(std::sync::atomic::Ordering::Relaxed))
        .open(&path)
        .expect("joins");
    other.append_message("s", NewMessage::new("user", "before")).expect("nobody interrupts");
    let mut holder = hold(db.path(), 3.0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| other.append_message("s", NewMessage::new("user", "withdrawn")));
        std::thread::sleep(Duration::from_millis(300));
        interrupted.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(matches!(waiting.join().expect("no panic"), Err(Error::Interrupted { perhaps_stored: false })));
    });
    assert!(holder.try_wait().expect("asks").is_none(), "the hold was not waited for");
    holder.wait().expect("ends");
    db.append_message("s", NewMessage::new("user", "after")).expect("appends");
    assert_eq!(db.message_count(None).expect("counts"), 2);
}
