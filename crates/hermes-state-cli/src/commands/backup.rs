//! `backup`: copies the store into a file while others use it.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use clap::Args;
use hermes_state::{BackupOptions, BackupPhase, BackupProgress, BackupReport, CheckDepth, Health};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::arguments::Global;
use crate::error::{CommandError, Kind};
use crate::output::{Output, note};
use crate::store::{self, shown};
use crate::text::{bytes, thousands, visible};

/// Copy the store into a file, while others use it
///
/// The copy is the store as it was at one moment, with its search indexes. It is made beside FILE, looked at, and takes its
/// name in one step: an earlier backup stays whole until then. Where that holds the same as the store already, nothing is
/// written. A backup is a store: --db opens it, `restore` brings it back. A store on a server is backed up by the server's
/// own tools, or copied into a file by `migrate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  hermes-state backup /mnt/backups/state.db\n  hermes-state backup --full ./backup.db --json"
)]
pub(crate) struct Arguments {
    /// Where to; an earlier backup there is replaced, anything else is left alone
    #[arg(value_name = "FILE")]
    target: PathBuf,
    /// Also compare every index of the copy with its table, which takes longer
    #[arg(long)]
    full: bool,
    /// Copy also if the backup that is there holds the same
    #[arg(long)]
    always: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let looked = store::look(global)?;
    let Some(db) = &looked.db else { return Err(CommandError::new(Kind::NotFound, looked.missing())) };
    let mut options = BackupOptions::default();
    options.always_copy = arguments.always;
    if arguments.full {
        options.check = CheckDepth::Full;
    }
    let mut bar = Bar::new(out.json);
    let report = db.backup(&arguments.target, &options, &mut |now| {
        bar.show(now);
        Ok(())
    })?;
    bar.clear();
    tell_of(&report.health);
    if out.json {
        return out.document(&json!({
            "store": shown(db.path()),
            "backup": shown(&report.target),
            "copied": report.copied,
            "bytes": report.bytes,
            "sessions": report.sessions,
            "messages": report.messages,
            "problems": report.health.problems,
        }));
    }
    write(out, &shown(db.path()), &report)
}

fn write(out: &mut Output, store: &str, report: &BackupReport) -> Result<(), CommandError> {
    let done = if report.copied {
        "copied the whole store, and checked the copy"
    } else {
        "nothing: the backup holds what the store holds"
    };
    let count = |number: i64| thousands(u64::try_from(number).unwrap_or_default());
    let rows = [
        ("store", store.to_owned()),
        ("backup", shown(&report.target)),
        ("done", done.to_owned()),
        ("size", bytes(report.bytes)),
        ("sessions", count(report.sessions)),
        ("messages", count(report.messages)),
    ];
    out.table(&[], rows.map(|(name, value)| vec![name.to_owned(), visible(&value).into_owned()]).to_vec())
}

/// Tells of damaged indexes, which cost no message.
pub(crate) fn tell_of(health: &Health) {
    if !health.is_well() {
        note("its search or ordinary indexes are damaged, which costs no message; `hermes-state repair` mends them");
    }
}

/// How far it is, on a terminal.
pub(crate) struct Bar {
    bar: Option<ProgressBar>,
    phase: Option<BackupPhase>,
}

impl Bar {
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = (!quiet && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template("{msg} {wide_bar:.green} {percent} % ({elapsed})");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━━─"));
            bar
        });
        Self { bar, phase: None }
    }

    pub(crate) fn show(&mut self, now: &BackupProgress) {
        let Some(bar) = &self.bar else { return };
        if self.phase != Some(now.phase) {
            self.phase = Some(now.phase);
            bar.set_message(now.phase.name());
        }
        bar.set_length(now.total);
        bar.set_position(now.done);
    }

    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
