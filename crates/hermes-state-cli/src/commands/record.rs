//! `record`: stores messages that arrive as JSON lines, acknowledging each once it is durable.

use std::io::{self, BufRead, Read as _, Write as _};
use std::time::{Duration, Instant};

use clap::Args;
use hermes_state::{Appended, Error, NewSession, Patience, SessionDb, Spool};
use serde_json::json;

use crate::arguments::Global;
use crate::error::{CommandError, Kind};
use crate::line::{self, FIELDS};
use crate::output::{Output, note};
use crate::{store, times};

/// Lines longer than this are passed over: they would take the memory of the machine before they took the disk.
const LONGEST_LINE: u64 = 256 << 20;

const EXAMPLES: &str = r#"Each line is a JSON object with a "role" and any of: content (text, null, a list or an object),
tool_name, tool_calls, tool_call_id, token_count, finish_reason, reasoning, reasoning_content,
reasoning_details, codex_reasoning_items, codex_message_items, platform_message_id, observed,
effect_disposition, timestamp (seconds since 1970, or RFC 3339), api_content, client_key.
A line with a client_key that the session has already is not stored again: the same id comes back.

A line is acknowledged on standard output, by its number and the id of its message, once it will
survive a crash. While the store cannot take messages (busy, damaged, full, away) they are spooled:
acknowledged as `spooled` with a ticket, and stored before whatever is recorded next. A bad line is named on standard error; the others are stored all the same.

Examples:
  echo '{"role":"user","content":"Where is the harbour?"}' | hermes-state record --session s1
  my-agent --log-json | hermes-state record --session "$ID" --source telegram --json"#;

/// Store the messages that arrive on standard input, one JSON object a line
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The session they belong to; it is created if it is missing
    #[arg(long, value_name = "ID")]
    session: String,
    /// Where a session that is created comes from
    #[arg(long, value_name = "NAME", default_value = "cli")]
    source: String,
    /// How long a write waits for other processes: 60 for messages, 20 for the rest, if not given
    #[arg(long, value_name = "SECONDS", value_parser = times::seconds)]
    patience: Option<Duration>,
    /// End with an error where messages would be spooled
    #[arg(long)]
    no_spool: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let open = if arguments.no_spool { store::open } else { store::open_with_spool };
    let db = open(global, arguments.patience)?;
    let mut recorder = Recorder { db: &db, arguments, has_session: false };
    let tally = record(&mut recorder, io::stdin().lock(), out)?;
    if tally.spooled == 0 {
        recorder.make_session()?;
    }
    db.close()?;
    if tally.spooled > 0 {
        note(&format!(
            "{} messages are spooled and will be stored when something is recorded next, or by `hermes-state spool replay`",
            tally.spooled
        ));
    }
    if tally.bad == 0 {
        return Ok(());
    }
    let message = format!("{} of {} lines were not stored; each is named above", tally.bad, tally.seen);
    Err(CommandError::new(Kind::Refused, message).hint(format!("A line may have the fields {}.", FIELDS.join(", "))))
}

#[derive(Default)]
struct Tally {
    seen: u64,
    bad: u64,
    spooled: u64,
}

/// Where messages go.
struct Recorder<'a> {
    db: &'a SessionDb,
    arguments: &'a Arguments,
    has_session: bool,
}

impl Recorder<'_> {
    /// Makes the session if it is missing. While the store cannot, messages are spooled without.
    fn make_session(&mut self) -> Result<(), CommandError> {
        if self.has_session {
            return Ok(());
        }
        match self.db.ensure_session(NewSession::new(&self.arguments.session, &self.arguments.source)) {
            Ok(()) => self.has_session = true,
            Err(error) if self.db.spool().is_some() && Spool::helps(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn store_line(&mut self, line: &[u8]) -> Result<Appended, CommandError> {
        let refused = |reason| CommandError::new(Kind::Refused, reason);
        if line.len() as u64 > LONGEST_LINE {
            return Err(refused(format!("longer than {LONGEST_LINE} bytes")));
        }
        let message = line::parse(line).map_err(refused)?;
        let started = Instant::now();
        self.make_session()?;
        // Its session and itself are one wait to whoever sent the line.
        let patience = self.db.patience();
        let left = patience.transcript.saturating_sub(started.elapsed());
        self.db.set_patience(Patience { transcript: left, ..patience });
        let appended = self.db.append_message(self.arguments.session.as_str(), message.clone());
        self.db.set_patience(patience);
        match appended {
            // Between the two the store became free, and has no such session.
            Err(Error::Constraint { .. }) if !self.has_session => {
                self.make_session()?;
                Ok(self.db.append_message(self.arguments.session.as_str(), message)?)
            }
            appended => Ok(appended?),
        }
    }
}

fn record(recorder: &mut Recorder<'_>, mut input: impl BufRead, out: &mut Output) -> Result<Tally, CommandError> {
    let mut tally = Tally::default();
    let mut number = 0;
    let mut listening = true;
    let mut line = Vec::new();
    while read_line(&mut input, &mut line)? {
        number += 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        tally.seen += 1;
        match recorder.store_line(&line) {
            Ok(appended) => {
                tally.spooled += u64::from(appended.is_spooled());
                listening = listening && acknowledge(out, number, &appended)?;
            }
            Err(error) if error.kind == Kind::Refused => {
                tally.bad += 1;
                error.at_line(number).report(out.json);
            }
            // Later lines must not get ahead of one that can still be stored.
            Err(error) => {
                let session = &recorder.arguments.session;
                let hint = if error.perhaps_stored {
                    format!(
                        "Line {number} may be stored: see `hermes-state show {session}` before you send it again. Nothing was stored from the line after it on."
                    )
                } else {
                    format!("Nothing was stored from line {number} on; send those lines again.")
                };
                return Err(error.at_line(number).hint(hint));
            }
        }
    }
    Ok(tally)
}

/// Reads the next line, without its end; false at the end of the input. Of a line that is too long only so much is kept
/// that it shows.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    if input.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    if line.pop_if(|last| *last == b'\n').is_none() && line.len() as u64 > LONGEST_LINE {
        input.skip_until(b'\n')?;
    }
    Ok(true)
}

/// Tells the reader of the output. False once it has gone away: messages are stored all the same.
fn acknowledge(out: &mut Output, line: u64, appended: &Appended) -> Result<bool, CommandError> {
    let told = match (appended, out.json) {
        (Appended::Stored(id), true) => writeln!(out, "{}", json!({ "line": line, "message_id": id })),
        (Appended::Stored(id), false) => writeln!(out, "{line} {id}"),
        (Appended::Spooled(ticket), true) => {
            writeln!(out, "{}", json!({ "line": line, "message_id": null, "spooled": ticket.to_string() }))
        }
        (Appended::Spooled(ticket), false) => writeln!(out, "{line} spooled {ticket}"),
    };
    match told.and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}
