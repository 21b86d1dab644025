//! `demo`: shows the store doing what it is for, on a temporary store with real processes.

use clap::Args;

use crate::demo;
use crate::error::CommandError;
use crate::output::Output;

/// Watch the store at work: nine processes, one store, nothing lost
///
/// Eight processes record conversations in a temporary store at full speed, while a ninth, which uses ordinary SQLite
/// locks like an older release, twice holds the write lock for three seconds and checkpoints. Afterwards every
/// message that was acknowledged is looked for. It takes about twelve seconds, touches no store of yours, and ends
/// with code 0 only if nothing was lost.
#[derive(Debug, Default, Args)]
#[command(after_help = "Examples:\n  hermes-state demo\n  hermes-state demo --keep --json")]
pub(crate) struct Arguments {
    /// Keep the store, and say where it is
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<(), CommandError> {
    demo::run(arguments.keep, out)
}
