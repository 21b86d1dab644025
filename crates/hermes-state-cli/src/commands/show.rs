//! `show`: the transcript of one session.

use std::io::Write as _;

use anstyle::Style;
use clap::Args;
use hermes_state::{Message, MessageQuery, Session, SessionDb, SessionQuery};
use serde_json::{Value as Json, json};

use crate::arguments::Global;
use crate::error::{CommandError, Kind};
use crate::output::Output;
use crate::text::{indented, one_line, visible};
use crate::{store, times, view};

/// Show the transcript of a session
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  hermes-state show 20260704_101500_ab12cd\n  hermes-state show 20260704_1015 --json"
)]
pub(crate) struct Arguments {
    /// Its id, or the beginning of it that no other has
    #[arg(value_name = "ID")]
    id: String,
    /// At most so many messages
    #[arg(long, value_name = "N")]
    limit: Option<i64>,
    /// Leave out so many of the first messages
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: i64,
    /// Also messages that were taken back or compacted away
    #[arg(long)]
    inactive: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let looked = store::look(global)?;
    let Some(db) = &looked.db else {
        return Err(not_found(&arguments.id).hint(format!("{}.", looked.missing().replacen("there", "There", 1))));
    };
    let session = find(db, &arguments.id)?;
    let query = MessageQuery { include_inactive: arguments.inactive, limit: arguments.limit, offset: arguments.offset };
    let messages = db.messages(session.id(), &query)?;
    if out.json {
        let messages: Vec<Json> = messages.iter().map(view::message).collect();
        let session = view::session(&session);
        return out.document(&json!({ "store": looked.location(), "session": session, "messages": messages }));
    }
    write_session(out, &session)?;
    messages.iter().try_for_each(|message| write_message(out, message))
}

/// The session with this id, or the only one whose id begins so.
pub(crate) fn find(db: &SessionDb, id: &str) -> Result<Session, CommandError> {
    if let Some(session) = db.session(id)? {
        return Ok(session);
    }
    let query = SessionQuery {
        id_query: Some(id.to_owned()),
        order_by_last_active: true,
        include_children: true,
        include_archived: true,
        project_compression_tips: false,
        compact_rows: true,
        limit: -1,
        ..SessionQuery::default()
    };
    let mut found = db.list_sessions(&query)?;
    found.retain(|session| session.id().starts_with(id));
    if found.len() > 1 {
        let ids: Vec<&str> = found.iter().take(8).map(Session::id).collect();
        let message = format!("{} sessions have an id that begins with \"{id}\"", found.len());
        return Err(CommandError::new(Kind::NotFound, message).hint(format!("Among them {}.", ids.join(", "))));
    }
    found.pop().ok_or_else(|| not_found(id).hint("`hermes-state list --all` shows the sessions there are."))
}

/// That there is no such session.
pub(crate) fn not_found(id: &str) -> CommandError {
    CommandError::new(Kind::NotFound, format!("no session has the id \"{id}\", or one that begins so"))
}

fn write_session(out: &mut Output, session: &Session) -> Result<(), CommandError> {
    let bold = Style::new().bold();
    let title = one_line(session.title().unwrap_or("untitled"), 120);
    writeln!(out, "{bold}{title}{bold:#}")?;
    let mut facts = vec![
        session.id().to_owned(),
        session.source().to_owned(),
        times::local(session.started_at()),
        format!("{} messages", session.message_count()),
    ];
    facts.extend(session.model().map(str::to_owned));
    facts.extend(session.end_reason().map(|reason| format!("ended: {reason}")));
    Ok(writeln!(out, "{}", visible(&facts.join("  ")))?)
}

fn write_message(out: &mut Output, message: &Message) -> Result<(), CommandError> {
    let (bold, dim) = (Style::new().bold(), Style::new().dimmed());
    let speaker = match message.tool_name() {
        Some(tool) if message.role() == "tool" => format!("tool {tool}"),
        _ => message.role().to_owned(),
    };
    let when = times::local(message.timestamp());
    writeln!(out, "\n{bold}{}{bold:#}  {dim}{when}  #{}{dim:#}", visible(&speaker), message.id())?;
    match view::content(&message.content()) {
        Json::Null => {}
        Json::String(text) if text.is_empty() => {}
        Json::String(text) => writeln!(out, "{}", indented(&text))?,
        structured => writeln!(out, "{}", indented(&format!("{structured:#}")))?,
    }
    match view::tool_calls(message) {
        Json::Null => {}
        Json::Array(calls) => {
            for call in calls {
                writeln!(out, "    {dim}calls{dim:#} {}", visible(&call.to_string()))?;
            }
        }
        call => writeln!(out, "    {dim}calls{dim:#} {}", visible(&call.to_string()))?,
    }
    Ok(())
}
