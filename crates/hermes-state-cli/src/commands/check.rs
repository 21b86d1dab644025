//! `check`: whether the store is well, without touching it.

use std::io::ErrorKind;

use clap::Args;
use hermes_state::{CheckDepth, Health, Part, PartHealth, PartState, SessionDb, is_url};
use serde_json::{Value as Json, json};

use crate::arguments::Global;
use crate::error::{CommandError, Kind};
use crate::output::{Output, note};
use crate::store::{self, shown};
use crate::text::visible;

/// Check whether the store is well; changes nothing
///
/// Tells of sessions, transcript, indexes, other tables, sidecars and spool how each is and what to do next. Without --full it
/// takes some ten seconds at most and tells what there was no time for. Other programs may use the store meanwhile. Of a store
/// on a server only whether it can be read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  hermes-state check\n  hermes-state check --full --json")]
pub(crate) struct Arguments {
    /// Look at everything: every page, every index against its table, references and counters against rows
    #[arg(long)]
    full: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let location = store::location(global)?;
    let (shown, health) = if is_url(&location) {
        let looked = store::look(global)?;
        let read = looked.db.as_ref().map(SessionDb::status).transpose()?;
        let mut health = Health::default();
        health.parts.extend(store::spool(global)?.map(|spool| spool.health()));
        (looked.location(), read.map(|_| health))
    } else {
        let missing = location.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let depth = if arguments.full { CheckDepth::Full } else { CheckDepth::Quick };
        let health = if missing { None } else { Some(SessionDb::check_file(&location, depth)?) };
        (shown(&location), health)
    };
    let filled = filled(global, health.as_ref())?;
    let Some(health) = health else {
        if out.json {
            return out.document(&json!({ "store": shown, "exists": false }));
        }
        note(&format!("there is no store at {shown} yet"));
        return Ok(());
    };
    if out.json {
        out.document(&json!({
            "store": shown,
            "exists": true,
            "well": health.is_well(),
            "verdict": health.verdict(),
            "index_filled": filled,
            "problems": health.problems,
            "unreadable": health.unreadable,
            "parts": health.parts.iter().map(part_view).collect::<Vec<_>>(),
        }))?;
    } else {
        let mut rows = vec![("store", shown.clone()), ("verdict", health.verdict().to_owned())];
        if let Some(percent) = filled.filter(|percent| *percent < 100) {
            let told = "until it is filled, searches also read the messages themselves; `hermes-state repair` fills it";
            rows.push(("search index", format!("filled to {percent} %: {told}")));
        }
        rows.extend(health.parts.iter().flat_map(part_rows));
        rows.extend(health.problems.iter().map(|problem| ("problem", problem.replace('\n', " "))));
        rows.extend(health.unreadable.iter().map(|table| ("rows missing in", table.clone())));
        out.table(
            &[],
            rows.into_iter().map(|(name, value)| vec![name.to_owned(), visible(&value).into_owned()]).collect(),
        )?;
    }
    if health.is_well() {
        return Ok(());
    }
    let error = CommandError::new(Kind::Damaged, format!("{shown}: {}", health.verdict()));
    // What is wrong with the spool alone a repair of the store does not mend; its part has the next step.
    Err(match health.problems.is_empty() {
        true => error,
        false => error.hint("Stop the programs that use the store, then run `hermes-state repair`."),
    })
}

/// How far the search indexes of a store that is well are filled, in percent; `None` if the store is not well, or not there.
fn filled(global: &Global, health: Option<&Health>) -> Result<Option<i64>, CommandError> {
    if !health.is_some_and(Health::is_well) {
        return Ok(None);
    }
    let looked = store::look(global)?;
    let Some(db) = looked.db.as_ref() else { return Ok(None) };
    let pending = [db.fts_rebuild_status()?, db.fts_cjk_rebuild_status()?];
    Ok(Some(pending.into_iter().flatten().map(|status| status.percent.min(99)).min().unwrap_or(100)))
}

fn part_view(part: &PartHealth) -> Json {
    json!({
        "part": part.part.name(),
        "state": part.state.name(),
        "findings": part.findings,
        "next_step": part.next_step,
    })
}

/// A part for people; damage of the store is told below in full.
fn part_rows(part: &PartHealth) -> Vec<(&'static str, String)> {
    let mut rows = vec![(part.part.name(), part.state.name().to_owned())];
    if part.state != PartState::Damaged || part.part == Part::Spool {
        rows.extend(part.findings.iter().map(|finding| ("", finding.replace('\n', " "))));
    }
    rows.extend(part.next_step.iter().map(|next| ("", next.clone())));
    rows
}
