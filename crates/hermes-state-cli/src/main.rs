//! The command `hermes-state`: reads its arguments, runs one subcommand, and turns the outcome into an exit code.

mod arguments;
mod commands;
mod demo;
mod environment;
mod error;
mod line;
mod output;
mod store;
mod text;
mod times;
mod view;

use std::io::Write as _;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use arguments::{Arguments, Command};
use error::{CommandError, Kind};
use output::Output;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(refusal) => return refuse(&refusal),
    };
    arguments.global.set_colour();
    let json = arguments.global.json;
    panic::set_hook(Box::new(move |panic| {
        CommandError::new(Kind::Bug, panic.to_string())
            .hint("This is a fault of hermes-state; please report it.")
            .report(json);
    }));
    output::log_to_stderr(json);

    match panic::catch_unwind(AssertUnwindSafe(|| run(arguments))) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            error.report(json);
            error.exit_code()
        }
        Err(_) => ExitCode::from(Kind::Bug.exit_code()),
    }
}

fn run(arguments: Arguments) -> Result<(), CommandError> {
    let Arguments { global, command } = arguments;
    let mut out = Output::new(&global);
    match command.unwrap_or_default() {
        Command::Record(arguments) => commands::record::run(&arguments, &global, &mut out),
        Command::List(arguments) => commands::list::run(&arguments, &global, &mut out),
        Command::Show(arguments) => commands::show::run(&arguments, &global, &mut out),
        Command::Search(arguments) => commands::search::run(&arguments, &global, &mut out),
        Command::Status => commands::status::run(&global, &mut out),
        Command::Who => commands::who::run(&global, &mut out),
        Command::Spool(arguments) => commands::spool::run(&arguments, &global, &mut out),
        Command::Check(arguments) => commands::check::run(&arguments, &global, &mut out),
        Command::Doctor(arguments) => commands::doctor::run(&arguments, &global, &mut out),
        Command::Repair(arguments) => commands::repair::run(&arguments, &global, &mut out),
        Command::Prune(arguments) => commands::prune::run(&arguments, &global, &mut out),
        Command::Vacuum(arguments) => commands::vacuum::run(&arguments, &global, &mut out),
        Command::Backup(arguments) => commands::backup::run(&arguments, &global, &mut out),
        Command::Restore(arguments) => commands::restore::run(&arguments, &global, &mut out),
        Command::Export(arguments) => commands::export::run(&arguments, &global, &mut out),
        Command::Import(arguments) => commands::import::run(&arguments, &global, &mut out),
        Command::Migrate(arguments) => commands::migrate::run(&arguments, &global, &mut out),
        Command::Demo(arguments) => commands::demo::run(&arguments, &global, &mut out),
        Command::Completions(arguments) => commands::completions::run(&arguments, &mut out),
        Command::Man(arguments) => commands::man::run(&arguments, &mut out),
        Command::DemoWriter(arguments) => demo::writer::run(&arguments),
        Command::DemoOlder(arguments) => demo::older::run(&arguments),
    }?;
    out.finish()
}

/// Answers arguments that cannot be run: with the help or version that was asked for, or with what is wrong.
fn refuse(refusal: &clap::Error) -> ExitCode {
    // The arguments were not understood, so whether JSON is wanted can only be seen by looking for the flag.
    let json = std::env::args_os().any(|argument| argument == "--json");
    match refusal.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that closes the pipe after a few lines of help has what it wanted.
            let _ = refusal.print();
            ExitCode::SUCCESS
        }
        _ if json => {
            let rendered = environment::without_passwords(&refusal.render().to_string());
            let message = rendered.trim().strip_prefix("error: ").unwrap_or(rendered.trim());
            let error = CommandError::new(Kind::Usage, message);
            error.report(json);
            error.exit_code()
        }
        _ => {
            let rendered = environment::without_passwords(&refusal.render().ansi().to_string());
            let _ = write!(anstream::stderr().lock(), "{rendered}");
            ExitCode::from(Kind::Usage.exit_code())
        }
    }
}
