//! `completions`: the completion script of a shell.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::arguments::Arguments as Whole;
use crate::error::CommandError;
use crate::output::Output;

/// Print the completion script for a shell
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  hermes-state completions bash > ~/.local/share/bash-completion/completions/hermes-state\n  hermes-state completions fish > ~/.config/fish/completions/hermes-state.fish"
)]
pub(crate) struct Arguments {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Whole::command(), "hermes-state", &mut script);
    Ok(std::io::Write::write_all(out, &script)?)
}
