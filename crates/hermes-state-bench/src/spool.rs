//! Spooling, against a bare append to a file with a wait for the disk.

use std::io::Write as _;
use std::time::Instant;

use hermes_state::{OpenOptions, Patience};

use crate::report::{Budget, Report, median};
use crate::workload::{message, store};

const WRITES: usize = 50;

/// Appends to a store whose lock is held and that nobody waits for, and bare appends of as many bytes, taken in turn.
pub(crate) fn appending(report: &mut Report, rounds: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, db) = store(folder.path(), "ours.db");
    drop(db);
    // In a process of its own, as the holder of a lock is.
    let mut holder = std::process::Command::new("python3")
        .args([
            "-c",
            "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], isolation_level=None)\nc.execute('BEGIN IMMEDIATE')\nprint(flush=True)\nsys.stdin.read()",
        ])
        .arg(&path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python3");
    let mut line = String::new();
    let out = holder.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("holds");
    let none = Patience { routine: std::time::Duration::ZERO, transcript: std::time::Duration::ZERO };
    let db = OpenOptions::new().patience(none).open(&path).expect("opens");
    let mut file = bare_file(&folder.path().join("bare.log"));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut n = 0;
    for _ in 0..rounds * 2 {
        let before = db.spool_status().expect("reads").expect("is one");
        for _ in 0..WRITES {
            n += 1;
            let message = message(n);
            let started = Instant::now();
            let answer = db.append_message("s", message).expect("is kept");
            ours.push(started.elapsed().as_secs_f64() * 1e6);
            assert!(answer.is_spooled());
        }
        let after = db.spool_status().expect("reads").expect("is one");
        let bytes = vec![b'x'; usize::try_from(after.bytes - before.bytes).unwrap_or_default() / WRITES];
        for _ in 0..WRITES {
            let started = Instant::now();
            file.write_all(&bytes).and_then(|()| file.sync_data()).expect("writes");
            theirs.push(started.elapsed().as_secs_f64() * 1e6);
        }
    }
    drop(holder.stdin.take());
    let _ = holder.wait();
    let (ours, theirs) = (median(&ours), median(&theirs));
    let what = "spooled append: median against a bare append with fsync";
    report.figure(what, ours / theirs, "x", &Budget::AtMost(2.0));
    report.note("medians", &format!("ours {ours:.0} µs, bare {theirs:.0} µs"));
}

#[expect(clippy::disallowed_methods, reason = "not a store file")]
fn bare_file(path: &std::path::Path) -> std::fs::File {
    std::fs::File::options().append(true).create_new(true).open(path).expect("a file")
}
