//! `man`: the manual page of the program or of one command.

use std::io::Write as _;

use clap::{Args, CommandFactory as _};
use clap_mangen::Man;

use crate::arguments::Arguments as Whole;
use crate::error::{CommandError, Kind};
use crate::output::Output;

/// Print the manual page, in roff
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  hermes-state man > ~/.local/share/man/man1/hermes-state.1\n  hermes-state man record | man -l -"
)]
pub(crate) struct Arguments {
    /// The command that the page is about; the whole program, if not given
    command: Option<String>,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<(), CommandError> {
    let mut whole = Whole::command();
    // Building gives each command the options of all and its full name.
    whole.build();
    let command = match &arguments.command {
        None => whole,
        Some(name) => whole
            .find_subcommand(name)
            .filter(|command| !command.is_hide_set())
            .cloned()
            .ok_or_else(|| CommandError::new(Kind::Usage, format!("there is no command \"{name}\"")))?,
    };
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(out.write_all(&page)?)
}
