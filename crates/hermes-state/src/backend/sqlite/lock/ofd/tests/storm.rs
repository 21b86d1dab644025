//! Two SQLite libraries in one process, others beside them, and sudden deaths.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::time::Instant;

use super::*;

const WORK_ON: &str = "HERMES_STATE_STORM_FILE";
const LENGTH: Duration = Duration::from_secs(5);
const BETWEEN_DEATHS: Duration = Duration::from_millis(300);

/// A worker that is another SQLite in a process of its own.
const STRANGER: &str = "
import itertools, os, sqlite3, sys
who = 'stranger-%d' % os.getpid()
for n in itertools.count():
    if n % 20 == 0:
        c = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
    c.execute('INSERT INTO t VALUES (?, ?)', (who, n))
    os.write(1, b'ack %s %d\\n' % (who.encode(), n))
";

/// A worker in which two connections of ours and one of a neighbour write, each noting what was acknowledged.
fn work(path: &Path) {
    let pid = std::process::id();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                let who = format!("ours-{pid}-{thread}");
                let mut ours = open(path);
                for n in 0.. {
                    if n % 20 == 0 {
                        ours = open(path);
                        ours.busy_timeout(Duration::from_secs(30)).expect("patience");
                    }
                    ours.execute("INSERT INTO t VALUES (?, ?)", (&who, n)).expect("patience suffices");
                    acknowledge(&who, n);
                }
            });
        }
        scope.spawn(move || {
            let who = format!("neighbour-{pid}");
            let mut neighbour = Neighbour::open(path);
            for n in 0.. {
                if n % 20 == 0 {
                    neighbour = Neighbour::open(path);
                }
                let Some(neighbour) = &neighbour else { return };
                loop {
                    match neighbour.exec(&format!("INSERT INTO t VALUES ('{who}', {n})")) {
                        0 => break,
                        5 => std::thread::sleep(Duration::from_millis(1)),
                        other => panic!("neither done nor busy: {other}"),
                    }
                }
                acknowledge(&who, n);
            }
        });
    });
}

/// One write for one line, so that a death leaves no half of it.
fn acknowledge(who: &str, n: i64) {
    let line = format!("ack {who} {n}\n");
    // SAFETY: bytes that outlive the call.
    unsafe { libc::write(1, line.as_ptr().cast(), line.len()) };
}

fn start(kind: usize, path: &Path, test: &str, notes: &File, complaints: &File) -> Child {
    let mut command;
    if kind == 0 {
        command = Command::new("python3");
        command.args(["-c", STRANGER]).arg(path);
    } else {
        command = Command::new("/proc/self/exe");
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(WORK_ON, path);
    }
    command.stdout(notes.try_clone().expect("a descriptor")).stderr(complaints.try_clone().expect("a descriptor"));
    command.spawn().expect("a worker")
}

fn storm(mode: Mode, test: &str) {
    if let Some(path) = std::env::var_os(WORK_ON) {
        return work(Path::new(&path));
    }
    let db = Db::new(mode);
    let appending = |name: &str| {
        let path = db.directory.path().join(name);
        (OpenOptions::new().create(true).append(true).open(&path).expect("a scratch file"), path)
    };
    let ((notes, notes_path), (complaints, complaints_path)) = (appending("notes"), appending("complaints"));
    let test = test.split_once("::").expect("a path in this crate").1;
    let mut workers: Vec<Child> = (0..4).map(|kind| start(kind, &db.path(), test, &notes, &complaints)).collect();
    let begin = Instant::now();
    let mut deaths = 0;
    while begin.elapsed() < LENGTH {
        std::thread::sleep(BETWEEN_DEATHS);
        let victim = deaths % workers.len();
        workers[victim].kill().expect("it runs");
        workers[victim].wait().expect("it ends");
        workers[victim] = start(victim, &db.path(), test, &notes, &complaints);
        deaths += 1;
    }
    for worker in &mut workers {
        worker.kill().expect("it runs");
        worker.wait().expect("it ends");
    }
    let complaints = std::fs::read_to_string(complaints_path).expect("a scratch file");
    assert_eq!(complaints, "", "a worker failed");

    let mut rows: BTreeMap<(String, i64), u32> = BTreeMap::new();
    let ours = db.open();
    let mut select = ours.prepare("SELECT who, n FROM t").expect("an intact file");
    for row in select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("reading") {
        *rows.entry(row.expect("an intact row")).or_default() += 1;
    }
    let notes = std::fs::read_to_string(notes_path).expect("a scratch file");
    let mut acknowledged = 0;
    for line in notes.lines().filter_map(|line| line.strip_prefix("ack ")) {
        let (who, n) = line.split_once(' ').expect("a whole line");
        let key = (who.to_owned(), n.parse().expect("a number"));
        assert_eq!(rows.get(&key), Some(&1), "{key:?} was acknowledged");
        acknowledged += 1;
    }
    assert!(acknowledged > 100, "only {acknowledged} rows in the storm");
    let check: String = ours.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("reading");
    assert_eq!(check, "ok");
    // A death may come between a commit and its note, once for each of the three writers of a process.
    let unnoted = rows.len() - acknowledged;
    assert!(unnoted <= 3 * (deaths + workers.len()), "{unnoted} rows that nobody wrote");
}

scenarios! {
    nothing_is_lost_in_a_storm_in_wal, None, {
        storm(Mode::Wal, concat!(module_path!(), "::nothing_is_lost_in_a_storm_in_wal"));
    }
    nothing_is_lost_in_a_storm_in_rollback, None, {
        storm(Mode::Rollback, concat!(module_path!(), "::nothing_is_lost_in_a_storm_in_rollback"));
    }
}
