//! What maintenance makes others wait: a sibling process appends a message every 10 ms while another process prunes, merges,
//! rebuilds, gives space back or closes with a long log; beside it the same work done by SQLite alone in one transaction.
#![expect(clippy::print_stdout, reason = "the processes report on their standard output")]

use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use hermes_state::{NewSession, OptimizeOptions, PruneFilter, SessionDb, StepPace, StepProgress, registry_upkeep};

use crate::report::{Budget, Report, median};
use crate::workload::{connect, message, store, text};

const SESSIONS: usize = 500;
const MESSAGES_EACH: usize = 40;
const OTHERS: usize = 10_000;
const ROUNDS: usize = 3;

/// Work on the indexes that is not to be felt, but not drawn out either.
const PACE: StepPace = StepPace { rows: 500, duty_factor: 0.25, min_pause: Duration::from_millis(1) };

/// One kind of maintenance.
#[derive(Clone, Copy)]
struct Job {
    name: &'static str,
    what: &'static str,
    /// What is done to the store before, while nobody waits.
    prepare: fn(&SessionDb),
    ours: fn(SessionDb),
    /// The same with SQLite alone.
    naive: fn(&rusqlite::Connection),
    /// Whether a long log is made before, which the work is to merge.
    log: bool,
}

const JOBS: [Job; 6] = [
    Job {
        name: "prune",
        what: "prunes 500 sessions",
        prepare: |_| {},
        ours: |db| assert_eq!(db.prune_sessions(&old(), None).expect("prunes"), SESSIONS),
        naive: |connection| {
            run(
                connection,
                "BEGIN IMMEDIATE; DELETE FROM messages WHERE session_id IN (SELECT id FROM sessions WHERE source = 'old'); \
                 DELETE FROM sessions WHERE source = 'old'; COMMIT",
            )
        },
        log: false,
    },
    Job {
        name: "merge",
        what: "merges the search indexes",
        prepare: |_| {},
        ours: |db| {
            // One call makes a bounded number of steps, and two that find nothing.
            for _ in 0..4 {
                let mut steps = 0;
                let count = &mut |progress: StepProgress| {
                    steps = progress.done;
                    ControlFlow::Continue(())
                };
                db.optimize_fts_with(count).expect("merges");
                if steps <= 2 {
                    break;
                }
            }
        },
        naive: |connection| {
            run(
                connection,
                "BEGIN IMMEDIATE; INSERT INTO messages_fts (messages_fts) VALUES ('optimize'); \
                 INSERT INTO messages_fts_trigram (messages_fts_trigram) VALUES ('optimize'); COMMIT",
            )
        },
        log: false,
    },
    Job {
        name: "rebuild",
        what: "rebuilds the search indexes",
        prepare: |_| {},
        ours: |db| assert_eq!(db.rebuild_fts(PACE).expect("rebuilds"), 2),
        naive: rebuild_at_once,
        log: false,
    },
    Job {
        name: "optimise",
        what: "optimises the search storage",
        prepare: |db| assert!(db.demote_legacy_fts_to_trash().expect("sets the indexes aside") > 0),
        ours: |db| {
            let options = OptimizeOptions { vacuum: false, pace: PACE };
            db.optimize_fts_storage(&options, &mut |_| Ok(())).expect("optimises");
        },
        naive: rebuild_at_once,
        log: false,
    },
    Job {
        name: "space",
        what: "gives space back",
        prepare: |db| assert_eq!(db.prune_sessions(&old(), None).expect("prunes"), SESSIONS),
        ours: |db| {
            let report = db.release_space().expect("gives back");
            assert!(report.after < report.before);
        },
        naive: |connection| run(connection, "VACUUM"),
        log: false,
    },
    Job {
        name: "close",
        what: "closes with a log of 50 MB",
        prepare: |_| {},
        ours: |db| db.close().expect("closes"),
        naive: |connection| {
            let cut = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            cut.expect("merges and cuts");
        },
        log: true,
    },
];

fn old() -> PruneFilter {
    PruneFilter { source: Some("old".into()), ..PruneFilter::default() }
}

