//! `restore`: makes a backup the store, and keeps the file that was the store.

use std::path::PathBuf;

use clap::Args;
use hermes_state::{CheckDepth, Error, RestoreOptions, RestoreReport, is_url, restore};
use serde_json::json;

use crate::arguments::Global;
use crate::commands::backup::{Bar, tell_of};
use crate::error::{CommandError, Kind};
use crate::output::{Output, note};
use crate::store::{self, shown};
use crate::text::{bytes, thousands, visible};
use crate::times;

/// Make a backup the store; the file that was the store is kept
///
/// The backup is copied and looked at before anything is touched; then the copy takes the name of the store in one step. What
/// was the store stays beside it under another name, which is told. No program may have the store open: whoever does is
/// named, and nothing is changed. A store that is missing or damaged is restored, too.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  hermes-state restore /mnt/backups/state.db\n  hermes-state --db ./state.db restore ./backup.db --json"
)]
pub(crate) struct Arguments {
    /// The backup, or any other file of a store
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// Also compare every index of the backup with its table, which takes longer
    #[arg(long)]
    full: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let location = store::location(global)?;
    if is_url(&location) {
        let message = format!("{} is a store on a server, and a backup is a file", shown(&location));
        return Err(CommandError::new(Kind::Refused, message)
            .hint("`hermes-state migrate --from FILE --to URL` copies a file to a server; what pg_dump has made is restored by pg_restore."));
    }
    let mut options = RestoreOptions::default();
    options.stamp = Some(times::stamp());
    if arguments.full {
        options.check = CheckDepth::Full;
    }
    let mut bar = Bar::new(out.json);
    let report = restore(&arguments.backup, &location, &options, &mut |now| {
        bar.show(now);
        Ok(())
    })
    .map_err(explained)?;
    bar.clear();
    tell_of(&report.health);
    tell_of_the_spool(global)?;
    if out.json {
        return out.document(&json!({
            "store": shown(&report.path),
            "backup": shown(&report.backup),
            "kept": report.kept.as_deref().map(shown),
            "kept_log": report.kept_log.as_deref().map(shown),
            "bytes": report.bytes,
            "sessions": report.sessions,
            "messages": report.messages,
            "problems": report.health.problems,
        }));
    }
    write(out, &report)
}

/// What waits was acknowledged, and gets into whatever is the store when it is stored.
fn tell_of_the_spool(global: &Global) -> Result<(), CommandError> {
    let Some(spool) = store::spool(global)? else { return Ok(()) };
    let waiting = spool.status()?.writes;
    if waiting > 0 {
        note(&format!(
            "{waiting} write(s) wait in {}; they get into the restored store with the next one, or by \
             `hermes-state spool replay`",
            shown(spool.folder())
        ));
    }
    Ok(())
}

fn explained(error: Error) -> CommandError {
    let hint = match &error {
        Error::InUse { .. } => "Nothing was changed. Run the command again when they have ended.",
        Error::Corrupt { .. } => {
            return CommandError::new(Kind::Damaged, error.to_string())
                .hint("Nothing was changed. Restore another backup, or repair a copy of this one.");
        }
        _ => return error.into(),
    };
    CommandError::from(error).hint(hint)
}

fn write(out: &mut Output, report: &RestoreReport) -> Result<(), CommandError> {
    let count = |number: i64| thousands(u64::try_from(number).unwrap_or_default());
    let mut rows = vec![("store", shown(&report.path)), ("restored from", shown(&report.backup))];
    rows.extend(report.kept.as_deref().map(|kept| ("what was there", shown(kept))));
    rows.extend(report.kept_log.as_deref().map(|log| ("its log", shown(log))));
    rows.push(("size", bytes(report.bytes)));
    rows.push(("sessions", count(report.sessions)));
    rows.push(("messages", count(report.messages)));
    out.table(&[], rows.into_iter().map(|(name, value)| vec![name.to_owned(), visible(&value).into_owned()]).collect())
}
