//! Measures the store against bare SQLite with the same pragmas and rows in the same run, and prints each budget beside
//! its figure.
//!
//! `cargo run --release -p hermes-state-bench [-- --python PYTHON] [--rounds N]`; PYTHON is an interpreter in which the
//! module `hermes_state` is installed, without which the figures of the Python face are left out and said to be.

mod append;
mod python;
mod report;
mod siblings;
mod workload;

use report::Report;

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(role) = arguments.first().filter(|first| first.starts_with("role:")) {
        siblings::play(role, &arguments[1..]);
        return std::process::ExitCode::SUCCESS;
    }
    let option = |name: &str| {
        arguments.iter().position(|argument| argument == name).and_then(|index| arguments.get(index + 1)).cloned()
    };
    let rounds = option("--rounds").and_then(|text| text.parse().ok()).unwrap_or(5);
    let mut report = Report::new();
    append::one_process(&mut report, rounds);
    append::threads(&mut report, rounds);
    siblings::eight_processes(&mut report, rounds);
    siblings::after_a_hold(&mut report);
    append::opening(&mut report);
    match option("--python") {
        Some(interpreter) => python::measure(&mut report, &interpreter),
        None => {
            report.left_out("Python: import, resident memory, replay", "give --python an interpreter with the module")
        }
    }
    report.conclude()
}
