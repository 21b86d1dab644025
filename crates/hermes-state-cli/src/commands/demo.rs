//! `demo`: shows the store doing what it is for, on a temporary store with real processes.

use clap::Args;

use hermes_state::is_url;

use crate::arguments::Global;
use crate::demo;
use crate::error::{CommandError, Kind};
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

pub(crate) fn run(arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    if global.db.as_deref().is_some_and(is_url) {
        let message = "the demonstration runs on a temporary file of its own, beside a process of an older release, which knows only files";
        return Err(CommandError::new(Kind::Usage, message)
            .hint("Run it without --db. To see a store on a server at work, use record, search and status."));
    }
    demo::run(arguments.keep, out)
}
