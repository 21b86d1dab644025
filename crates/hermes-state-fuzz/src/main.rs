//! Feeds the store with mutated input for some seconds: it must neither panic nor fail in a way that it does not promise.
//!
//! It needs no nightly compiler and so knows nothing of coverage; inputs that got far are mutated further instead. A run
//! is made again by its seed.
#![expect(clippy::print_stderr, reason = "a tool for the terminal")]

mod mutation;
mod run;
mod targets;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use targets::TARGETS;

/// Feeds the store with mutated input
#[derive(Debug, Parser)]
struct Arguments {
    /// For how long each target is fed
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// The seed of an earlier run, to make it again
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Only this target
    #[arg(long, value_name = "NAME", value_parser = TARGETS.map(|target| target.name))]
    target: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    let mut failed = false;
    for target in &TARGETS {
        if arguments.target.as_ref().is_some_and(|name| name != target.name) {
            continue;
        }
        match run::feed(target, seed, Duration::from_secs(arguments.seconds)) {
            Ok(tally) => {
                eprintln!("{}: {} inputs, {} of them went far; seed {seed}", target.name, tally.inputs, tally.far);
            }
            Err(failure) => {
                eprintln!("{}: {}\ninput {:?}\nseed {seed}", target.name, failure.what, failure.input);
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
