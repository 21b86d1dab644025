//! What can be written on the command line.

use std::path::PathBuf;

use clap::{Args, ColorChoice, Parser, Subcommand};

use crate::commands::{
    backup, check, completions, demo, doctor, export, import, list, man, migrate, prune, record, repair, restore,
    search, show, spool, vacuum,
};
use crate::demo::{older, writer};

const EXIT_CODES: &str = "\
Exit codes:
   0  done; also when nothing was found, when messages were spooled, and when the reader of the output went away
   1  refused or not found
   2  usage: the arguments were not understood
   3  busy or unreachable: another process was in the way, or the server away; retry later
   4  the store is damaged, or the file is not a store
  70  a fault of this program

Environment:
  HERMES_STATE_URL  the URL of a store on a server, if --db is not given
  PGPASSWORD        the password for a server whose URL has none
  HERMES_HOME       the folder that holds state.db, if neither names a store; ~/.hermes by default
  NO_COLOR          no colours

Without a command, hermes-state runs the demonstration on a temporary store.";

/// The shared session store of the AI agents on this machine
///
/// Records conversations durably while any number of other processes use the same store, and finds them again.
#[derive(Debug, Parser)]
#[command(name = "hermes-state", version, after_help = EXIT_CODES, max_term_width = 100, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The store: a file, or postgresql://user@host/database?schema=name; by default $HERMES_STATE_URL, or state.db in
    /// $HERMES_HOME or in ~/.hermes
    #[arg(long, global = true, help_heading = "Options of every command", value_name = "STORE")]
    pub(crate) db: Option<PathBuf>,
    /// Print JSON, with the fields that docs/command.md lists; errors as one JSON object on standard error
    #[arg(long, global = true, help_heading = "Options of every command")]
    pub(crate) json: bool,
    /// When to use colours
    #[arg(long, global = true, help_heading = "Options of every command", value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
}

impl Global {
    /// Makes the choice of colours known to everything that prints.
    pub(crate) fn set_colour(&self) {
        match self.color {
            ColorChoice::Auto => anstream::ColorChoice::Auto,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Record(record::Arguments),
    List(list::Arguments),
    Show(show::Arguments),
    Search(search::Arguments),
    /// Show the state of the store: where it is, sizes, locks, and who has it open
    #[command(after_help = "Examples:\n  hermes-state status\n  hermes-state --db ./state.db status --json")]
    Status,
    /// Show which processes have the store open, and what they do
    #[command(after_help = "Examples:\n  hermes-state who\n  hermes-state who --json")]
    Who,
    Spool(spool::Arguments),
    Check(check::Arguments),
    Doctor(doctor::Arguments),
    Repair(repair::Arguments),
    Prune(prune::Arguments),
    Vacuum(vacuum::Arguments),
    Backup(backup::Arguments),
    Restore(restore::Arguments),
    Export(export::Arguments),
    Import(import::Arguments),
    Migrate(migrate::Arguments),
    Demo(demo::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
    #[command(hide = true)]
    DemoWriter(writer::Arguments),
    #[command(hide = true)]
    DemoOlder(older::Arguments),
}

impl Default for Command {
    fn default() -> Self {
        Command::Demo(demo::Arguments::default())
    }
}
