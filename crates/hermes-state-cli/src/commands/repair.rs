//! `repair`: mends a damaged file on a copy, and keeps the damaged one.

use std::path::PathBuf;

use clap::Args;
use hermes_state::{Error, RepairOptions, RepairReport, RepairStrategy, RepairedTable, SessionDb};
use serde_json::{Value as Json, json};

use crate::arguments::Global;
use crate::error::CommandError;
use crate::output::Output;
use crate::store::{self, shown};
use crate::text::{thousands, visible};
use crate::times;

/// Repair a damaged store; the damaged file is kept
///
/// What helps is found on a copy, which takes the place of the damaged file only when it is well: search indexes and other
/// indexes are made anew, what the schema has twice is removed, and if all that does not help, every row that can be read is
/// put into a new file. Messages whose session is not there get one, and a search index the messages that it lacks. No program may
/// use the store meanwhile. If nothing helps it stays as it was. Of a store that is
/// well, search indexes that are not filled to the end are filled, while others go on with it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  hermes-state repair\n  hermes-state --db ./state.db repair --json")]
pub(crate) struct Arguments {
    /// Do not keep the damaged file, unless rows were lost
    #[arg(long)]
    no_backup: bool,
    /// Put the repaired store into this new file, and leave the damaged one as and where it is; it may be in use
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let location = store::location(global)?;
    let mut options = RepairOptions::default();
    options.backup = !arguments.no_backup;
    options.into.clone_from(&arguments.into);
    options.stamp = Some(times::stamp());
    let report = SessionDb::repair_file(&location, &options).map_err(explained)?;
    let filled = report.strategy == RepairStrategy::AlreadyHealthy && arguments.into.is_none() && fill(global)?;
    if out.json { out.document(&view(&report, filled)) } else { write(out, &report, filled) }
}

/// How many ids a step fills in, which holds the write lock shortly.
const STEP: i64 = 500;

/// Fills the search indexes to the end; whether there was something to do.
fn fill(global: &Global) -> Result<bool, CommandError> {
    let db = store::open(global, None)?;
    let pending = db.fts_rebuild_status()?.is_some() || db.fts_cjk_rebuild_status()?.is_some();
    while db.fts_rebuild_step(STEP)? || db.fts_cjk_rebuild_step(STEP)? {}
    db.close()?;
    Ok(pending)
}

fn explained(error: Error) -> CommandError {
    let in_use = matches!(error, Error::InUse { .. });
    let told = CommandError::from(error);
    if in_use { told.hint("Nothing was changed. Run the command again when they have ended.") } else { told }
}

fn view(report: &RepairReport, filled: bool) -> Json {
    let tables = report.tables.iter().map(|table| {
        json!({
            "table": table.name,
            "before": table.before,
            "rows": table.rows,
            "lost": table.lost,
            "mended": table.mended,
            "made": table.made,
            "incomplete": table.incomplete,
        })
    });
    json!({
        "store": shown(&report.path),
        "repaired": report.strategy != RepairStrategy::AlreadyHealthy,
        "strategy": report.strategy.name(),
        "filled": filled,
        "backup": report.backup.as_deref().map(shown),
        "into": report.into.as_deref().map(shown),
        "tables": tables.collect::<Vec<Json>>(),
        "notes": report.notes,
    })
}

fn write(out: &mut Output, report: &RepairReport, filled: bool) -> Result<(), CommandError> {
    let done = if filled { "filled the search indexes to the end" } else { describe(report.strategy) };
    let mut rows = vec![("store", shown(&report.path)), ("done", done.to_owned())];
    if let Some(backup) = &report.backup {
        rows.push(("damaged file", shown(backup)));
    }
    if let Some(into) = &report.into {
        rows.push(("repaired file", shown(into)));
    }
    rows.extend(report.tables.iter().map(|table| ("table", describe_table(table))));
    rows.extend(report.notes.iter().map(|text| ("note", text.replace('\n', " "))));
    out.table(&[], rows.into_iter().map(|(name, value)| vec![name.to_owned(), visible(&value).into_owned()]).collect())
}

fn describe(strategy: RepairStrategy) -> &'static str {
    match strategy {
        RepairStrategy::AlreadyHealthy => "nothing: the store is well",
        RepairStrategy::AdoptOrphans => "gave messages without a session one, with the source `unknown`",
        RepairStrategy::RebuildFts => "filled the search indexes anew",
        RepairStrategy::ReindexBtree => "made the ordinary indexes anew",
        RepairStrategy::DedupSchema => "removed what the schema had twice",
        RepairStrategy::DropFtsRebuild => "took the search indexes out; the next opening makes them anew",
        _ => "put every row that could be read into a new file",
    }
}

fn describe_table(table: &RepairedTable) -> String {
    let mut text = format!("{}: {} rows", table.name, thousands(table.rows));
    if let Some(before) = table.before.filter(|before| *before != table.rows) {
        text.push_str(&format!(" of {}", thousands(before)));
    }
    for (count, what) in
        [(table.lost, "lost"), (table.mended, "with bytes that were no text"), (table.made, "made anew")]
    {
        if count > 0 {
            text.push_str(&format!(", {} {what}", thousands(count)));
        }
    }
    if table.incomplete && table.lost == 0 {
        text.push_str(", perhaps some lost");
    }
    text
}
