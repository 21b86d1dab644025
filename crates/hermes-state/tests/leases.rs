//! Leases and real processes: a killed owner's is free at once, a stopped one's after its term, and what a former owner
//! publishes when it wakes is refused; an older release beside sees and takes what it always did.
#![cfg(target_os = "linux")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hermes_state::{Error, LockKind, MessageQuery, NewMessage, NewSession, SessionDb};
use support::{play, python_says, role};

/// The word before what a process says to the test.
const SAYS: &str = "says ";

fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{SAYS}{what}").and_then(|()| out.flush()).expect("the test listens");
}

/// An owner: takes the lease for so many seconds and, when it is told, publishes under it.
fn own(path: &Path, seconds: f64) {
    let db = SessionDb::open(path).expect("opens");
    let lease = db.acquire_compression_lease("s", "owner", seconds).expect("asks").expect("is free");
    say("held");
    std::io::stdin().lines().next().expect("is told").expect("reads");
    match db.under(&lease).archive_and_compact("s", vec![NewMessage::new("user", "late")]) {
        Err(Error::LeaseLost(lost)) => say(&format!("refused {}", lost.taken_by.unwrap_or_default())),
        other => say(&format!("{other:?}")),
    }
}

struct Owner {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Owner {
    fn start(name: &str, seconds: f64, store: &Path) -> Self {
        let mut child = play(name, &seconds.to_string(), store, LockKind::PrivateTable)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("runs");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut owner = Self { child, output };
        assert_eq!(owner.hear(), "held");
        owner
    }

    fn hear(&mut self) -> String {
        let lines = self.output.by_ref().lines().map(|line| line.expect("text"));
        let mut said = lines.filter_map(|line| Some(line.split_once(SAYS)?.1.to_owned()));
        said.next().expect("says something")
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(status.expect("runs").success());
    }

    fn publish(&mut self) -> String {
        self.child.stdin.as_mut().expect("piped").write_all(b"publish\n").expect("listens");
        self.hear()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs on a file, and on a server where there is one.
fn on_each_engine(test: impl Fn(&Path)) {
    if let Some((seconds, path)) = role() {
        return own(&path, seconds.parse().expect("a term"));
    }
    let prepare = |store: &Path| {
        let db = SessionDb::open(store).expect("opens");
        db.create_session(NewSession::new("s", "cli")).expect("creates");
        db.append_message("s", NewMessage::new("user", "story")).expect("appends");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("state.db");
    prepare(&file);
    test(&file);
    #[cfg(feature = "postgres")]
    if let Some(server) = hermes_state_testkit::shared() {
        let space = server.fresh();
        prepare(Path::new(&space.url()));
        test(Path::new(&space.url()));
    }
}

fn acquire(db: &SessionDb) -> Option<i64> {
    db.acquire_compression_lease("s", "heir", 300.0).expect("asks").map(|lease| lease.fence)
}

#[test]
fn the_lease_of_a_killed_owner_is_free_at_once() {
    on_each_engine(|store| {
        let db = SessionDb::open(store).expect("opens");
        let mut owner = Owner::start("the_lease_of_a_killed_owner_is_free_at_once", 3600.0, store);
        assert_eq!(acquire(&db), None);
        owner.signal("-STOP");
        assert_eq!(acquire(&db), None, "who is stuck is not gone");
        owner.child.kill().expect("killed");
        owner.child.wait().expect("reaped");
        assert_eq!(acquire(&db), Some(2));
        assert_eq!(db.compression_lock_holder("s").expect("reads").as_deref(), Some("heir"));
    });
}

#[test]
fn the_lease_of_a_stopped_owner_is_free_after_its_term_and_what_it_publishes_later_is_refused() {
    const NAME: &str = "the_lease_of_a_stopped_owner_is_free_after_its_term_and_what_it_publishes_later_is_refused";
    on_each_engine(|store| {
        let db = SessionDb::open(store).expect("opens");
        let started = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
        let mut owner = Owner::start(NAME, 2.0, store);
        owner.signal("-STOP");
        let waiting = Instant::now();
        while acquire(&db).is_none() {
            assert!(waiting.elapsed() < Duration::from_secs(120), "never free");
            // Nobody's turn waits for a lease.
            db.append_message("s", NewMessage::new("user", "meanwhile")).expect("appends");
            std::thread::sleep(Duration::from_millis(50));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
        assert!(now - started >= 2.0, "not before its term");
        owner.signal("-CONT");
        assert_eq!(owner.publish(), "refused heir");
        let rows = db.messages("s", &MessageQuery::default()).expect("reads");
        assert_eq!(rows[0].content().text(), Some("story"));
        assert!(rows.iter().all(|row| row.content().text() != Some("late")));
    });
}

/// What older releases do, statement by statement.
const OLDER: &str = "c = sqlite3.connect(path, isolation_level=None, timeout=60)\n\
    def acquire(holder, ttl=300.0):\n\
    \x20   now = time.time()\n\
    \x20   c.execute('BEGIN IMMEDIATE')\n\
    \x20   c.execute('DELETE FROM compression_locks WHERE session_id = ? AND expires_at < ?', ('s', now))\n\
    \x20   c.execute('INSERT OR IGNORE INTO compression_locks VALUES (?, ?, ?, ?)', ('s', holder, now, now + ttl))\n\
    \x20   row = c.execute('SELECT holder FROM compression_locks WHERE session_id = ?', ('s',)).fetchone()\n\
    \x20   c.execute('COMMIT')\n\
    \x20   return row[0] == holder\n\
    def release(holder):\n\
    \x20   c.execute('DELETE FROM compression_locks WHERE session_id = ? AND holder = ?', ('s', holder))\n";

#[test]
fn an_older_release_beside_takes_and_gives_leases_as_ever() {
    if let Some((seconds, path)) = role() {
        return own(&path, seconds.parse().expect("a term"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let db = SessionDb::open(&path).expect("opens");
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    let older = |script: &str| python_says(&path, &format!("{OLDER}{script}"));

    // It has ended, but took the lease as one of whom no process is known.
    assert_eq!(older("print(acquire('old'))"), "True");
    assert_eq!(acquire(&db), None);
    assert_eq!(older("release('old'); print('done')"), "done");

    let mut owner = Owner::start("an_older_release_beside_takes_and_gives_leases_as_ever", 3600.0, &path);
    assert_eq!(older("print(acquire('old'))"), "False");
    owner.child.kill().expect("killed");
    owner.child.wait().expect("reaped");
    assert_eq!(older("print(acquire('old'))"), "False", "it knows of terms only");
    let ours = db.acquire_compression_lease("s", "heir", -1.0).expect("asks").expect("the owner is gone");
    assert_eq!(older("print(acquire('old'))"), "True", "lapsed");
    let late = db.under(&ours).end_session("s", "compression");
    assert!(matches!(late, Err(Error::LeaseLost(lost)) if lost.taken_by.as_deref() == Some("old")));
}
