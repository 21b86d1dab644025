//! Waiting for siblings: a turn never dies because one is busy, a read never waits, and a patience that is over says why.

mod support;

use std::fmt::Debug;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use hermes_state::{
    Error, LockKind, MessageQuery, NewMessage, NewSession, OpenOptions, Patience, SessionDb, SessionQuery, User,
};
use support::{play, python_says, python_started, role};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Without the spool: what runs out of patience is refused.
fn store() -> (tempfile::TempDir, SessionDb) {
    let folder = tempfile::tempdir().expect("a folder");
    let db = OpenOptions::new().spool(false).open(folder.path().join("state.db")).expect("opens");
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
        let given_up = hasty.set_meta("hasty", "yes");
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
    let error = OpenOptions::new().patience(patience(0.3)).spool(false).open(&path).expect_err("the lock is held");
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
            let id = db
                .append_message("s", NewMessage::new("user", format!("{n}")))
                .expect("appends")
                .stored()
                .expect("stored");
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

/// What the library logs on a thread, with the time of each line.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(Instant, String)>>>);

impl Log {
    fn lines(&self) -> Vec<(Instant, String)> {
        self.0.lock().expect("whole").clone()
    }
}

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = String::new();
        event.record(&mut Text(&mut line));
        self.0.lock().expect("whole").push((Instant::now(), line));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn user(db: &SessionDb, pid: u32) -> Option<User> {
    let pid = i32::try_from(pid).expect("a pid");
    db.who().expect("looks").into_iter().find(|user| user.pid == pid)
}

/// Looks until it is there; fails after a minute.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Slow on purpose, 45 s and more: the holds and patiences are those that were reported from the field.
#[test]
fn a_sibling_that_sits_on_the_lock_delays_an_append_and_is_named() {
    let (_folder, db) = store();
    db.append_message("s", NewMessage::new("user", "a")).expect("appends");
    let mut holder = hold(db.path(), 8.0);
    let name = format!("pid {}", holder.id());
    std::thread::sleep(Duration::from_millis(200));
    let (log, started) = (Log::default(), Instant::now());
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| {
            let appended =
                tracing::subscriber::with_default(log.clone(), || db.append_message("s", NewMessage::new("user", "b")));
            (appended, started.elapsed())
        });
        wait_for("the holder is named", || user(&db, holder.id()).filter(|user| user.holds_write_lock));
        assert!(started.elapsed() < Duration::from_secs(3), "named after {:?}", started.elapsed());
        let own = wait_for("the wait is seen", || user(&db, std::process::id()).filter(|user| user.waiting.is_some()));
        assert_eq!(own.operation.as_deref(), Some("writing a transcript"), "{own:?}");
        assert!(!own.holds_write_lock, "{own:?}");
        let (appended, took) = appending.join().expect("no panic");
        appended.expect("is stored");
        assert!((7.5..9.5).contains(&took.as_secs_f64()), "{took:?}");
    });
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "it is told once: {lines:?}");
    let told = lines[0].0.duration_since(started).as_secs_f64();
    assert!((2.0..3.0).contains(&told) && lines[0].1.contains(&name), "{told} {lines:?}");
    holder.wait().expect("ends");

    db.set_patience(patience(20.0));
    let mut holder = hold(db.path(), 45.0);
    let started = Instant::now();
    let error = db.append_message("s", NewMessage::new("user", "c")).expect_err("the lock is held");
    let took = started.elapsed().as_secs_f64();
    assert!((19.0..21.0).contains(&took), "{took}");
    let Error::Busy { holder: Some(named), .. } = &error else { panic!("{error:?}") };
    assert_eq!(named.pid, i32::try_from(holder.id()).expect("a pid"));
    let text = error.to_string().to_lowercase();
    assert!(text.contains("database is locked") && text.contains(&format!("pid {}", holder.id())), "{text}");
    for alarm in ["malformed", "corrupt", "disk", "permission", "readonly", "read-only", "unable to open"] {
        assert!(!text.contains(alarm), "{alarm:?} in {text:?}");
    }
    holder.wait().expect("ends");
    let started = Instant::now();
    db.append_message("s", NewMessage::new("user", "d")).expect("appends");
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(db.message_count(Some("s")).expect("counts"), 3);
}

/// A value that is never done being stored.
const ENDLESS: &str = "c = sqlite3.connect(path)\n\
    c.execute(\"CREATE TRIGGER endless AFTER INSERT ON state_meta WHEN new.key = 'endless' BEGIN \
        UPDATE state_meta SET value = (WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT MAX(x) FROM n); END\")\n\
    c.commit()";

#[test]
fn a_sibling_of_ours_is_named_with_its_operation_and_for_how_long_and_only_while_it_lives() {
    if let Some((_, path)) = role() {
        let _ = SessionDb::open(path).expect("opens").set_meta("endless", "x");
        return;
    }
    let (_folder, db) = store();
    python_says(db.path(), ENDLESS);
    let test = "a_sibling_of_ours_is_named_with_its_operation_and_for_how_long_and_only_while_it_lives";
    let mut holder =
        play(test, "holder", db.path(), LockKind::PrivateTable).stdout(Stdio::null()).spawn().expect("runs");
    let seen = wait_for("it holds the lock", || user(&db, holder.id()).filter(|user| user.holding.is_some()));
    assert!(seen.holds_write_lock && seen.takes_turns, "{seen:?}");
    assert_eq!(seen.operation.as_deref(), Some("writing"));
    assert!(seen.open_since.is_some());
    for _ in 0..20 {
        assert_eq!(user(&db, holder.id()).expect("is there").open_since, seen.open_since, "it opened the store once");
    }
    db.set_patience(patience(0.3));
    let error = db.append_message("s", NewMessage::new("user", "x")).expect_err("the lock is held");
    let Error::Busy { holder: Some(named), .. } = &error else { panic!("{error:?}") };
    assert_eq!((named.pid, named.operation), (i32::try_from(holder.id()).expect("a pid"), Some("writing")));
    assert!(named.since.expect("is known") > Duration::from_millis(250), "{named:?}");
    let text = error.to_string();
    assert!(text.contains(&format!("pid {}", holder.id())) && text.contains(", writing, for "), "{text}");
    holder.kill().expect("killed");
    holder.wait().expect("reaped");
    assert_eq!(user(&db, holder.id()), None, "the dead are not named");
    assert_eq!(db.write_lock_holder(), None);
    db.set_patience(patience(20.0));
    db.append_message("s", NewMessage::new("user", "y")).expect("the lock died with it");
}