fn run(connection: &rusqlite::Connection, sql: &str) {
    connection.execute_batch(sql).expect("runs");
}

fn rebuild_at_once(connection: &rusqlite::Connection) {
    run(
        connection,
        "BEGIN IMMEDIATE; INSERT INTO messages_fts (messages_fts) VALUES ('rebuild'); \
         INSERT INTO messages_fts_trigram (messages_fts_trigram) VALUES ('rebuild'); COMMIT",
    );
}

/// What one of the processes does: `stalls-sibling`, `stalls-pin`, or `stalls-ours`/`stalls-naive` with the job's name.
pub(crate) fn play(role: &str, arguments: &[String]) {
    let path = Path::new(&arguments[0]);
    let job = || JOBS.into_iter().find(|job| job.name == arguments[1]).expect("a job");
    match role {
        "role:stalls-sibling" => append_steadily(path),
        "role:stalls-pin" => {
            let connection = connect(path);
            run(&connection, "BEGIN; SELECT count(*) FROM sessions");
            println!("ready");
            wait_for_line();
        }
        "role:stalls-ours" => {
            let db = SessionDb::open(path).expect("opens");
            if job().log {
                lengthen_log(path, |key, value| db.set_meta(key, value).expect("stores"));
            }
            report_time(|| (job().ours)(db));
        }
        "role:stalls-naive" => {
            let connection = connect(path);
            if job().log {
                connection.pragma_update(None, "wal_autocheckpoint", 0).expect("a pragma");
                lengthen_log(path, |key, value| {
                    let sql = "INSERT OR REPLACE INTO state_meta VALUES (?1, ?2)";
                    connection.execute(sql, (key, value)).expect("stores");
                });
            }
            report_time(|| (job().naive)(&connection));
        }
        other => panic!("no role {other}"),
    }
}

fn wait_for_line() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line, or the end");
}

fn report_time(work: impl FnOnce()) {
    println!("ready");
    wait_for_line();
    let started = Instant::now();
    work();
    println!("{}", started.elapsed().as_secs_f64());
}

/// Writes so much while a reader keeps the log from being merged and begun anew.
fn lengthen_log(path: &Path, set: impl Fn(&str, &str)) {
    let mut pin = Process::start("stalls-pin", path, None);
    for n in 0..52 {
        set(&format!("bench:{n}"), &text(n).repeat(1000));
    }
    pin.go();
    assert!(pin.child.wait().expect("ends").success());
}

/// Appends a message every 10 ms until told to stop, and reports the longest wait and how many there were.
fn append_steadily(path: &Path) {
    let db = SessionDb::open(path).expect("opens");
    println!("ready");
    wait_for_line();
    let (stop, stopped) = sync_channel(1);
    std::thread::spawn(move || {
        wait_for_line();
        let _ = stop.send(());
    });
    let (mut longest, mut count) = (Duration::ZERO, 0);
    while stopped.recv_timeout(Duration::from_millis(10)) == Err(RecvTimeoutError::Timeout) {
        let one = Instant::now();
        db.append_message("s", message(count)).expect("appends");
        longest = longest.max(one.elapsed());
        count += 1;
    }
    println!("{} {count}", longest.as_secs_f64() * 1e3);
}

/// Another process of this program.
struct Process {
    child: Child,
    reader: BufReader<ChildStdout>,
}

impl Process {
    /// Starts it and waits until it is ready.
    fn start(role: &str, path: &Path, job: Option<&str>) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .arg(format!("role:{role}"))
            .arg(path)
            .args(job)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let reader = BufReader::new(child.stdout.take().expect("piped"));
        let mut process = Self { child, reader };
        assert_eq!(process.line(), "ready");
        process
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    fn go(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"go\n").expect("is told");
    }

    /// The numbers that it reports at its end.
    fn ends(mut self) -> Vec<f64> {
        let line = self.line();
        assert!(self.child.wait().expect("ends").success());
        line.split(' ').map(|number| number.parse().expect("a number")).collect()
    }
}

