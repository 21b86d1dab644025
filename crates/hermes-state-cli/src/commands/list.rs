//! `list`: the sessions of the store, the latest first.

use clap::Args;
use hermes_state::{Session, SessionQuery};
use serde_json::{Value as Json, json};

use crate::arguments::Global;
use crate::error::CommandError;
use crate::output::Output;
use crate::text::one_line;
use crate::{store, times, view};

/// List the sessions, the latest active first
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  hermes-state list --limit 5\n  hermes-state list --source telegram --titled harbour --json"
)]
pub(crate) struct Arguments {
    /// At most so many; -1 for all
    #[arg(long, value_name = "N", default_value_t = 20, allow_negative_numbers = true)]
    limit: i64,
    /// Leave out so many of the first
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: i64,
    /// Only those from this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Only those whose title or id contains this text
    #[arg(long, value_name = "TEXT")]
    titled: Option<String>,
    /// Also sub-agents, continuations and archived ones
    #[arg(long)]
    all: bool,
    /// Only archived ones
    #[arg(long)]
    archived: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let looked = store::look(global)?;
    let sessions = match &looked.db {
        Some(db) => db.list_sessions(&query(arguments))?,
        None => Vec::new(),
    };
    if out.json {
        let sessions: Vec<Json> = sessions.iter().map(view::session).collect();
        return out.document(&json!({ "store": looked.location(), "sessions": sessions }));
    }
    looked.note_if_missing();
    if sessions.is_empty() {
        return Ok(());
    }
    let header = ["ID", "SOURCE", "STARTED", "MESSAGES", "TITLE", "PREVIEW"];
    out.table(&header, sessions.iter().map(row).collect())
}

fn query(arguments: &Arguments) -> SessionQuery {
    SessionQuery {
        source: arguments.source.clone(),
        limit: arguments.limit,
        offset: arguments.offset,
        include_children: arguments.all,
        include_archived: arguments.all || arguments.archived,
        archived_only: arguments.archived,
        search_query: arguments.titled.clone(),
        order_by_last_active: true,
        compact_rows: true,
        ..SessionQuery::default()
    }
}

fn row(session: &Session) -> Vec<String> {
    vec![
        one_line(session.id(), 60),
        one_line(session.source(), 20),
        times::local(session.started_at()),
        session.message_count().to_string(),
        one_line(session.title().unwrap_or_default(), 40),
        one_line(session.preview().unwrap_or_default(), 50),
    ]
}
