//! What a command fails with: a kind that decides the exit code, a message, and hints on what to do next.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use hermes_state::Error;
use serde_json::json;

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
    Damaged,
    Bug,
}

impl Kind {
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Kind::BrokenPipe => 0,
            Kind::Refused | Kind::Stopped | Kind::NotFound => 1,
            Kind::Usage => 2,
            Kind::Busy => 3,
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
}

impl CommandError {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hints: Vec::new(), line: None }
    }

    /// Adds what the reader can do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
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
        let mut error = json!({
            "kind": self.kind.name(),
            "message": self.message,
            "hints": self.hints,
            "retryable": self.kind == Kind::Busy,
            "exit_code": self.kind.exit_code(),
        });
        if let Some(line) = self.line {
            error["line"] = line.into();
        }
        writeln!(io::stderr().lock(), "{}", json!({ "error": error }))
    }

    fn write_lines(&self) -> io::Result<()> {
        let mut stderr = anstream::stderr().lock();
        let (error, hint) = (AnsiColor::Red.on_default().bold(), Style::new().bold());
        let place = self.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        writeln!(stderr, "{error}Error:{error:#} {place}{}", visible(&self.message))?;
        for text in &self.hints {
            writeln!(stderr, "{hint}Hint:{hint:#} {}", visible(text))?;
        }
        Ok(())
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        const TOO_BIG: i32 = 18;
        let kind = match &error {
            Error::Busy { .. } | Error::LockedOnServer { .. } | Error::Unreachable { .. } => Kind::Busy,
            Error::Corrupt { .. } | Error::NotADatabase { .. } | Error::Replaced { .. } => Kind::Damaged,
            Error::Migration(_) => Kind::Refused,
            Error::Constraint { .. } | Error::Invalid(_) | Error::TitleInUse { .. } | Error::TitleTooLong { .. } => {
                Kind::Refused
            }
            Error::Forked { .. } | Error::Closed { .. } => Kind::Bug,
            error if error.sqlite_code() == TOO_BIG => Kind::Refused,
            _ => Kind::Stopped,
        };
        let told = Self::new(kind, error.to_string());
        match error {
            Error::Busy { .. } | Error::LockedOnServer { .. } => {
                told.hint("Run the command again, or let it wait longer with --patience.")
            }
            Error::Corrupt { path, .. } => told.hint(format!(
                "Stop the programs that use {} and keep a copy of it, with its -wal file, before anything else.",
                path.display()
            )),
            _ => told,
        }
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::BrokenPipe => Kind::BrokenPipe,
            _ => Kind::Stopped,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<serde_json::Error> for CommandError {
    fn from(error: serde_json::Error) -> Self {
        io::Error::from(error).into()
    }
}