/// A store with 30,000 messages, of which two thirds are in sessions that are over.
fn filled(folder: &Path) -> PathBuf {
    let (path, db) = store(folder, "filled.db");
    for session in 0..SESSIONS {
        let id = format!("old{session}");
        db.create_session(NewSession::new(&id, "old")).expect("creates");
        db.append_messages(id.as_str(), (0..MESSAGES_EACH).map(|n| message(session * MESSAGES_EACH + n)).collect())
            .expect("appends");
        db.end_session(id.as_str(), "done").expect("ends");
    }
    for part in 0..OTHERS / 100 {
        db.append_messages("s", (0..100).map(|n| message(part * 100 + n)).collect()).expect("appends");
    }
    db.close().expect("closes");
    path
}

#[expect(clippy::disallowed_methods, reason = "a store that nobody has open")]
fn copy(from: &Path, name: &str) -> PathBuf {
    let to = from.with_file_name(name);
    std::fs::copy(from, &to).expect("copies");
    to
}

fn remove(path: &Path) {
    for end in ["", "-wal", "-shm", "-siblings"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        let _ = std::fs::remove_file(name);
    }
}

/// Has a job done on a copy of the store, on request beside a sibling that appends; gives its seconds, and the sibling's
/// longest wait in milliseconds.
fn done(prepared: &Path, role: &str, job: &Job, beside: bool) -> (f64, f64) {
    let path = copy(prepared, "work.db");
    let mut worker = Process::start(role, &path, Some(job.name));
    let sibling = beside.then(|| {
        let mut sibling = Process::start("stalls-sibling", &path, None);
        sibling.go();
        sibling
    });
    worker.go();
    let seconds = worker.ends()[0];
    let longest = sibling.map(|mut sibling| {
        sibling.go();
        sibling.ends()[0]
    });
    remove(&path);
    (seconds, longest.unwrap_or_default())
}

/// What a sibling's longest append is on this machine when nobody else is there.
fn undisturbed(prepared: &Path) -> f64 {
    let path = copy(prepared, "work.db");
    let mut sibling = Process::start("stalls-sibling", &path, None);
    sibling.go();
    std::thread::sleep(Duration::from_secs(5));
    sibling.go();
    let longest = sibling.ends()[0];
    remove(&path);
    longest
}

/// The longest waits of a sibling beside each kind of maintenance, and what that takes on an idle store.
pub(crate) fn measure(report: &mut Report) {
    let folder = tempfile::tempdir().expect("a folder");
    let upkeep = registry_upkeep(&folder.path().join("registry.db"), 1_000_000);
    report.figure("registry of siblings: upkeep of a write", upkeep.as_secs_f64() * 1e6, "µs", &Budget::AtMost(1.0));
    let filled = filled(folder.path());
    report
        .note("a sibling's longest append in five seconds beside nothing", &format!("{:.0} ms", undisturbed(&filled)));
    for job in JOBS {
        let prepared = copy(&filled, "prepared.db");
        let db = SessionDb::open(&prepared).expect("opens");
        (job.prepare)(&db);
        db.close().expect("closes");
        let (mut waits, mut naive_waits, mut times, mut naive_times) = (vec![], vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            waits.push(done(&prepared, "stalls-ours", &job, true).1);
            naive_waits.push(done(&prepared, "stalls-naive", &job, true).1);
            times.push(done(&prepared, "stalls-ours", &job, false).0);
            naive_times.push(done(&prepared, "stalls-naive", &job, false).0);
        }
        remove(&prepared);
        let what = job.what;
        let wait = median(&waits);
        report.figure(&format!("a sibling's longest append while one {what}"), wait, "ms", &Budget::AtMost(50.0));
        let worst = waits.iter().copied().fold(0.0, f64::max);
        let (ours, naive) = (median(&times), median(&naive_times));
        report.note(
            "beside it",
            &format!(
                "worst of {ROUNDS} {worst:.0} ms; in one transaction {:.0} ms; idle {ours:.2} s, in one transaction {naive:.2} s",
                median(&naive_waits)
            ),
        );
        report.figure(&format!("{what}, idle: total against one transaction"), ours / naive, "x", &Budget::AtMost(3.0));
    }
}
