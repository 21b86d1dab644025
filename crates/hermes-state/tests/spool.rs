//! What the store cannot take is spooled, and stored once, in order, by whoever can next.
#![cfg(target_os = "linux")]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hermes_state::{
    Appended, Error, MessageQuery, NewMessage, NewSession, OpenOptions, Patience, SessionDb, Spool, SpoolLimits,
};
use support::{python_says, python_started};

fn patience(seconds: f64) -> Patience {
    Patience { transcript: Duration::from_secs_f64(seconds), routine: Duration::from_secs_f64(seconds) }
}

fn message(text: &str) -> NewMessage {
    NewMessage::new("user", text)
}

/// A store with a session `s` and one message.
fn store() -> (tempfile::TempDir, SessionDb) {
    let folder = tempfile::tempdir().expect("a folder");
    let db = SessionDb::open(folder.path().join("state.db")).expect("opens");
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    db.append_message("s", message("a")).expect("appends");
    (folder, db)
}

fn texts(db: &SessionDb, session: &str) -> Vec<String> {
    let messages = db.messages(session, &MessageQuery::default()).expect("reads");
    messages.iter().map(|message| message.content().text().unwrap_or_default().to_owned()).collect()
}

/// Holds the write lock until it is killed.
fn hold(path: &Path) -> std::process::Child {
    python_started(
        path,
        "c = sqlite3.connect(path, isolation_level=None)\nc.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\ntime.sleep(600)",
    )
}

fn end(mut child: std::process::Child) {
    child.kill().expect("killed");
    child.wait().expect("reaped");
}

fn spooled(answer: Result<Appended, Error>) -> hermes_state::Ticket {
    answer.expect("is kept").ticket().expect("is spooled")
}

/// Keeps writes in the spool while somebody holds the lock.
fn spool_some(path: &Path, texts: &[&str]) {
    let holder = hold(path);
    let db = OpenOptions::new().patience(patience(0.05)).open(path).expect("opens");
    for text in texts {
        spooled(db.append_message("s", message(text)));
    }
    drop(db);
    end(holder);
}

