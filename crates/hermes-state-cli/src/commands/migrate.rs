//! `migrate`: copies a store into another one, file or server.

use std::io::{self, ErrorKind, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use hermes_state::{
    Error, MigrateOptions, MigrationPhase, MigrationProblem, MigrationProgress, MigrationReport, MigrationTarget,
    SCHEMA_VERSION, ServerTrouble, SessionDb, Spool, TableReport, is_url, migrate, plan_migration,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value as Json, json};

use crate::arguments::Global;
use crate::error::{CommandError, Kind};
use crate::output::{Output, note};
use crate::store::{self, shown};
use crate::text::{thousands, visible};

/// Copy a whole store into another one, file or server
///
/// Either may be a file or the URL of a server. Ids, times and all columns stay as they are, and the search works at the end. The source may be in use meanwhile: the
/// copy is the source as it was at one moment. Until the command ends nothing else should use the target. If it is
/// interrupted, even killed, the same command goes on where it was. At the end the rows of both are counted and compared.
///
/// With --merge the target may hold something. Sessions that it does not have come over with all their messages, which
/// get new ids, because ids are numbers of their store; a title that another session has there is left out. Of a session
/// that the target has nothing is changed, nor of any other row that it has: what differs is listed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  hermes-state migrate --from ~/.hermes/state.db --to 'postgresql://me@server/agents' --dry-run\n  hermes-state migrate --from ~/.hermes/state.db --to 'postgresql://me@server/agents'\n  hermes-state migrate --from laptop.db --to ~/.hermes/state.db --merge"
)]
pub(crate) struct Arguments {
    /// The store to copy: a file, or the URL of a server
    #[arg(long, value_name = "STORE")]
    from: PathBuf,
    /// Where to: a file, or the URL of a server; made if it is missing
    #[arg(long, value_name = "STORE")]
    to: PathBuf,
    /// Only say what would be copied, and what is in the way; nothing is made or changed
    #[arg(long)]
    dry_run: bool,
    /// Bring over what the target lacks, and leave alone what it has
    #[arg(long)]
    merge: bool,
    /// Leave behind what is in columns that this release does not know
    #[arg(long)]
    ignore_unknown: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    if global.db.is_some() {
        return Err(CommandError::new(Kind::Usage, "this command is told its stores by --from and --to, not by --db"));
    }
    store::refuse_memory(&arguments.from)?;
    store::refuse_memory(&arguments.to)?;
    let started = Instant::now();
    let options = MigrateOptions::new().merge(arguments.merge).ignore_unknown(arguments.ignore_unknown);
    let mut bar = Bar::new(out.json);
    let from = source(arguments)?;
    let waiting =
        Spool::of(&arguments.from, None)?.map_or(Ok(0), |spool| spool.status().map(|status| status.writes))?;
    if waiting > 0 {
        note(&format!(
            "{waiting} write(s) wait in the spool of the source and are not copied; store them there first, with \
             `hermes-state --db {} spool replay`.",
            shown(&arguments.from)
        ));
    }
    let report = if arguments.dry_run {
        plan(&from, &arguments.to, &options, &mut bar)?
    } else {
        let to = store::options(&arguments.to)?.open(&arguments.to)?;
        migrate(&from, &to, &options, &mut |progress| bar.show(progress)).map_err(explained)?
    };
    bar.clear();
    let from = shown(from.path());
    let seconds = started.elapsed().as_secs_f64();
    if out.json {
        out.document(&view(&report, &from, seconds))?;
    } else {
        write(out, &report, &from, seconds)?;
    }
    if report.problems.is_empty() {
        return Ok(());
    }
    let count = report.problems.len();
    Err(CommandError::new(
        Kind::Refused,
        format!("{count} thing(s) in the source are in the way; they are listed above"),
    ))
}

/// Opens the source for looking. One of an older release is first brought up to date, as by every other command that
/// writes; a dry run does not, and says so.
fn source(arguments: &Arguments) -> Result<SessionDb, CommandError> {
    let from = &arguments.from;
    let missing = |from: &Path| CommandError::new(Kind::NotFound, format!("there is no store at {}", shown(from)));
    if !is_url(from) && from.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Err(missing(from));
    }
    let db = match store::options(from)?.read_only(true).open(from) {
        Err(Error::Server { path, trouble: ServerTrouble::NoStore { .. } }) => return Err(missing(&path)),
        opened => opened?,
    };
    let old = db.status()?.schema_version.is_none_or(|version| version < SCHEMA_VERSION);
    if old && !arguments.dry_run {
        drop(db);
        return Ok(store::options(&arguments.from)?.open(&arguments.from)?);
    }
    Ok(db)
}

fn plan(from: &SessionDb, to: &Path, options: &MigrateOptions, bar: &mut Bar) -> Result<MigrationReport, CommandError> {
    let found = match to.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound && !is_url(to) => None,
        Ok(metadata) if metadata.len() == 0 => None,
        _ => match store::options(to)?.read_only(true).open(to) {
            Ok(db) => Some(db),
            Err(Error::Server { trouble: ServerTrouble::NoStore { .. }, .. }) => None,
            Err(error) => return Err(error.into()),
        },
    };
    let target = match &found {
        Some(db) => MigrationTarget::Store(db),
        None if is_url(to) => MigrationTarget::NewServer,
        None => MigrationTarget::NewFile,
    };
    plan_migration(from, target, options, &mut |progress| bar.show(progress)).map_err(explained)
}

