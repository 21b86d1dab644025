//! What an error of a statement means, by SQLSTATE and kind of error, never by words.
//!
//! Callers of the SQLite store match on its texts and codes, so refusals by constraints and types come in those.

use std::error::Error as _;
use std::io;

use tokio_postgres::error::{DbError, Severity, SqlState};

use super::url::Address;
use super::values::Unfit;
use crate::error::{Error, ServerTrouble};

const SQLITE_ERROR: i32 = 1;
pub(super) const SQLITE_INTERRUPT: i32 = 9;
const SQLITE_CORRUPT: i32 = 11;
const SQLITE_TOOBIG: i32 = 18;
/// SQLite's code for a value of a type that the column cannot hold.
pub(super) const SQLITE_MISMATCH: i32 = 20;
const CONSTRAINT_CHECK: i32 = 275;
const CONSTRAINT_FOREIGN_KEY: i32 = 787;
const CONSTRAINT_NOT_NULL: i32 = 1299;
const CONSTRAINT_PRIMARY_KEY: i32 = 1555;
const CONSTRAINT_UNIQUE: i32 = 2067;

/// What to do about a statement that failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection is of no use any more, or leads to a server that cannot write: connect anew. The text says why.
    Lost(String),
    /// The server undid the transaction in favour of another; run it again.
    Retry,
    /// Another session held a lock for longer than `lock_timeout`.
    Locked,
    /// Trying again would not help.
    Failed(Error),
}

/// The first input or output error behind an error.
pub(super) fn io_error(error: &tokio_postgres::Error) -> Option<&io::Error> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return Some(io);
        }
        source = cause.source();
    }
    None
}

/// The whole chain of an error as one text; `tokio_postgres` shows only what it was doing.
pub(super) fn text(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return db.message().to_owned();
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Tells what an error of a statement means for the store at `address`.
pub(crate) fn classify(address: &Address, error: &tokio_postgres::Error) -> Failure {
    if let Some(db) = error.as_db_error() {
        return classify_answer(address, db);
    }
    if error.is_closed() {
        return Failure::Lost("the server closed the connection".to_owned());
    }
    if let Some(unfit) = error.source().and_then(|source| source.downcast_ref::<Unfit>()) {
        return Failure::Failed(unfit_error(unfit));
    }
    match io_error(error).map(io::Error::kind) {
        // What the client itself refuses to send, such as a statement with a NUL in it: it would fail again.
        Some(io::ErrorKind::InvalidInput) | None => Failure::Failed(engine(text(error), 0)),
        Some(_) => Failure::Lost(text(error)),
    }
}

fn unfit_error(unfit: &Unfit) -> Error {
    match unfit {
        Unfit::TooBig => engine("string or blob too big".to_owned(), SQLITE_TOOBIG),
        Unfit::Parameter(_) => Error::Constraint { message: unfit.to_string(), code: SQLITE_MISMATCH },
        Unfit::Column(_) => engine(unfit.to_string(), 0),
    }
}

fn engine(message: String, code: i32) -> Error {
    Error::Engine { message, code }
}

fn classify_answer(address: &Address, db: &DbError) -> Failure {
    let state = db.code().code();
    let told = || format!("{} (SQLSTATE {state})", db.message());
    if ends_connection(db) {
        return Failure::Lost(told());
    }
    let path = || address.to_string().into();
    let constraint = |message: String, code| Failure::Failed(Error::Constraint { message, code });
    match state {
        "40001" | "40P01" => Failure::Retry,
        "55P03" => Failure::Locked,
        "23503" => constraint("FOREIGN KEY constraint failed".to_owned(), CONSTRAINT_FOREIGN_KEY),
        "23505" => {
            let code = if names_primary_key(db) { CONSTRAINT_PRIMARY_KEY } else { CONSTRAINT_UNIQUE };
            constraint(format!("UNIQUE constraint failed: {}", key_columns(db)), code)
        }
        "23502" => {
            let column = format!("{}.{}", db.table().unwrap_or("?"), db.column().unwrap_or("?"));
            constraint(format!("NOT NULL constraint failed: {column}"), CONSTRAINT_NOT_NULL)
        }
        "23514" => {
            let name = db.constraint().unwrap_or("?");
            constraint(format!("CHECK constraint failed: {name}"), CONSTRAINT_CHECK)
        }
        _ if state.starts_with("22") => constraint(format!("datatype mismatch: {}", told()), SQLITE_MISMATCH),
        "53100" => Failure::Failed(Error::Full { path: path() }),
        "42501" => Failure::Failed(no_rights(address, "read or write what it needs", db.message())),
        "57014" => Failure::Failed(engine(
            format!(
                "the server stopped the statement, which ran longer than statement_timeout allows or was cancelled: {}",
                told()
            ),
            SQLITE_INTERRUPT,
        )),
        "XX001" | "XX002" => {
            Failure::Failed(Error::Corrupt { path: path(), message: told(), part: None, code: SQLITE_CORRUPT })
        }
        "42P01" | "3F000" => Failure::Failed(engine(
            format!(
                "{}: a table of the store is not there; if its schema was dropped or is being restored, open the store again \
                 when it is back",
                told()
            ),
            SQLITE_ERROR,
        )),
        "42601" | "42703" | "42883" => Failure::Failed(engine(told(), SQLITE_ERROR)),
        _ => Failure::Failed(engine(told(), 0)),
    }
}

/// Whether the server is done with this connection, or it is with the wrong server.
fn ends_connection(db: &DbError) -> bool {
    let state = db.code();
    // Another release changed a table under a prepared statement: a new connection has none.
    let stale_plan = *state == SqlState::FEATURE_NOT_SUPPORTED && db.routine() == Some("RevalidateCachedQuery");
    // 26000: the prepared statement is unknown, so somebody in between has changed the server connection.
    let gone = ["57P01", "57P02", "57P03", "57P05", "25P03", "25006", "40003", "26000"].contains(&state.code());
    let fatal = matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
    fatal || gone || stale_plan || state.code().starts_with("08")
}

/// The error for rights that are missing.
pub(super) fn no_rights(address: &Address, what: &'static str, message: &str) -> Error {
    let trouble = ServerTrouble::NoRights { schema: address.schema().to_owned(), what, message: message.to_owned() };
    server(address, trouble)
}

/// The error for trouble with the server of a store.
pub(crate) fn server(address: &Address, trouble: ServerTrouble) -> Error {
    Error::Server { path: address.to_string().into(), trouble }
}

/// The server names the index; ours have the names that it gives primary keys by itself.
fn names_primary_key(db: &DbError) -> bool {
    db.constraint().is_some_and(|name| name.ends_with("_pkey"))
}

/// `table.column, table.column`, as SQLite lists them. The server's detail has them as `(column, column)=(values)` in
/// every language; users who may not see the values get no detail, and then the index is named.
fn key_columns(db: &DbError) -> String {
    let table = db.table().unwrap_or("?");
    let columns = db.detail().and_then(|detail| {
        let (_, columns) = detail.split_once('(')?;
        Some(columns.split_once(")=(")?.0)
    });
    match columns {
        Some(columns) => columns.split(", ").map(|column| format!("{table}.{column}")).collect::<Vec<_>>().join(", "),
        None => format!("{table}.{}", db.constraint().unwrap_or("?")),
    }
}

#[cfg(test)]
#[path = "errors_tests.rs"]
mod tests;
