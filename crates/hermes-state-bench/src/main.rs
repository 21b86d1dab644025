//! Measures the store against bare SQLite with the same pragmas and rows in the same run, and prints each budget beside
//! its figure.
//!
//! The engine on a server is measured against a bare client of the same server, which is started for it.
//!
//! `cargo run --release -p hermes-state-bench [-- --python PYTHON] [--rounds N] [--only file|listing|search|server|spool|stalls] [--migrating]`; PYTHON
//! is an interpreter in which the module `hermes_state` is installed, without which the figures of the Python face are left
//! out and said to be. With `--migrating` nothing of the server is measured but moving a store there and back.

mod append;
mod export;
mod listing;
mod python;
mod report;
mod search;
mod server;
mod siblings;
mod spool;
mod stalls;
mod workload;

use report::Report;

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(role) = arguments.first().filter(|first| first.starts_with("role:")) {
        if role == "role:export" {
            export::play(&arguments[1]);
        } else if role.starts_with("role:stalls-") {
            stalls::play(role, &arguments[1..]);
        } else if role.starts_with("role:server-") {
            server::play(role, &arguments[1..]);
        } else {
            siblings::play(role, &arguments[1..]);
        }
        return std::process::ExitCode::SUCCESS;
    }
    let option = |name: &str| {
        arguments.iter().position(|argument| argument == name).and_then(|index| arguments.get(index + 1)).cloned()
    };
    let rounds = option("--rounds").and_then(|text| text.parse().ok()).unwrap_or(5);
    let mut report = Report::new();
    let only = option("--only");
    if only.as_deref() == Some("listing") {
        listing::listings(&mut report, rounds);
        return report.conclude();
    }
    if only.as_deref() == Some("spool") {
        spool::appending(&mut report, rounds);
        return report.conclude();
    }
    if only.as_deref() == Some("search") {
        search::measure(&mut report, rounds);
        return report.conclude();
    }
    if only.as_deref() == Some("stalls") {
        stalls::measure(&mut report);
        return report.conclude();
    }
    if only.as_deref() != Some("server") {
        on_a_file(&mut report, rounds, option("--python").as_deref());
    }
    if only.as_deref() != Some("file") {
        server::measure(&mut report, rounds);
    }
    report.conclude()
}

fn on_a_file(report: &mut Report, rounds: usize, python: Option<&str>) {
    append::one_process(report, rounds);
    append::threads(report, rounds);
    siblings::eight_processes(report, rounds);
    siblings::after_a_hold(report);
    stalls::measure(report);
    append::opening(report);
    spool::appending(report, rounds);
    listing::listings(report, rounds);
    search::measure(report, rounds);
    export::measure(report);
    match python {
        Some(interpreter) => python::measure(report, interpreter),
        None => {
            report.left_out("Python: import, resident memory, replay", "give --python an interpreter with the module")
        }
    }
}
