//! Appending within one process, and opening.

use std::sync::Arc;
use std::time::Instant;

use hermes_state::SessionDb;

use crate::report::{Budget, Report, median};
use crate::workload::{bare, bare_append, message, store};

const ROWS: usize = 200;

/// One append and its commit against a bare insert and its commit, in blocks taken in turn.
pub(crate) fn one_process(report: &mut Report, rounds: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, db) = store(folder.path(), "ours.db");
    let connection = bare(folder.path(), "bare.db");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut n = 0;
    for _ in 0..rounds * 4 {
        for _ in 0..ROWS / 4 {
            n += 1;
            let started = Instant::now();
            bare_append(&connection, n);
            theirs.push(started.elapsed().as_secs_f64() * 1e6);
        }
        for _ in 0..ROWS / 4 {
            n += 1;
            let message = message(n);
            let started = Instant::now();
            db.append_message("s", message).expect("appends");
            ours.push(started.elapsed().as_secs_f64() * 1e6);
        }
    }
    let (ours, theirs) = (median(&ours), median(&theirs));
    report.figure("append, one process: median against a bare insert", ours / theirs, "x", &Budget::AtMost(1.5));
    report.note("medians", &format!("ours {ours:.0} µs, bare {theirs:.0} µs"));
}

/// How much sixteen rows in one transaction, each in a savepoint, gain over one row a transaction with SQLite alone:
/// what sharing commits can give on this machine, where each row's index costs what it costs.
fn limit_of_sharing() -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let connection = bare(folder.path(), "bare.db");
    let mut n = 0;
    let mut rate = |rows: usize| {
        let started = Instant::now();
        for _ in 0..400 / rows {
            connection.execute_batch("BEGIN IMMEDIATE").expect("begins");
            for _ in 0..rows {
                n += 1;
                connection.execute_batch("SAVEPOINT one").expect("begins");
                bare_append(&connection, n);
                connection.execute_batch("RELEASE one").expect("ends");
            }
            connection.execute_batch("COMMIT").expect("commits");
        }
        started.elapsed().as_secs_f64() / 400.0
    };
    rate(1) / rate(16)
}

/// Appends of sixteen threads through one handle against those of one.
pub(crate) fn threads(report: &mut Report, rounds: usize) {
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let folder = tempfile::tempdir().expect("a folder");
        let rate = |threads: usize, rows: usize| {
            let (_, db) = store(folder.path(), &format!("{threads}-{round}.db"));
            let db = Arc::new(db);
            let started = Instant::now();
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let db = db.clone();
                    scope.spawn(move || {
                        for n in 0..rows {
                            db.append_message("s", message(thread * rows + n)).expect("appends");
                        }
                    });
                }
            });
            (threads * rows) as f64 / started.elapsed().as_secs_f64()
        };
        let one = rate(1, 400);
        let sixteen = rate(16, 100);
        ratios.push(sixteen / one);
        report.note(
            "rows a second",
            &format!(
                "one thread {one:.0}, sixteen {sixteen:.0}; bare, 16 rows a transaction {:.2} x",
                limit_of_sharing()
            ),
        );
    }
    report.figure("16 threads through one handle against one thread", median(&ratios), "x", &Budget::AtLeast(2.2));
}

/// Opening an existing store.
pub(crate) fn opening(report: &mut Report) {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, db) = store(folder.path(), "state.db");
    for n in 0..500 {
        db.append_message("s", message(n)).expect("appends");
    }
    drop(db);
    let mut opened = Vec::new();
    for _ in 0..60 {
        let started = Instant::now();
        let db = SessionDb::open(&path).expect("opens");
        opened.push(started.elapsed().as_secs_f64() * 1e3);
        drop(db);
    }
    report.figure("open an existing store: median", median(&opened), "ms", &Budget::AtMost(2.0));
}
