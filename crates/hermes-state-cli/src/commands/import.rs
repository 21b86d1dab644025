//! `import`: takes in sessions that were exported, all of them or none.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::path::PathBuf;

use clap::Args;
use hermes_state::{ImportEntry, ImportOptions, ImportReport, SessionDb};
use serde_json::{Value as Json, json};

use crate::arguments::Global;
use crate::error::{CommandError, Kind};
use crate::output::Output;
use crate::store;
use crate::text::visible;

/// Lines longer than this are no sessions that could be taken, however they are escaped.
const LONGEST_LINE: u64 = 64 << 20;

const EXAMPLES: &str = "\
Either all sessions come in or, if anything is wrong with one, none; what is wrong is listed by line.
At once 500 sessions, 50,000 messages (10,000 of one session) and 25 MiB (5 MiB of one session) are
taken. `migrate --merge` copies whole stores.

Examples:
  hermes-state import session.jsonl
  zcat conversation.jsonl.gz | hermes-state import --dry-run
  hermes-state --db old.db export --all | hermes-state import --json";

/// Take in sessions that were exported, one JSON object a line
///
/// A session that the store has is skipped and stays as it is. A parent that is neither in the store nor among the
/// imported is left out, which is said. Messages get new ids.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The file to read, instead of standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let lines = match &arguments.file {
        None => read(io::stdin().lock())?,
        Some(path) => {
            #[expect(clippy::disallowed_methods, reason = "an export, which is no store")]
            let file = std::fs::File::open(path)
                .map_err(|error| CommandError::new(Kind::Stopped, format!("{}: {error}", store::shown(path))))?;
            read(BufReader::new(file))?
        }
    };
    let (numbers, entries): (Vec<u64>, Vec<ImportEntry>) = lines.into_iter().unzip();
    let options = ImportOptions { dry_run: arguments.dry_run, ..ImportOptions::default() };
    let report = open(arguments, global)?.import_sessions(entries, &options)?;
    let line = |index: usize| numbers.get(index).copied().unwrap_or_default();
    if out.json {
        out.document(&view(&report, arguments.dry_run, line))?;
    } else if report.is_ok() {
        write(out, &report, arguments.dry_run)?;
    }
    if report.is_ok() {
        return Ok(());
    }
    if !out.json {
        for problem in &report.errors {
            let id = problem.session_id.as_ref().map(|id| format!("session {id}: ")).unwrap_or_default();
            let error = CommandError::new(Kind::Refused, format!("{id}{}", problem.error));
            error.at_line(line(problem.index)).report(false);
        }
    }
    let message = format!("nothing was imported: something is wrong with {} of the sessions", report.errors.len());
    Err(CommandError::new(Kind::Refused, message))
}

/// The store to write to; for a dry run it is only looked at, and one that is not there is as good as empty.
fn open(arguments: &Arguments, global: &Global) -> Result<SessionDb, CommandError> {
    if !arguments.dry_run {
        return store::open(global, None);
    }
    match store::look(global)?.db {
        Some(db) => Ok(db),
        None => Ok(SessionDb::open(":memory:")?),
    }
}

/// The lines that say something, with their numbers.
fn read(mut input: impl BufRead) -> Result<Vec<(u64, ImportEntry)>, CommandError> {
    let most = ImportOptions::default().limits.sessions;
    let (mut lines, mut number) = (Vec::new(), 0);
    loop {
        let mut line = Vec::new();
        if input.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', &mut line)? == 0 {
            return Ok(lines);
        }
        number += 1;
        let refused = |reason: String| CommandError::new(Kind::Refused, reason).at_line(number);
        if line.len() as u64 > LONGEST_LINE {
            return Err(refused(format!("longer than {LONGEST_LINE} bytes")));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        if lines.len() == most {
            return Err(refused(format!("more than {most} sessions at once"))
                .hint("Import a part of the lines after the other, parents first; or copy the whole store with `migrate --merge`."));
        }
        let text = String::from_utf8(line).map_err(|error| refused(format!("not UTF-8: {error}")))?;
        lines.push((number, ImportEntry::Json(text)));
    }
}

fn view(report: &ImportReport, dry_run: bool, line: impl Fn(usize) -> u64) -> Json {
    let errors = report.errors.iter().map(
        |problem| json!({ "line": line(problem.index), "session_id": problem.session_id, "error": problem.error }),
    );
    json!({
        "dry_run": dry_run,
        "ok": report.is_ok(),
        "imported": report.imported_ids.len(),
        "skipped": report.skipped_ids.len(),
        "detached": report.detached_ids.len(),
        "imported_ids": report.imported_ids,
        "skipped_ids": report.skipped_ids,
        "detached_ids": report.detached_ids,
        "errors": errors.collect::<Vec<_>>(),
    })
}

fn write(out: &mut Output, report: &ImportReport, dry_run: bool) -> Result<(), CommandError> {
    let would = if dry_run { "would be " } else { "" };
    let told = [
        (format!("{would}imported"), &report.imported_ids),
        (format!("{would}skipped, being there"), &report.skipped_ids),
        (format!("{would}without the parent they name"), &report.detached_ids),
    ];
    for (what, ids) in told {
        if ids.is_empty() {
            continue;
        }
        let shown: Vec<String> = ids.iter().take(8).map(|id| visible(id).into_owned()).collect();
        let rest = if ids.len() > shown.len() { ", …" } else { "" };
        writeln!(out, "{} {what}: {}{rest}", ids.len(), shown.join(", "))?;
    }
    Ok(())
}
