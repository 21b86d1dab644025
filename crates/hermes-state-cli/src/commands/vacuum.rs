//! `vacuum`: gives the space of what was deleted back.

use std::io::{self, IsTerminal as _};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use hermes_state::{SessionDb, SpaceReport, is_url};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::arguments::Global;
use crate::commands::status;
use crate::error::{CommandError, Kind};
use crate::output::{Output, note};
use crate::store::{self, shown};
use crate::text::{bytes, visible};

/// Give the space of deleted sessions back
///
/// Rewrites the whole file. It first tells who has the store open: their writes wait until it is done, which on a store of
/// some gigabytes takes minutes. Nearly twice the space of the store is needed meanwhile. With --gently space is given back
/// in small steps that nobody feels, which files born in older releases do not allow; Ctrl-C ends it behind a step. On a server, has it vacuum the
/// store's tables.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  hermes-state vacuum --gently\n  hermes-state vacuum --json")]
pub(crate) struct Arguments {
    /// In small steps, without rewriting the file
    #[arg(long)]
    gently: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let looked = store::look(global)?;
    if looked.db.is_none() {
        return Err(CommandError::new(Kind::NotFound, looked.missing()));
    }
    drop(looked);
    let db = store::open(global, None)?;
    let mine = i32::try_from(std::process::id()).unwrap_or_default();
    let others: Vec<_> = db.who()?.into_iter().filter(|user| user.pid != mine).collect();
    if !arguments.gently {
        for user in &others {
            note(&format!("in use by {}", status::describe_user(user, is_url(db.path()))));
        }
    }
    let report = if arguments.gently { gently(&db, out.json)? } else { db.vacuum()? };
    if out.json {
        return out.document(&json!({
            "store": shown(db.path()),
            "gently": arguments.gently,
            "before_bytes": report.before,
            "after_bytes": report.after,
            "open_by": others.iter().map(status::user_view).collect::<Vec<_>>(),
        }));
    }
    let rows = [
        ("store", visible(&shown(db.path())).into_owned()),
        ("before", bytes(report.before)),
        ("after", bytes(report.after)),
    ];
    out.table(&[], rows.map(|(name, value)| vec![name.to_owned(), value]).to_vec())
}

/// Gives space back in steps, and shows on a terminal how far it is. Ctrl-C ends it: what was given back by then is, and the
/// store is whole.
fn gently(db: &SessionDb, quiet: bool) -> Result<SpaceReport, CommandError> {
    let stopped = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, stopped.clone())
        .map_err(|error| CommandError::new(Kind::Stopped, format!("Ctrl-C cannot be listened for: {error}")))?;
    let bar = (!quiet && io::stderr().is_terminal()).then(|| {
        let style =
            ProgressStyle::with_template("giving space back {wide_bar:.green} {bytes}/{total_bytes} ({elapsed})");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━━─");
        ProgressBar::new(0).with_style(style)
    });
    let mut left = None;
    let report = db.release_space_with(&mut |progress| {
        let total = progress.total.unwrap_or_default();
        if let Some(bar) = &bar {
            bar.set_length(total);
            bar.set_position(progress.done);
        }
        if stopped.load(Ordering::Relaxed) {
            left = Some((progress.done, total));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    match left {
        Some((done, total)) => {
            let told =
                format!("ended by Ctrl-C: {} of {} were given back, and the store is whole", bytes(done), bytes(total));
            Err(CommandError::new(Kind::Refused, told).hint("Run the same command again for the rest."))
        }
        None => Ok(report?),
    }
}
