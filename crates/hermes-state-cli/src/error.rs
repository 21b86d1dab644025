//! What a command fails with: a kind that decides the exit code, a message, and hints on what to do next.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use hermes_state::{Error, ErrorKind, ServerTrouble};
use serde_json::json;

use crate::environment::without_passwords;
use crate::text::visible;

/// The kinds of failure that callers tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The reader of the output went away: it has what it wanted.
    BrokenPipe,
    Refused,
    /// Refused for a reason that lies with the machine, not with what was asked.
    Stopped,
    NotFound,
    Usage,
    Busy,
    /// The server of the store is away, or takes no connections.
    Unreachable,
    Damaged,
    Bug,
}

impl Kind {
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Kind::BrokenPipe => 0,
            Kind::Refused | Kind::Stopped | Kind::NotFound => 1,
            Kind::Usage => 2,
            Kind::Busy | Kind::Unreachable => 3,
            Kind::Damaged => 4,
            Kind::Bug => 70,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::BrokenPipe => "broken-pipe",
            Kind::Refused => "refused",
            Kind::Stopped => "stopped",
            Kind::NotFound => "not-found",
            Kind::Usage => "usage",
            Kind::Busy => "busy",
            Kind::Unreachable => "unreachable",
            Kind::Damaged => "damaged",
            Kind::Bug => "bug",
        }
    }
}

/// A failure as a person or a program is told of it.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) kind: Kind,
    message: String,
    hints: Vec<String>,
    line: Option<u64>,
    /// What kept the store from being used, if that is known.
    cause: Option<ErrorKind>,
    /// Whether what failed may have been stored all the same.
    pub(crate) perhaps_stored: bool,
}

impl CommandError {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hints: Vec::new(), line: None, cause: None, perhaps_stored: false }
    }

    /// Adds what the reader can do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Names the cause, with its sentence for people, unless there is no more to say than the message.
    fn caused_by(mut self, cause: ErrorKind) -> Self {
        self.cause = Some(cause).filter(|cause| *cause != ErrorKind::Unknown);
        self
    }

    /// Names the line of the input that it is about.
    pub(crate) fn at_line(mut self, line: u64) -> Self {
        self.line = Some(line);
        self
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind.exit_code())
    }

    /// Writes it to standard error, as lines or as one JSON object.
    pub(crate) fn report(&self, json: bool) {
        if self.kind == Kind::BrokenPipe {
            return;
        }
        // Where standard error is gone too, the exit code is all that is left to say it with.
        let _ = if json { self.write_json() } else { self.write_lines() };
    }

    fn write_json(&self) -> io::Result<()> {
        let hints: Vec<String> = self.hints.iter().map(|hint| without_passwords(hint)).collect();
        let mut error = json!({
            "kind": self.kind.name(),
            "message": without_passwords(&self.message),
            "hints": hints,
            "retryable": matches!(self.kind, Kind::Busy | Kind::Unreachable),
            "exit_code": self.kind.exit_code(),
        });
        if let Some(cause) = self.cause {
            error["cause"] = cause.name().into();
            error["sentence"] = cause.sentence().into();
        }
        if let Some(line) = self.line {
            error["line"] = line.into();
        }
        if self.perhaps_stored {
            error["perhaps_stored"] = true.into();
        }
        writeln!(io::stderr().lock(), "{}", json!({ "error": error }))
    }

    fn write_lines(&self) -> io::Result<()> {
        let mut stderr = anstream::stderr().lock();
        let (error, hint) = (AnsiColor::Red.on_default().bold(), Style::new().bold());
        let place = self.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        writeln!(stderr, "{error}Error:{error:#} {place}{}", visible(&without_passwords(&self.message)))?;
        let sentence = self.cause.map(|cause| cause.sentence().to_owned());
        for text in sentence.iter().chain(&self.hints) {
            writeln!(stderr, "{hint}Hint:{hint:#} {}", visible(&without_passwords(text)))?;
        }
        Ok(())
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        let plain = Self::new(kind_of(&error), error.to_string());
        // Its message has the next step. That the store is well, as of one that is merely busy, nobody knows here.
        if matches!(error, Error::InUse { .. }) {
            return plain;
        }
        let told = plain.caused_by(error.kind());
        match error {
            Error::Busy { .. } | Error::LockedOnServer { .. } => {
                told.hint("Run the command again; `record` and `spool replay` wait longer with --patience.")
            }
            Error::Unreachable { perhaps_stored, .. } => {
                Self { perhaps_stored, ..told }.hint("Run the command again when the server is back.")
            }
            Error::Server { trouble, .. } => match hint_for(&trouble) {
                Some(hint) => told.hint(hint),
                None => told,
            },
            _ => told,
        }
    }
}

fn kind_of(error: &Error) -> Kind {
    const TOO_BIG: i32 = 18;
    match error {
        Error::Busy { .. } | Error::LockedOnServer { .. } | Error::InUse { .. } => Kind::Busy,
        Error::Unreachable { .. } => Kind::Unreachable,
        Error::Server { trouble, .. } => match trouble {
            ServerTrouble::BadUrl(_) | ServerTrouble::NotBuilt => Kind::Usage,
            // What is wrong with the address cannot be told from what is wrong with the server for now.
            ServerTrouble::Refused { .. } | ServerTrouble::NoAnswer { .. } | ServerTrouble::Unavailable { .. } => {
                Kind::Unreachable
            }
            _ => Kind::Stopped,
        },
        Error::Corrupt { .. } | Error::NotADatabase { .. } | Error::Replaced { .. } => Kind::Damaged,
        Error::Constraint { .. }
        | Error::Invalid(_)
        | Error::Migration(_)
        | Error::TitleInUse { .. }
        | Error::ClientKeyInUse { .. }
        | Error::TitleTooLong { .. } => Kind::Refused,
        Error::CannotOpen { path, .. } if matches!(path.try_exists(), Ok(false)) => Kind::NotFound,
        Error::Forked { .. } | Error::Closed { .. } => Kind::Bug,
        error if error.sqlite_code() == TOO_BIG => Kind::Refused,
        _ => Kind::Stopped,
    }
}

/// What to do about a server, beyond what the error says itself.
fn hint_for(trouble: &ServerTrouble) -> Option<String> {
    Some(match trouble {
        ServerTrouble::BadUrl(reason) if reason.contains("://") => {
            "A file whose name begins like a URL is named with ./ before it.".to_owned()
        }
        ServerTrouble::Refused { .. } | ServerTrouble::NoAnswer { .. } | ServerTrouble::Unavailable { .. } => {
            "If the URL is right, run the command again when the server is up.".to_owned()
        }
        ServerTrouble::Login { .. } => {
            "The password is taken from the URL, or else from the variable PGPASSWORD.".to_owned()
        }
        ServerTrouble::NoDatabase { database } => format!("Who may do so creates it with `createdb {database}`."),
        ServerTrouble::NoRights { schema, .. } => format!(
            "docs/postgres.md has the statements for users of each kind; CREATE SCHEMA {schema} AUTHORIZATION … gives one user all rights there."
        ),
        ServerTrouble::NoTls => "Only use sslmode=prefer or disable where nobody can listen on the network.".to_owned(),
        _ => return None,
    })
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::BrokenPipe => Kind::BrokenPipe,
            _ => Kind::Stopped,
        };
        let cause = error.raw_os_error().map_or(ErrorKind::Unknown, ErrorKind::of_errno);
        Self::new(kind, error.to_string()).caused_by(cause)
    }
}

impl From<serde_json::Error> for CommandError {
    fn from(error: serde_json::Error) -> Self {
        io::Error::from(error).into()
    }
}
