//! `search`: the messages that contain some words.

use std::io::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use clap::{Args, ValueEnum};
use hermes_state::{SearchHit, SearchOptions, SearchResults, SearchSort};
use serde_json::{Value as Json, json};

use crate::arguments::Global;
use crate::error::CommandError;
use crate::output::{Output, note};
use crate::text::{one_line, visible};
use crate::{store, times};

/// Search the messages of all sessions
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  hermes-state search harbour crane\n  hermes-state search '\"exit code 137\"' --role tool --sort newest\n  hermes-state search 西湖 OR 灵隐 --json"
)]
pub(crate) struct Arguments {
    /// Words that a message must contain; "…" for a phrase; OR, NOT and a closing * are understood
    #[arg(value_name = "QUERY", required = true)]
    query: Vec<String>,
    /// At most so many hits; -1 for all
    #[arg(long, value_name = "N", default_value_t = 20, allow_negative_numbers = true)]
    limit: i64,
    /// Leave out so many of the first hits
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: i64,
    /// Only sessions from this source; may be repeated
    #[arg(long, value_name = "NAME")]
    source: Vec<String>,
    /// No sessions from this source; may be repeated
    #[arg(long, value_name = "NAME")]
    exclude_source: Vec<String>,
    /// Only messages of this role; may be repeated
    #[arg(long, value_name = "ROLE")]
    role: Vec<String>,
    /// The order of the hits: the best first, if not given
    #[arg(long, value_name = "ORDER")]
    sort: Option<Sort>,
    /// Also messages that were taken back
    #[arg(long)]
    inactive: bool,
    /// End the search then, with what it has found by that time
    #[arg(long, value_name = "SECONDS", value_parser = times::seconds)]
    timeout: Option<Duration>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Sort {
    Newest,
    Oldest,
}

pub(crate) fn run(arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let looked = store::look(global)?;
    let results = match &looked.db {
        Some(db) => db.search_messages(&arguments.query.join(" "), &options(arguments))?,
        None => SearchResults::default(),
    };
    if out.json {
        let hits: Vec<Json> = results.iter().map(view).collect();
        return out.document(&json!({
            "store": looked.location(),
            "hits": hits,
            "degraded": results.degraded,
            "partial": results.partial,
        }));
    }
    looked.note_if_missing();
    if results.degraded {
        note("the search index is missing or damaged; these hits come from reading the messages themselves");
    }
    if results.partial {
        note("the search was ended before it had seen every message; there may be more hits");
    }
    if results.is_empty() && looked.db.is_some() {
        note("no message matches");
    }
    results.iter().try_for_each(|hit| write_hit(out, hit))
}

fn options(arguments: &Arguments) -> SearchOptions {
    SearchOptions {
        source_filter: Some(arguments.source.clone()).filter(|sources| !sources.is_empty()),
        exclude_sources: arguments.exclude_source.clone(),
        role_filter: arguments.role.clone(),
        limit: arguments.limit,
        offset: arguments.offset,
        sort: arguments.sort.map(|sort| match sort {
            Sort::Newest => SearchSort::Newest,
            Sort::Oldest => SearchSort::Oldest,
        }),
        include_inactive: arguments.inactive,
        timeout: arguments.timeout,
    }
}

fn view(hit: &SearchHit) -> Json {
    let context: Vec<Json> =
        hit.context.iter().map(|near| json!({ "role": near.role, "content": near.content })).collect();
    json!({
        "message_id": hit.id,
        "session_id": hit.session_id,
        "role": hit.role,
        "snippet": hit.snippet,
        "timestamp": times::rfc3339(hit.timestamp),
        "tool_name": hit.tool_name,
        "source": hit.source,
        "model": hit.model,
        "session_started": times::rfc3339(hit.session_started),
        "context": context,
    })
}

/// Writes a hit for people: where it is, the words found, and what was said before and after.
pub(crate) fn write_hit(out: &mut Output, hit: &SearchHit) -> Result<(), CommandError> {
    let (bold, dim) = (Style::new().bold(), Style::new().dimmed());
    let when = times::local(hit.timestamp);
    let (session, source) = (one_line(&hit.session_id, 80), one_line(&hit.source, 20));
    writeln!(out, "{bold}{session}{bold:#}  {dim}{source}  {when}  #{}{dim:#}", hit.id)?;
    let snippet = one_line(hit.snippet.as_deref().unwrap_or_default(), 400);
    let snippet = if out.coloured { highlighted(&snippet) } else { snippet };
    writeln!(out, "  {}: {snippet}", visible(&hit.role))?;
    // The hit itself is among its neighbours, and was just shown.
    let said = hit.snippet.as_deref().unwrap_or_default().replace(">>>", "").replace("<<<", "");
    let said = said.trim_matches('.').trim();
    for near in hit.context.iter().filter(|near| !near.content.contains(said)) {
        writeln!(out, "  {dim}{}: {}{dim:#}", visible(&near.role), one_line(&near.content, 100))?;
    }
    Ok(writeln!(out)?)
}

/// The snippet with colour where the store put `>>>` and `<<<` round the words found.
fn highlighted(snippet: &str) -> String {
    let style = AnsiColor::Yellow.on_default().bold();
    snippet.replace(">>>", &style.render().to_string()).replace("<<<", &style.render_reset().to_string())
}