/// Adds what can be done with the options of this command.
fn explained(error: Error) -> CommandError {
    use hermes_state::MigrationTrouble::{NotEmpty, Problems};
    let hint = match &error {
        Error::Migration(trouble) => match &**trouble {
            NotEmpty { .. } => Some("Add --merge to bring over what the target lacks."),
            Problems { .. } => Some("Run the command with --dry-run to have all of them listed."),
            _ => None,
        },
        _ => None,
    };
    let told = CommandError::from(error);
    match hint {
        Some(hint) => told.hint(hint),
        None => told,
    }
}

/// How far it is, on a terminal.
struct Bar {
    bar: Option<ProgressBar>,
    phase: Option<MigrationPhase>,
}

impl Bar {
    fn new(quiet: bool) -> Self {
        let bar = (!quiet && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template("{msg} {wide_bar:.green} {human_pos}/{human_len} ({elapsed})");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━━─"));
            bar
        });
        Self { bar, phase: None }
    }

    fn show(&mut self, progress: MigrationProgress) {
        let Some(bar) = &self.bar else { return };
        if self.phase != Some(progress.phase) {
            self.phase = Some(progress.phase);
            bar.set_length(progress.total);
        }
        let doing = match progress.phase {
            MigrationPhase::Checking => "checking",
            MigrationPhase::Copying => "copying",
            MigrationPhase::Comparing => "comparing",
            MigrationPhase::Indexing => "filling the search index of",
            _ => "working on",
        };
        bar.set_message(format!("{doing} {}", progress.table));
        bar.set_position(progress.done);
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn view(report: &MigrationReport, from: &str, seconds: f64) -> Json {
    let told = |problems: &[MigrationProblem]| {
        let one = |problem: &MigrationProblem| {
            json!({
                "table": problem.table,
                "key": problem.key,
                "column": problem.column,
                "reason": problem.reason,
            })
        };
        problems.iter().map(one).collect::<Vec<_>>()
    };
    let tables = report.tables.iter().map(|table| {
        json!({
            "table": table.table,
            "source_rows": table.source_rows,
            "target_rows": table.target_rows,
            "source_checksum": table.source_checksum,
            "target_checksum": table.target_checksum,
            "copied": table.copied,
            "removed": table.removed,
            "same": table.same,
            "kept": table.kept,
            "kept_keys": table.kept_keys,
            "renumbered": table.renumbered,
        })
    });
    json!({
        "from": from,
        "dry_run": report.dry_run,
        "merged": report.merged,
        "resumed": report.resumed,
        "passes": report.passes,
        "source_changed": report.source_changed,
        "equal": report.is_equal(),
        "seconds": seconds,
        "tables": tables.collect::<Vec<Json>>(),
        "notes": told(&report.notes),
        "problems": told(&report.problems),
    })
}

fn write(out: &mut Output, report: &MigrationReport, from: &str, seconds: f64) -> Result<(), CommandError> {
    if report.merged {
        let header = ["TABLE", "SOURCE", "TARGET", "BROUGHT OVER", "THERE ALREADY", "KEPT AS THERE"];
        out.table(&header, report.tables.iter().map(merged).collect())?;
        for table in report.tables.iter().filter(|table| !table.kept_keys.is_empty()) {
            let keys: Vec<_> = table.kept_keys.iter().map(|key| visible(key)).collect();
            note(&format!("{}: the target has these otherwise, and keeps them: {}", table.table, keys.join(", ")));
        }
        let renumbered: u64 = report.tables.iter().map(|table| table.renumbered).sum();
        if renumbered > 0 {
            let get = if report.dry_run { "would get" } else { "got" };
            note(&format!("{} message(s) {get} new ids", thousands(renumbered)));
        }
    } else {
        let header = ["TABLE", "SOURCE", "TARGET", "COPIED", "SUM OF SOURCE", "SUM OF TARGET"];
        out.table(&header, report.tables.iter().map(copied).collect())?;
    }
    for told in report.notes.iter().chain(&report.problems) {
        note(&told.to_string());
    }
    if report.source_changed {
        note("the source was written to meanwhile: what came after the last pass began is not in the target");
    }
    if report.dry_run {
        note("nothing was changed: this was a dry run");
    } else if !report.merged {
        let rows: u64 = report.tables.iter().map(|table| table.source_rows).sum();
        note(&format!(
            "{} rows of {from} are in the target, in {seconds:.1} s; counts and checksums agree",
            thousands(rows)
        ));
    }
    Ok(())
}

fn copied(table: &TableReport) -> Vec<String> {
    vec![
        table.table.to_owned(),
        thousands(table.source_rows),
        thousands(table.target_rows),
        thousands(table.copied),
        beginning(&table.source_checksum),
        beginning(&table.target_checksum),
    ]
}

/// As much of a checksum as fits twice beside the counts on a terminal of 80 columns; JSON has all of it.
fn beginning(checksum: &str) -> String {
    checksum.chars().take(12).collect()
}

fn merged(table: &TableReport) -> Vec<String> {
    vec![
        table.table.to_owned(),
        thousands(table.source_rows),
        thousands(table.target_rows),
        thousands(table.copied),
        thousands(table.same),
        thousands(table.kept),
    ]
}
