//! `spool`: messages that the store could not take when they were recorded.

use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, Subcommand};
use hermes_state::{ReplayReport, Spool, SpoolStatus, SpooledWrite, Ticket, Value};
use serde_json::{Value as Json, json};

use crate::arguments::Global;
use crate::error::{CommandError, Kind};
use crate::output::Output;
use crate::store;
use crate::text::{bytes, visible};
use crate::times;
use crate::times::seconds;
use crate::view::scalar;

const EXAMPLES: &str = "Examples:
  hermes-state spool list
  hermes-state spool replay --json
  hermes-state spool discard --all --yes";

/// Look at, store or drop messages that the store could not take
///
/// They are in the folder state.db-spool beside the store, those for a server in spool in $HERMES_HOME. Whoever records
/// next stores them first, so that mostly there is nothing to do.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List what is spooled, in the order in which it will be stored
    List,
    /// Show one spooled write with its messages
    Show {
        /// Its name, as `list` shows it
        ticket: String,
    },
    /// Store what is spooled
    Replay {
        /// Also try once more what the store has refused
        #[arg(long)]
        refused: bool,
        /// How long to wait for other processes: 60, if not given
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        patience: Option<Duration>,
    },
    /// Drop spooled writes for good
    Discard {
        /// Their names, as `list` shows them
        tickets: Vec<String>,
        /// Everything, also what cannot be read
        #[arg(long, conflicts_with = "tickets")]
        all: bool,
        /// Confirms that these messages are to be lost
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) fn run(arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    match &arguments.action {
        Action::List => list(global, out),
        Action::Show { ticket } => show(&ticket.parse()?, global, out),
        Action::Replay { refused, patience } => replay(*refused, *patience, global, out),
        Action::Discard { tickets, all, yes } => discard(tickets, *all, *yes, global, out),
    }
}

fn spool(global: &Global) -> Result<Spool, CommandError> {
    let no_place = || {
        CommandError::new(Kind::Usage, "there is no folder for a spool of this store")
            .hint("Name the home folder by HERMES_HOME.")
    };
    store::spool(global)?.ok_or_else(no_place)
}

/// What a spool holds, for programs.
pub(crate) fn status_view(status: &SpoolStatus) -> Json {
    json!({
        "folder": store::shown(&status.folder),
        "waiting": status.writes,
        "bytes": status.bytes,
        "oldest": status.oldest.and_then(time),
        "refused": status.refused,
        "damaged": status.damaged,
    })
}

/// The same for people; `None` if there is nothing to tell.
pub(crate) fn describe_status(status: &SpoolStatus) -> Option<String> {
    if status.writes + status.refused + status.damaged == 0 {
        return None;
    }
    let mut text = format!("{} waiting ({})", status.writes, bytes(status.bytes));
    if status.refused > 0 {
        text.push_str(&format!(", {} refused by the store", status.refused));
    }
    if status.damaged > 0 {
        text.push_str(&format!(", {} that cannot be read", status.damaged));
    }
    text.push_str(": see `hermes-state spool list`");
    Some(text)
}