fn logs(path: &Path) -> Vec<PathBuf> {
    let mut folder = path.as_os_str().to_owned();
    folder.push("-spool");
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

#[test]
fn an_append_that_runs_out_of_patience_is_spooled_and_stored_before_the_next() {
    let (_folder, db) = store();
    db.set_patience(patience(1.0));
    let holder = hold(db.path());
    let started = Instant::now();
    spooled(db.append_message("s", message("c")));
    assert!(started.elapsed() >= Duration::from_millis(950), "{:?}", started.elapsed());
    let status = db.spool_status().expect("reads").expect("has one");
    assert_eq!((status.writes, status.refused, status.damaged), (1, 0, 0));
    assert_eq!(texts(&db, "s"), ["a"], "a read waits for nobody");
    end(holder);
    assert!(!db.append_message("s", message("d")).expect("appends").is_spooled());
    assert_eq!(texts(&db, "s"), ["a", "c", "d"]);
    let session = db.session("s").expect("reads").expect("is there");
    assert_eq!(session.message_count(), 3);
    assert!(!db.spool().expect("has one").folder().exists(), "nothing is left of it");
}

/// The values that people were promised: patience of twenty seconds, a holder of forty-five.
#[test]
fn a_sibling_that_sits_on_the_lock_costs_no_message() {
    let (_folder, db) = store();
    let mut holder = python_started(
        db.path(),
        "c = sqlite3.connect(path, isolation_level=None)\nc.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\ntime.sleep(45)\nc.execute('ROLLBACK')",
    );
    db.set_patience(patience(20.0));
    let started = Instant::now();
    spooled(db.append_message("s", message("c")));
    let waited = started.elapsed();
    assert!((Duration::from_secs(19)..Duration::from_secs(40)).contains(&waited), "{waited:?}");
    holder.wait().expect("ends");
    db.append_message("s", message("d")).expect("appends").id().expect("is stored at once");
    assert_eq!(texts(&db, "s"), ["a", "c", "d"]);
}

#[test]
fn a_holder_that_is_stopped_beyond_the_patience_and_goes_on_costs_no_message() {
    let (_folder, db) = store();
    db.set_patience(patience(0.5));
    let mut holder = python_started(
        db.path(),
        "c = sqlite3.connect(path, isolation_level=None)\nc.execute('BEGIN IMMEDIATE')\n\
         c.execute(\"INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'theirs', 1.0)\")\n\
         print('held', flush=True)\ntime.sleep(0.2)\nc.execute('COMMIT')",
    );
    let pid = holder.id().to_string();
    let signal = |name: &str| {
        assert!(std::process::Command::new("kill").args([name, &pid]).status().expect("kill").success());
    };
    signal("-STOP");
    spooled(db.append_message("s", message("b")));
    spooled(db.append_message("s", message("c")));
    signal("-CONT");
    holder.wait().expect("ends");
    db.append_message("s", message("d")).expect("appends").id().expect("is stored");
    assert_eq!(texts(&db, "s"), ["a", "theirs", "b", "c", "d"]);
}

#[test]
fn the_spool_is_its_users_alone() {
    let (_folder, db) = store();
    let path = db.path().to_owned();
    drop(db);
    spool_some(&path, &["b"]);
    let logs = logs(&path);
    let mode = |path: &Path| path.metadata().expect("is there").permissions().mode() & 0o777;
    assert_eq!(logs.len(), 1);
    assert_eq!((mode(&logs[0]), mode(logs[0].parent().expect("a folder"))), (0o600, 0o700));
}

#[test]
fn a_torn_end_at_any_byte_of_a_record_keeps_the_records_before() {
    let (folder, db) = store();
    let path = db.path().to_owned();
    drop(db);
    spool_some(&path, &["b", "c"]);
    let log = logs(&path).pop().expect("a log");
    // Many stores, each with the log cut off one byte earlier.
    let script = "import shutil\nlog = sys.argv[2]\ndata = open(log, 'rb').read()\nends = [i + 1 for i, byte in enumerate(data) if byte == 10]\n\
         print(len(ends), ends[1], ends[2], len(data))\n\
         for cut in range(ends[1], len(data)):\n    copy = os.path.join(os.path.dirname(path), str(cut))\n    os.mkdir(copy)\n\
         \x20   shutil.copy(path, copy)\n    os.mkdir(copy + '/state.db-spool', 0o700)\n    open(copy + '/state.db-spool/x.log', 'wb').write(data[:cut])";
    let output = support::python(&path, script).arg(&log).output().expect("runs");
    support::must_succeed(&output);
    let told = String::from_utf8(output.stdout).expect("text");
    let numbers: Vec<usize> = told.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    let [3, second, end, length] = numbers[..] else { panic!("a head and two records: {told}") };
    assert_eq!(end, length);
    for cut in second..length {
        let copy = folder.path().join(cut.to_string()).join("state.db");
        let db = SessionDb::open(&copy).expect("opens");
        assert_eq!(texts(&db, "s"), ["a", "b"], "cut at {cut}");
        drop(db);
        assert!(logs(&copy).is_empty(), "cut at {cut}");
        std::fs::remove_dir_all(copy.parent().expect("a folder")).expect("removes");
    }
}

#[test]
fn a_damaged_record_holds_up_no_other_and_is_kept() {
    let (_folder, db) = store();
    let path = db.path().to_owned();
    drop(db);
    spool_some(&path, &["b", "c", "d"]);
    let log = logs(&path).pop().expect("a log");
    python_says(
        &log,
        "data = bytearray(open(path, 'rb').read())\ndata[data.index(b'\"c\"') + 1] = 120\nopen(path, 'wb').write(data)",
    );
    let db = SessionDb::open(&path).expect("opens");
    assert_eq!(texts(&db, "s"), ["a", "b", "d"]);
    let status = db.spool_status().expect("reads").expect("has one");
    assert_eq!((status.writes, status.damaged), (0, 1));
    db.append_message("s", message("e")).expect("appends").id().expect("is stored");
    assert_eq!(db.spool().expect("has one").discard_all().expect("discards"), 1);
    assert!(logs(&path).is_empty());
}

#[test]
fn what_the_store_refuses_is_set_aside_and_can_be_tried_again() {
    let (_folder, db) = store();
    db.append_message("s", message("known").client_key("k")).expect("appends");
    let path = db.path().to_owned();
    drop(db);
    let holder = hold(&path);
    let db = OpenOptions::new().patience(patience(0.05)).open(&path).expect("opens");
    spooled(db.append_message("s", message("b")));
    let refused = spooled(db.append_message("s", message("other").client_key("k")));
    spooled(db.append_message("s", message("c")));
    end(holder);
    db.set_patience(patience(20.0));
    let report = db.replay_spool(false).expect("replays");
    assert_eq!((report.stored, report.refused.len(), report.refused[0].0), (2, 1, refused));
    assert_eq!(texts(&db, "s"), ["a", "known", "b", "c"]);
    let kept = db.spool().expect("has one").writes().expect("reads");
    assert!(kept.len() == 1 && kept[0].ticket() == refused && kept[0].refused().expect("says why").contains("'k'"));
    db.append_message("s", message("d")).expect("appends").id().expect("is stored");
    python_says(
        &path,
        "c = sqlite3.connect(path)\nc.execute(\"DELETE FROM messages WHERE content = 'known'\")\nc.commit()",
    );
    assert_eq!(db.replay_spool(true).expect("replays").stored, 1);
    assert_eq!(texts(&db, "s"), ["a", "b", "c", "d", "other"]);
    assert!(logs(&path).is_empty());
}

#[test]
fn a_write_for_a_session_that_is_missing_makes_it() {
    let (_folder, db) = store();
    db.set_patience(patience(0.05));
    let holder = hold(db.path());
    let messages = vec![message("one").timestamp(7.5), message("two")];
    assert!(db.append_messages("new", messages).expect("is kept").is_spooled());
    end(holder);
    db.set_patience(patience(20.0));
    db.replay_spool(false).expect("replays");
    let session = db.session("new").expect("reads").expect("was made");
    assert_eq!((session.source(), session.started_at(), session.message_count()), ("unknown", 7.5, 2));
}

#[test]
fn what_is_wrong_with_the_write_itself_is_not_spooled() {
    let (_folder, db) = store();
    db.set_patience(patience(0.05));
    let holder = hold(db.path());
    assert!(matches!(db.append_message("s", message("x").client_key("")), Err(Error::Invalid(_))));
    assert!(matches!(db.append_message("s", NewMessage::new(None::<&str>, "x")), Err(Error::Busy { .. })));
    end(holder);
    db.set_patience(patience(20.0));
    assert!(matches!(db.append_message("none", message("x")), Err(Error::Constraint { .. })));
    assert_eq!(db.spool_status().expect("reads").expect("has one").writes, 0);
    let unspooled = OpenOptions::new().spool(false).patience(patience(0.05)).open(db.path()).expect("opens");
    let holder = hold(db.path());
    assert!(matches!(unspooled.append_message("s", message("x")), Err(Error::Busy { .. })));
    end(holder);
}

#[test]
fn a_full_spool_says_so_and_why_the_store_took_nothing() {
    let (_folder, db) = store();
    let path = db.path().to_owned();
    drop(db);
    let holder = hold(&path);
    let limited = |limits| OpenOptions::new().patience(patience(0.05)).spool_limits(limits).open(&path).expect("opens");
    let few = limited(SpoolLimits { writes: 2, ..SpoolLimits::default() });
    spooled(few.append_message("s", message("b")));
    spooled(few.append_message("s", message("c")));
    let error = few.append_message("s", message("d")).expect_err("is full");
    let Error::SpoolFull { writes: 2, cause, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(**cause, Error::Busy { .. }) && error.to_string().contains("spool replay"), "{error}");
    let small = limited(SpoolLimits { bytes: 2000, ..SpoolLimits::default() });
    let error = small.append_message("s", message(&"x".repeat(2000))).expect_err("is full");
    assert!(matches!(error, Error::SpoolFull { .. }), "{error:?}");
    end(holder);
    drop((few, small));
    assert_eq!(texts(&SessionDb::open(&path).expect("opens"), "s"), ["a", "b", "c"]);
}

#[test]
fn a_store_that_cannot_be_opened_is_tried_at_each_use_and_spooled_for_meanwhile() {
    let (_folder, db) = store();
    let path = db.path().to_owned();
    drop(db);
    python_says(&path, "os.rename(path, path + '.good')\nopen(path, 'w').write('no store ' * 1000)");
    let db = SessionDb::open(&path).expect("gives a handle");
    assert_eq!(db.path(), path);
    spooled(db.append_message("s", message("b")));
    assert!(matches!(db.message_count(None), Err(Error::NotADatabase { .. })));
    assert!(matches!(db.set_meta("k", "v"), Err(Error::NotADatabase { .. })));
    spooled(db.append_message("s", message("c")));
    let spool = Spool::of(&path, None).expect("is one").expect("has a place");
    assert_eq!(spool.status().expect("reads").writes, 2);
    python_says(&path, "os.rename(path + '.good', path)");
    db.append_message("s", message("d")).expect("appends").id().expect("is stored");
    assert_eq!(texts(&db, "s"), ["a", "b", "c", "d"]);
}

#[test]
fn a_location_that_can_be_no_store_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(matches!(SessionDb::open(folder.path()), Err(Error::CannotOpen { .. })));
    assert!(!folder.path().with_extension("-spool").exists());
}

