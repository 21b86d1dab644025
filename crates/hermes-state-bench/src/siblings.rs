//! Several processes on one store, and a lock held by one that takes no turns.
#![expect(clippy::print_stdout, reason = "the processes report on their standard output")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hermes_state::SessionDb;

use crate::report::{Budget, Report, median};
use crate::workload::{bare, bare_append, connect, message, store};

const APPENDS: usize = 250;

fn start(role: &str, path: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().expect("this program"))
        .arg(format!("role:{role}"))
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts")
}

/// What one of the processes does.
pub(crate) fn play(role: &str, arguments: &[String]) {
    let path = Path::new(&arguments[0]);
    match role {
        "role:writer" => write(path),
        "role:bare-writer" => write_bare(path),
        "role:holder" => hold(path),
        other => panic!("no role {other}"),
    }
}

fn write(path: &Path) {
    let db = SessionDb::open(path).expect("opens");
    let messages: Vec<_> = (0..APPENDS).map(message).collect();
    report_appends(messages.into_iter().map(|message| {
        || {
            db.append_message("s", message).expect("appends");
        }
    }));
}

/// With SQLite alone and its own way of waiting.
fn write_bare(path: &Path) {
    let connection = connect(path);
    report_appends((0..APPENDS).map(|n| {
        let connection = &connection;
        move || bare_append(connection, n)
    }));
}

/// Says that it is ready, waits for the start, appends, and reports how long it took and its longest append.
fn report_appends(appends: impl Iterator<Item = impl FnOnce()>) {
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the start");
    let started = Instant::now();
    let mut longest = Duration::ZERO;
    for append in appends {
        let one = Instant::now();
        append();
        longest = longest.max(one.elapsed());
    }
    println!("{} {}", started.elapsed().as_secs_f64(), longest.as_secs_f64() * 1e3);
}

/// Runs so many writers at once; gives rows a second, the ratio of the slowest to the fastest, and the longest append.
fn run_writers(role: &str, count: usize) -> (f64, f64, f64) {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, db) = store(folder.path(), "state.db");
    drop(db);
    let mut writers: Vec<_> = (0..count)
        .map(|_| {
            let mut child = start(role, &path);
            let reader = BufReader::new(child.stdout.take().expect("piped"));
            (child, reader)
        })
        .collect();
    let mut line = String::new();
    for (_, reader) in &mut writers {
        reader.read_line(&mut line).expect("ready");
    }
    let started = Instant::now();
    for (child, _) in &mut writers {
        use std::io::Write;
        child.stdin.take().expect("piped").write_all(b"go\n").expect("starts");
    }
    let reports: Vec<(f64, f64)> = writers
        .iter_mut()
        .map(|(child, reader)| {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a report");
            assert!(child.wait().expect("ends").success());
            let (seconds, longest) = line.trim().split_once(' ').expect("two numbers");
            (seconds.parse().expect("a number"), longest.parse().expect("a number"))
        })
        .collect();
    let total = (count * APPENDS) as f64 / started.elapsed().as_secs_f64();
    let seconds = || reports.iter().map(|(seconds, _)| *seconds);
    let ratio = seconds().fold(0.0, f64::max) / seconds().fold(f64::INFINITY, f64::min);
    (total, ratio, reports.iter().map(|(_, longest)| *longest).fold(0.0, f64::max))
}

/// Eight processes: how fair, how long the longest wait, how much in all.
pub(crate) fn eight_processes(report: &mut Report, rounds: usize) {
    let (mut totals, mut ratios, mut longest) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (alone, _, _) = run_writers("writer", 1);
        let (together, ratio, wait) = run_writers("writer", 8);
        let (bare_alone, _, _) = run_writers("bare-writer", 1);
        let (bare_together, bare_ratio, bare_wait) = run_writers("bare-writer", 8);
        report.note(
            "rows a second",
            &format!(
                "alone {alone:.0}, eight {together:.0}, longest {wait:.0} ms; bare alone {bare_alone:.0}, eight \
                 {bare_together:.0}, longest {bare_wait:.0} ms, slowest/fastest {bare_ratio:.1}"
            ),
        );
        totals.push(together / alone);
        ratios.push(ratio);
        longest.push(wait);
    }
    report.figure("8 processes: slowest against fastest", median(&ratios), "x", &Budget::AtMost(1.1));
    report.figure("8 processes: longest append", median(&longest), "ms", &Budget::AtMost(60.0));
    report.figure("8 processes: total against one alone", median(&totals), "x", &Budget::AtLeast(0.7));
}

/// Seconds on the clock that all processes of a machine share.
fn clock() -> f64 {
    #[expect(unsafe_code, reason = "std's Instant cannot be handed to another process")]
    // SAFETY: the clock exists and the structure outlives the call.
    let now = unsafe {
        let mut now = std::mem::zeroed::<libc::timespec>();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
        now
    };
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// Holds the write lock as a process of an older release does, and says when it let go.
fn hold(path: &Path) {
    let connection = connect(path);
    connection.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    println!("held");
    std::thread::sleep(Duration::from_millis(1500));
    connection.execute_batch("COMMIT").expect("lets go");
    println!("{}", clock());
}

/// How long after the release of a lock held for 1.5 s a waiting append is done.
pub(crate) fn after_a_hold(report: &mut Report) {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, db) = store(folder.path(), "state.db");
    let mut late = Vec::new();
    for n in 0..12 {
        let mut holder = start("holder", &path);
        let mut reader = BufReader::new(holder.stdout.take().expect("piped"));
        let mut line = String::new();
        reader.read_line(&mut line).expect("held");
        db.append_message("s", message(n)).expect("appends");
        let done = clock();
        line.clear();
        reader.read_line(&mut line).expect("let go");
        late.push((done - line.trim().parse::<f64>().expect("a time")) * 1e3);
        assert!(holder.wait().expect("ends").success());
    }
    let connection = bare(folder.path(), "bare.db");
    let rested: Vec<f64> = (0..4)
        .map(|n| {
            std::thread::sleep(Duration::from_millis(1500));
            let started = Instant::now();
            bare_append(&connection, n);
            started.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    report.note("a bare append after 1.5 s without one", &format!("{:.2} ms", median(&rested)));
    let worst = late.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    report.figure("after a hold of 1.5 s: median", median(&late), "ms", &Budget::AtMost(3.0));
    report.figure("after a hold of 1.5 s: worst of 12", worst, "ms", &Budget::AtMost(15.0));
}
