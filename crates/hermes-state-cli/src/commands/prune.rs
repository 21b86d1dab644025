//! `prune`: deletes the sessions that are not to be kept.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use hermes_state::{
    PlannedSession, RetentionPlan, RetentionPolicy, RetentionRule, Session, SessionState, age_from_text,
};
use serde_json::{Value as Json, json};

use crate::arguments::Global;
use crate::error::{CommandError, Kind};
use crate::output::{Output, note};
use crate::store;
use crate::text::{bytes, one_line, thousands};
use crate::times;

/// Delete the sessions that are not to be kept
///
/// Takes sessions that began longer ago than an age, of some states and sources, or what a policy names, with their
/// messages and the sub-agents that they delegated; other children stay. It deletes in small steps that nobody feels.
/// --dry-run lists exactly what would go, and changes nothing; only --yes deletes it. Open sessions whose owner is gone
/// are told of, and stay unless --state owner-gone asks for them.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  hermes-state prune --older-than 30d --dry-run\n  hermes-state prune --older-than 7d --source cron --yes\n  hermes-state prune --older-than 1d --state empty,owner-gone --yes\n  hermes-state prune --policy retention.json --dry-run --json"
)]
pub(crate) struct Arguments {
    /// Began longer ago than this: a number and s, m, h, d or w; open ones have been silent for so long, too
    #[arg(long, value_name = "AGE", value_parser = |text: &str| age_from_text(text), required_unless_present = "policy")]
    older_than: Option<Duration>,
    /// Only those from this source; may be given several times
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    source: Vec<String>,
    /// None from this source; may be given several times
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    except_source: Vec<String>,
    /// Those in any of these states, separated by commas; ended and archived ones, if none is named
    #[arg(
        long,
        value_name = "STATE",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(SessionState::ALL.map(SessionState::name))
    )]
    state: Vec<String>,
    /// What this file of JSON names: {"rules": [{"older_than": "30d", "states": […], "sources": […], "except_sources": […]}]}
    #[arg(long, value_name = "FILE", conflicts_with_all = ["older_than", "source", "except_source", "state"])]
    policy: Option<PathBuf>,
    /// Only list what would be deleted
    #[arg(long)]
    dry_run: bool,
    /// Delete without a dry run before
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let policy = policy(arguments)?;
    if !arguments.dry_run && !arguments.yes {
        return Err(CommandError::new(Kind::Usage, "nothing was deleted: a prune cannot be undone")
            .hint("See with --dry-run what would go, and say --yes to delete it."));
    }
    let looked = store::look(global)?;
    let location = looked.location();
    let Some(looking) = looked.db.as_ref() else {
        if arguments.dry_run {
            return write(out, &location, &RetentionPlan::default(), None).inspect(|()| looked.note_if_missing());
        }
        return Err(CommandError::new(Kind::NotFound, looked.missing()));
    };
    if arguments.dry_run {
        return write(out, &location, &looking.plan_retention(&policy)?, None);
    }
    drop(looked);
    let db = store::open(global, None)?;
    let report = db.apply_retention(&policy, None)?;
    write(out, &location, &report.plan, Some(report.deleted))
}

fn policy(arguments: &Arguments) -> Result<RetentionPolicy, CommandError> {
    if let Some(path) = &arguments.policy {
        #[expect(clippy::disallowed_methods, reason = "a policy, which is no store")]
        let text = std::fs::read_to_string(path).map_err(|error| {
            let kind = if error.kind() == io::ErrorKind::NotFound { Kind::NotFound } else { Kind::Usage };
            CommandError::new(kind, format!("the policy {} cannot be read: {error}", path.display()))
        })?;
        return RetentionPolicy::from_json(&text).map_err(|error| {
            CommandError::new(Kind::Usage, format!("{}: {error}", path.display())).hint("Nothing was changed.")
        });
    }
    let mut rule = RetentionRule::older_than(arguments.older_than.unwrap_or_default());
    let states: Vec<SessionState> = arguments.state.iter().filter_map(|name| SessionState::from_name(name)).collect();
    if !states.is_empty() {
        rule.states = states;
    }
    rule.sources.clone_from(&arguments.source);
    rule.except_sources.clone_from(&arguments.except_source);
    Ok(RetentionPolicy::of(rule))
}

/// `deleted` is absent of a dry run.
fn write(out: &mut Output, store: &str, plan: &RetentionPlan, deleted: Option<usize>) -> Result<(), CommandError> {
    if out.json {
        return out.document(&json!({
            "store": store,
            "dry_run": deleted.is_none(),
            "deleted": deleted.unwrap_or_default(),
            "sessions": plan.sessions.iter().map(planned).collect::<Vec<_>>(),
            "chosen": plan.chosen(),
            "messages": plan.messages(),
            "bytes": plan.bytes(),
            "owner_gone": plan.owner_gone.iter().map(left).collect::<Vec<_>>(),
            "open": plan.open.iter().map(left).collect::<Vec<_>>(),
        }));
    }
    if deleted.is_none() && !plan.sessions.is_empty() {
        out.table(&["ID", "SOURCE", "STARTED", "MESSAGES", "BYTES", "TITLE"], plan.sessions.iter().map(row).collect())?;
    }
    let count = |count: i64| thousands(u64::try_from(count).unwrap_or_default());
    let (messages, size) = (count(plan.messages()), bytes(u64::try_from(plan.bytes()).unwrap_or_default()));
    let delegates = plan.sessions.len() - plan.chosen();
    let along = if delegates > 0 { format!(" and {delegates} that they delegated") } else { String::new() };
    match deleted {
        None => {
            writeln!(out, "would delete {} session(s){along}: {messages} message(s), {size} of text", plan.chosen())?;
        }
        Some(deleted) => {
            writeln!(out, "deleted {deleted} session(s){along}: {messages} message(s), {size} of text")?;
        }
    }
    for session in &plan.owner_gone {
        note(&format!("{} is open, owner gone; it stays unless --state owner-gone asks for it", session.id()));
    }
    if !plan.open.is_empty() {
        note(&format!("{} open session(s) of this age stay: their owners may be there", plan.open.len()));
    }
    Ok(())
}

fn planned(session: &PlannedSession) -> Json {
    json!({
        "id": session.id,
        "source": session.source,
        "title": session.title,
        "started_at": session.started_at.and_then(times::rfc3339),
        "ended_at": session.ended_at.and_then(times::rfc3339),
        "archived": session.archived,
        "messages": session.messages,
        "bytes": session.bytes,
        "delegated_by": session.delegated_by,
    })
}

fn left(session: &Session) -> Json {
    json!({
        "id": session.id(),
        "source": session.source(),
        "title": session.title(),
        "started_at": times::rfc3339(session.started_at()),
        "messages": session.message_count(),
    })
}

fn row(session: &PlannedSession) -> Vec<String> {
    vec![
        one_line(&session.id, 80),
        one_line(session.source.as_deref().unwrap_or_default(), 20),
        session.started_at.map(times::local).unwrap_or_default(),
        session.messages.to_string(),
        session.bytes.to_string(),
        one_line(session.title.as_deref().unwrap_or_default(), 40),
    ]
}