#[test]
fn a_store_that_was_replaced_under_a_handle_has_its_messages_spooled_for_the_new_one() {
    let (_folder, db) = store();
    let path = db.path().to_owned();
    python_says(&path, "import shutil\nshutil.copy(path, path + '.new')\nos.replace(path + '.new', path)");
    spooled(db.append_message("s", message("b")));
    spooled(db.append_message("s", message("c")));
    drop(db);
    let db = SessionDb::open(&path).expect("opens");
    assert_eq!(texts(&db, "s").last_chunk(), Some(&["b".to_owned(), "c".to_owned()]));
}

#[test]
fn writes_of_several_handles_are_stored_in_the_order_in_which_they_were_spooled() {
    let (_folder, db) = store();
    let path = db.path().to_owned();
    let holder = hold(&path);
    let handles: Vec<_> =
        (0..3).map(|_| OpenOptions::new().patience(patience(0.0)).open(&path).expect("opens")).collect();
    for n in 0..30 {
        spooled(handles[n % 3].append_message("s", message(&n.to_string())));
    }
    assert_eq!(logs(&path).len(), 3);
    end(holder);
    drop(handles);
    db.append_message("s", message("last")).expect("appends").id().expect("is stored");
    let expected: Vec<_> = ["a".to_owned()].into_iter().chain((0..30).map(|n| n.to_string())).collect();
    assert_eq!(texts(&db, "s")[..31], expected);
}

