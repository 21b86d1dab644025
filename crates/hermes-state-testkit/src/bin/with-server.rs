//! Runs a command with a PostgreSQL server at its disposal: `with-server COMMAND ARGUMENTS...`.
//!
//! The command finds the server's URL in `HERMES_STATE_TEST_PG_URL`. If that is set already, that server is used; where no
//! PostgreSQL is installed the command runs without one, after a loud line, unless `HERMES_STATE_TEST_PG_REQUIRED` is set.
//! The exit code is the command's.
#![expect(clippy::print_stderr, reason = "a tool for the terminal")]

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use hermes_state_testkit::{PG_URL, Server};

    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("usage: with-server COMMAND ARGUMENTS...");
        return ExitCode::FAILURE;
    };
    let mut command = Command::new(&program);
    command.args(arguments);
    let server = if std::env::var_os(PG_URL).is_some() { None } else { Some(Server::start()) };
    match &server {
        None => {}
        Some(Ok(server)) => {
            command.env(PG_URL, server.url());
        }
        Some(Err(missing)) => missing.skip(),
    }
    match command.status() {
        Ok(status) => {
            // As a shell has it: 128 and the signal's number.
            let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
            ExitCode::from(u8::try_from(code).unwrap_or(1))
        }
        Err(error) => {
            eprintln!("with-server: {} does not start: {error}", program.display());
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("with-server: only Linux");
    ExitCode::FAILURE
}
