//! `export`: sessions with their messages as JSON lines, one session a line, a page of messages in memory at a time.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use hermes_state::SessionDb;

use super::show::{find, not_found};
use crate::arguments::Global;
use crate::error::{CommandError, Kind};
use crate::output::Output;
use crate::store;

const EXAMPLES: &str = "\
Examples:
  hermes-state export 20260704_101500_ab12cd > session.jsonl
  hermes-state export --lineage 20260704_1015 | gzip > conversation.jsonl.gz
  hermes-state export --all --source telegram --output telegram.jsonl";

/// Write sessions with their messages as JSON, one session a line
///
/// `import` takes them in again, in this store or another one.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Their ids, or the beginnings of them that no others have
    #[arg(value_name = "ID", required_unless_present = "all")]
    ids: Vec<String>,
    /// The whole compressed conversation that each is part of, as one line
    #[arg(long)]
    lineage: bool,
    /// All sessions, the latest active first
    #[arg(long, conflicts_with_all = ["ids", "lineage"])]
    all: bool,
    /// Of all only those from this source
    #[arg(long, value_name = "NAME", requires = "all", conflicts_with = "ids")]
    source: Option<String>,
    /// A new file to write to, instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let looked = store::look(global)?;
    let Some(db) = &looked.db else {
        looked.note_if_missing();
        return match arguments.ids.first() {
            Some(id) => Err(not_found(id)),
            None => Ok(()),
        };
    };
    // Before anything is written: a session that does not exist leaves no file behind.
    let ids = arguments.ids.iter().map(|id| find(db, id).map(|session| session.id().to_owned()));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    match &arguments.output {
        None => write(db, arguments, &ids, out),
        Some(path) => {
            let mut file = BufWriter::new(create(path)?);
            write(db, arguments, &ids, &mut file)?;
            let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            Ok(file.sync_all()?)
        }
    }
}

/// Makes a file that was not there, so that nothing is overwritten, least of all a store.
#[expect(clippy::disallowed_methods, reason = "a file that is new is no store's")]
fn create(path: &Path) -> Result<std::fs::File, CommandError> {
    std::fs::OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let message = format!("{} is there already", store::shown(path));
            CommandError::new(Kind::Refused, message).hint("Name a file that is not there yet.")
        }
        _ => CommandError::new(Kind::Stopped, format!("{}: {error}", store::shown(path))),
    })
}

fn write(db: &SessionDb, arguments: &Arguments, ids: &[String], out: &mut impl Write) -> Result<(), CommandError> {
    if arguments.all {
        for export in db.export_all(arguments.source.as_deref())? {
            line(export?.into_json(), out)?;
        }
    }
    for id in ids {
        if arguments.lineage {
            let export = db.export_session_lineage(id)?.ok_or_else(|| not_found(id))?;
            line(export.into_json(), out)?;
        } else {
            let export = db.export_session(id)?.ok_or_else(|| not_found(id))?;
            line(export.into_json(), out)?;
        }
    }
    Ok(())
}

fn line(pieces: impl Iterator<Item = hermes_state::Result<String>>, out: &mut impl Write) -> Result<(), CommandError> {
    for piece in pieces {
        out.write_all(piece?.as_bytes())?;
    }
    Ok(out.write_all(b"\n")?)
}