#[test]
fn a_write_can_be_discarded_and_the_others_stay() {
    let (_folder, db) = store();
    let path = db.path().to_owned();
    let holder = hold(&path);
    let writer = OpenOptions::new().patience(patience(0.05)).open(&path).expect("opens");
    let tickets: Vec<_> =
        ["b", "c", "d"].iter().map(|text| spooled(writer.append_message("s", message(text)))).collect();
    let spool = Spool::of(&path, None).expect("is one").expect("has a place");
    assert!(spool.discard(tickets[1]).expect("discards"));
    assert!(!spool.discard(tickets[1]).expect("is gone"));
    // The writer finds its log replaced and goes on in another.
    spooled(writer.append_message("s", message("e")));
    end(holder);
    drop(writer);
    db.replay_spool(false).expect("replays");
    assert_eq!(texts(&db, "s"), ["a", "b", "d", "e"]);
}

#[test]
fn a_log_whose_writer_stopped_in_the_middle_of_a_record_is_stored_once_and_goes_when_it_is_free() {
    let (_folder, db) = store();
    let path = db.path().to_owned();
    drop(db);
    spool_some(&path, &["b", "c"]);
    let log = logs(&path).pop().expect("a log");
    let stopped = python_started(
        &log,
        "import fcntl\nlog = open(path, 'ab')\nfcntl.flock(log, fcntl.LOCK_EX)\nlog.write(b'000000')\nlog.flush()\nprint('locked', flush=True)\ntime.sleep(600)",
    );
    let db = SessionDb::open(&path).expect("opens");
    for text in ["d", "e"] {
        db.append_message("s", message(text)).expect("appends").id().expect("is stored");
    }
    assert_eq!(texts(&db, "s"), ["a", "b", "c", "d", "e"]);
    assert_eq!(logs(&path), [log]);
    end(stopped);
    drop(db);
    let db = SessionDb::open(&path).expect("opens");
    assert_eq!(texts(&db, "s"), ["a", "b", "c", "d", "e"]);
    assert!(logs(&path).is_empty());
}
