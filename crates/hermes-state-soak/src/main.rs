//! Many processes on one store for some minutes, with kills and faults, and then an account: every acknowledged message is
//! there, once, in order, and nothing else is left behind.
//!
//! What is chosen follows the seed. When it happens is up to the machine, so that a seed makes a run likely again, not
//! certain.
#![expect(clippy::print_stdout, reason = "processes report on their standard output")]

mod cast;
mod director;
mod ledger;
mod resources;
mod roles;
mod signal;
mod strangers;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

/// Many processes on one store, with kills and faults, and an account at the end
#[derive(Debug, Parser)]
struct Arguments {
    /// For how long they are at it
    #[arg(long, value_name = "N", default_value_t = 600)]
    seconds: u64,
    /// The seed of an earlier run, for the same choices
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The folder to make the store in, such as one on another disk
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, name, seed, path] = &arguments[..]
        && let Some(role) = role.strip_prefix("role:")
    {
        return roles::play(role, name, seed.parse().unwrap_or_default(), Path::new(path));
    }
    if !cfg!(target_os = "linux") {
        println!("what a process holds is read from /proc, so the soak runs on Linux only");
        return ExitCode::FAILURE;
    }
    match run(&Arguments::parse()) {
        Ok(violations) if violations.is_empty() => {
            println!("verdict: well");
            ExitCode::SUCCESS
        }
        Ok(violations) => {
            for violation in violations {
                println!("VIOLATED: {violation}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("the soak itself failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What was violated.
fn run(arguments: &Arguments) -> Result<Vec<String>, String> {
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("soak of {} s, seed {seed}", arguments.seconds);
    let folder = match &arguments.folder {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    }
    .map_err(|error| format!("no folder for the store: {error}"))?;
    let path = folder.path().join("state.db");
    let heard = director::direct(&path, seed, Duration::from_secs(arguments.seconds))?;
    let mut violations = heard.violations();
    violations.extend(verdict::settle(&path, &heard));
    violations.extend(verdict::examine(&path, &heard)?);
    if !violations.is_empty() {
        println!("the store is kept in {}", folder.keep().display());
    }
    Ok(violations)
}