fn time(ticket: Ticket) -> Option<String> {
    times::rfc3339(ticket.time().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
}

fn write_view(write: &SpooledWrite) -> Json {
    json!({
        "ticket": write.ticket().to_string(),
        "spooled_at": time(write.ticket()),
        "session_id": scalar(write.session_id()),
        "message_count": write.rows().len(),
        "perhaps_stored": write.is_perhaps_stored(),
        "refused": write.refused(),
    })
}

fn list(global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let spool = spool(global)?;
    let (status, writes) = (spool.status()?, spool.writes()?);
    if out.json {
        let mut view = status_view(&status);
        view["store"] = store::shown(spool.location()).into();
        view["writes"] = writes.iter().map(write_view).collect();
        return out.document(&view);
    }
    let rows = writes.iter().map(|write| {
        let session = match write.session_id() {
            Value::Text(id) => visible(id).into_owned(),
            other => scalar(other).to_string(),
        };
        let refused = write.refused().map(|reason| format!("refused: {}", visible(reason)));
        vec![
            write.ticket().to_string(),
            time(write.ticket()).unwrap_or_default(),
            session,
            write.rows().len().to_string(),
            refused.unwrap_or_else(|| "waiting".to_owned()),
        ]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        out.table(&["ticket", "spooled", "session", "messages", "state"], rows)?;
    }
    if status.damaged > 0 {
        crate::output::note(&format!("{} records in {} cannot be read", status.damaged, status.folder.display()));
    }
    Ok(())
}

fn show(ticket: &Ticket, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let spool = spool(global)?;
    let writes = spool.writes()?;
    let Some(write) = writes.iter().find(|write| write.ticket() == *ticket) else { return Err(unknown(ticket)) };
    let rows = write.rows();
    if out.json {
        let mut view = write_view(write);
        view["store"] = store::shown(spool.location()).into();
        view["messages"] = rows
            .iter()
            .map(|row| row.iter().map(|(column, value)| ((*column).to_owned(), scalar(value))).collect::<Json>())
            .collect();
        return out.document(&view);
    }
    let lines = rows.iter().map(|row| {
        let column = |name: &str| row.iter().find(|(column, _)| *column == name).map(|(_, value)| value);
        let text = |name| column(name).and_then(Value::as_str).map(|text| visible(text).into_owned());
        vec![format!("{}:", text("role").unwrap_or_default()), text("content").unwrap_or_default()]
    });
    out.table(&[], lines.collect())
}

fn unknown(ticket: &Ticket) -> CommandError {
    CommandError::new(Kind::NotFound, format!("nothing is spooled under {ticket}"))
        .hint("`hermes-state spool list` shows what is; what is not there any more is stored, or was discarded.")
}

fn replay(refused: bool, patience: Option<Duration>, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let spool = spool(global)?;
    let report = if spool.folder().exists() {
        // With a spool of its own the opening would have stored everything, and nothing would be left to tell.
        store::open(global, patience)?.replay_spool_of(&spool, refused)?
    } else {
        ReplayReport::default()
    };
    if out.json {
        let refused =
            report.refused.iter().map(|(ticket, reason)| json!({ "ticket": ticket.to_string(), "reason": reason }));
        out.document(&json!({
            "store": store::shown(spool.location()),
            "stored": report.stored,
            "found_stored": report.found_stored,
            "refused": refused.collect::<Vec<_>>(),
        }))?;
    } else {
        let rows = [
            ("stored", report.stored.to_string()),
            ("found stored", report.found_stored.to_string()),
            ("refused", report.refused.len().to_string()),
        ];
        out.table(&[], rows.map(|(name, value)| vec![name.to_owned(), value]).to_vec())?;
    }
    match report.refused.first() {
        None => Ok(()),
        Some((ticket, reason)) => Err(CommandError::new(
            Kind::Refused,
            format!("the store refuses {} spooled writes, such as {ticket}: {reason}", report.refused.len()),
        )
        .hint(
            "They are kept: `hermes-state spool show TICKET`, then `spool replay --refused` or `spool discard TICKET`.",
        )),
    }
}

fn discard(tickets: &[String], all: bool, yes: bool, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let spool = spool(global)?;
    let tickets = tickets.iter().map(|ticket| ticket.parse()).collect::<Result<Vec<Ticket>, _>>()?;
    if tickets.is_empty() && !all {
        return Err(CommandError::new(Kind::Usage, "name tickets, or --all"));
    }
    if !yes {
        return Err(CommandError::new(Kind::Usage, "nothing was dropped: these messages would be lost for good")
            .hint("Say --yes to drop them."));
    }
    let mut discarded = 0;
    if all {
        discarded = spool.discard_all()?;
    }
    for ticket in &tickets {
        if !spool.discard(*ticket)? {
            return Err(unknown(ticket));
        }
        discarded += 1;
    }
    if out.json {
        return out.document(&json!({ "store": store::shown(spool.location()), "discarded": discarded }));
    }
    out.table(&[], vec![vec!["discarded".to_owned(), discarded.to_string()]])
}
