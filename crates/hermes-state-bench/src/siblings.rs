//! Several processes on one store, and a lock held by one that takes no turns.
#![expect(clippy::print_stdout, reason = "the processes report on their standard output")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hermes_state::SessionDb;

use crate::report::{Budget, Report, median};
use crate::workload::{connect, message, store};

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
        "role:holder" => hold(path),
        other => panic!("no role {other}"),
    }
}

/// Says that it is ready, waits for the start, appends, and reports how long it took and its longest append.
fn write(path: &Path) {
    let db = SessionDb::open(path).expect("opens");
    let messages: Vec<_> = (0..APPENDS).map(message).collect();
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the start");
    let started = Instant::now();
    let mut longest = Duration::ZERO;
    for message in messages {
        let one = Instant::now();
        db.append_message("s", message).expect("appends");
        longest = longest.max(one.elapsed());
    }
    println!("{} {}", started.elapsed().as_secs_f64(), longest.as_secs_f64() * 1e3);
}

/// Runs so many writers at once; gives rows a second, the ratio of the slowest to the fastest, and the longest append.
fn run_writers(count: usize) -> (f64, f64, f64) {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, db) = store(folder.path(), "state.db");
    drop(db);
    let mut writers: Vec<_> = (0..count)
        .map(|_| {
            let mut child = start("writer", &path);
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
        let (alone, _, _) = run_writers(1);
        let (together, ratio, wait) = run_writers(8);
        report.note("rows a second", &format!("alone {alone:.0}, eight {together:.0}; longest {wait:.1} ms"));
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
    let worst = late.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    report.figure("after a hold of 1.5 s: median", median(&late), "ms", &Budget::AtMost(3.0));
    report.figure("after a hold of 1.5 s: worst of 12", worst, "ms", &Budget::AtMost(15.0));
}
