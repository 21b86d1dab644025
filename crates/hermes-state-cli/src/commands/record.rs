//! `record`: stores messages that arrive as JSON lines, acknowledging each once it is durable.

use std::io::{self, BufRead, Read as _, Write as _};
use std::time::Duration;

use clap::Args;
use hermes_state::{NewSession, SessionDb};
use serde_json::json;

use crate::arguments::Global;
use crate::error::{CommandError, Kind};
use crate::line::{self, FIELDS};
use crate::output::Output;
use crate::store;

/// Lines longer than this are passed over: they would take the memory of the machine before they took the disk.
const LONGEST_LINE: u64 = 256 << 20;

const EXAMPLES: &str = r#"Each line is a JSON object with a "role" and any of: content (text, null, a list or an object),
tool_name, tool_calls, tool_call_id, token_count, finish_reason, reasoning, reasoning_content,
reasoning_details, codex_reasoning_items, codex_message_items, platform_message_id, observed,
effect_disposition, timestamp (seconds since 1970, or RFC 3339), api_content.

A line is acknowledged on standard output, by its number and the id of its message, once it will
survive a crash. A bad line is named on standard error; the others are stored all the same.

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
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    patience: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

pub(crate) fn run(arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let db = store::open(global, arguments.patience)?;
    db.ensure_session(NewSession::new(&arguments.session, &arguments.source))?;
    let tally = record(&db, &arguments.session, io::stdin().lock(), out)?;
    db.close()?;
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
}

fn record(db: &SessionDb, session: &str, mut input: impl BufRead, out: &mut Output) -> Result<Tally, CommandError> {
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
        match store_line(db, session, &line) {
            Ok(id) => listening = listening && acknowledge(out, number, id)?,
            Err(error) if error.kind == Kind::Refused => {
                tally.bad += 1;
                error.at_line(number).report(out.json);
            }
            // Later lines must not get ahead of one that can still be stored.
            Err(error) => {
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

fn store_line(db: &SessionDb, session: &str, line: &[u8]) -> Result<i64, CommandError> {
    let refused = |reason| CommandError::new(Kind::Refused, reason);
    if line.len() as u64 > LONGEST_LINE {
        return Err(refused(format!("longer than {LONGEST_LINE} bytes")));
    }
    let message = line::parse(line).map_err(refused)?;
    Ok(db.append_message(session, message)?)
}

/// Tells the reader of the output. False once it has gone away: messages are stored all the same.
fn acknowledge(out: &mut Output, line: u64, id: i64) -> Result<bool, CommandError> {
    let told = match out.json {
        true => writeln!(out, "{}", json!({ "line": line, "message_id": id })),
        false => writeln!(out, "{line} {id}"),
    };
    match told.and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}
