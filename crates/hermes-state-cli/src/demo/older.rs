//! The process of the demonstration that uses the store as an older release does: through SQLite alone, with its
//! ordinary locks, knowing nothing of tickets and siblings.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use rusqlite::{Connection, TransactionBehavior};
use serde::{Deserialize, Serialize};

use crate::error::{CommandError, Kind};

/// How often it holds the write lock, how long, and how long it rests before.
const HOLDS: usize = 2;
const HOLD: Duration = Duration::from_secs(3);
const REST: Duration = Duration::from_millis(1500);
/// How long it asks for the lock.
const PATIENCE: Duration = Duration::from_secs(20);
/// The session of its own messages.
pub(crate) const SESSION: &str = "demo-older";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    path: PathBuf,
    /// Only look the finished store over
    #[arg(long)]
    check: bool,
}

/// What it tells its parent, one JSON object a line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    Holding,
    Wrote(Wrote),
    Checkpointed,
    Checked(Checked),
}

/// A message it wrote during a hold.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Wrote {
    pub(crate) id: i64,
    pub(crate) text: String,
    /// How long it held the write lock, in milliseconds.
    pub(crate) held_ms: u64,
}

/// What another SQLite connection sees of the finished store.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Checked {
    pub(crate) integrity: String,
    pub(crate) messages: i64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandError> {
    let act = if arguments.check { check } else { disturb };
    let connection = Connection::open(&arguments.path).map_err(failed)?;
    act(connection)
}

fn failed(error: rusqlite::Error) -> CommandError {
    CommandError::new(Kind::Refused, error.to_string())
}

fn tell(told: &Told) -> Result<(), CommandError> {
    Ok(writeln!(io::stdout().lock(), "{}", serde_json::to_string(told)?)?)
}

fn disturb(mut connection: Connection) -> Result<(), CommandError> {
    connection.busy_timeout(Duration::from_secs(1)).map_err(failed)?;
    for number in 1..=HOLDS {
        sleep(REST);
        hold(&mut connection, number)?;
        // The answer says how far it got; how far is not this process's business.
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(failed)?;
        tell(&Told::Checkpointed)?;
    }
    Ok(())
}

/// Takes the write lock, writes a message, and sits on the lock.
fn hold(connection: &mut Connection, number: usize) -> Result<(), CommandError> {
    let deadline = Instant::now() + PATIENCE;
    let transaction = loop {
        match rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate) {
            Err(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && Instant::now() < deadline => {}
            taken => break taken.map_err(failed)?,
        }
    };
    let held = Instant::now();
    tell(&Told::Holding)?;
    let text = format!("Written by an older release during hold {number}");
    transaction
        .execute(
            "INSERT OR IGNORE INTO sessions (id, source, started_at) VALUES (?1, 'cli', unixepoch('subsec'))",
            [SESSION],
        )
        .map_err(failed)?;
    transaction
        .execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?1, 'user', ?2, unixepoch('subsec'))",
            [SESSION, &text],
        )
        .map_err(failed)?;
    let id = transaction.last_insert_rowid();
    transaction
        .execute("UPDATE sessions SET message_count = message_count + 1 WHERE id = ?1", [SESSION])
        .map_err(failed)?;
    sleep(HOLD);
    transaction.commit().map_err(failed)?;
    let held_ms = u64::try_from(held.elapsed().as_millis()).unwrap_or(u64::MAX);
    tell(&Told::Wrote(Wrote { id, text, held_ms }))
}

fn check(connection: Connection) -> Result<(), CommandError> {
    let integrity = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).map_err(failed)?;
    let messages = connection.query_row("SELECT COUNT(*) FROM messages", [], |row| row.get(0)).map_err(failed)?;
    tell(&Told::Checked(Checked { integrity, messages }))
}
