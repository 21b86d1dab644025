//! `status`: what the store is made of, and who has it open.

use std::time::UNIX_EPOCH;

use hermes_state::{EngineStatus, Status, User};
use serde_json::{Value as Json, json};

use crate::arguments::Global;
use crate::commands::spool;
use crate::error::CommandError;
use crate::output::{Output, note};
use crate::store;
use crate::text::{bytes, thousands, visible};
use crate::times;

pub(crate) fn run(global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let spool = store::spool(global)?.map(|spool| spool.status()).transpose()?;
    let looked = store::look(global)?;
    let Some(db) = &looked.db else {
        if out.json {
            let spool = spool.as_ref().map(spool::status_view);
            return out.document(&json!({ "store": looked.location(), "exists": false, "spool": spool }));
        }
        looked.note_if_missing();
        if let Some(told) = spool.as_ref().and_then(spool::describe_status) {
            note(&format!("spool: {told}"));
        }
        return Ok(());
    };
    let status = db.status()?;
    if out.json {
        let mut view = view(&status);
        view["spool"] = spool.as_ref().map(spool::status_view).into();
        return out.document(&view);
    }
    write(out, &status, spool.as_ref().and_then(spool::describe_status))
}

/// A process that has a store open, for programs.
pub(crate) fn user_view(user: &User) -> Json {
    json!({
        "pid": user.pid,
        "host": user.host,
        "program": user.program,
        "since": since(user).and_then(times::rfc3339),
        "takes_turns": user.takes_turns,
        "operation": user.operation,
        "waiting_seconds": user.waiting.map(|time| time.as_secs_f64()),
        "holds_write_lock": user.holds_write_lock,
        "holding_seconds": user.holding.map(|time| time.as_secs_f64()),
    })
}

/// When it opened the store, in seconds since the epoch.
fn since(user: &User) -> Option<f64> {
    user.open_since.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map(|time| time.as_secs_f64())
}

/// The same for people.
pub(crate) fn describe_user(user: &User, on_server: bool) -> String {
    if on_server { describe_connection(user) } else { describe(user) }
}

fn view(status: &Status) -> Json {
    let open_by = status.open_by.iter().map(user_view);
    let mut view = json!({ "store": store::shown(&status.path), "exists": true });
    let engine = match &status.engine {
        EngineStatus::File { main_bytes, wal_bytes, shm_bytes, journal_mode, lock_kind, .. } => json!({
            "engine": "sqlite",
            "main_bytes": main_bytes,
            "wal_bytes": wal_bytes,
            "shm_bytes": shm_bytes,
            "journal_mode": journal_mode,
            "lock_kind": lock_kind.name(),
        }),
        EngineStatus::Server { version, schema, bytes, encrypted, .. } => json!({
            "engine": "postgresql",
            "server_version": version,
            "schema": schema,
            "bytes": bytes,
            "encrypted": encrypted,
        }),
        _ => json!({}),
    };
    let rest = json!({
        "schema_version": status.schema_version,
        "sessions": status.sessions,
        "messages": status.messages,
        "open_by": open_by.collect::<Vec<Json>>(),
    });
    for part in [engine, rest] {
        if let (Some(view), Json::Object(part)) = (view.as_object_mut(), part) {
            view.extend(part);
        }
    }
    view
}

fn write(out: &mut Output, status: &Status, spool: Option<String>) -> Result<(), CommandError> {
    let count = |number: i64| thousands(number.unsigned_abs());
    let schema = status.schema_version.map_or_else(|| "none".to_owned(), |version| version.to_string());
    let mut rows = vec![("store", visible(&store::shown(&status.path)).into_owned())];
    match &status.engine {
        EngineStatus::File { main_bytes, wal_bytes, shm_bytes, journal_mode, lock_kind, .. } => rows.extend([
            ("size", bytes(*main_bytes)),
            ("log", format!("{} (-wal), {} (-shm)", bytes(*wal_bytes), bytes(*shm_bytes))),
            ("journal mode", journal_mode.clone()),
            ("locks", lock_kind.name().to_owned()),
        ]),
        EngineStatus::Server { version, schema, bytes: size, encrypted, .. } => rows.extend([
            ("server", format!("PostgreSQL {}", visible(version))),
            ("schema", schema.clone()),
            ("size", bytes(*size)),
            ("encrypted", if *encrypted { "yes" } else { "no" }.to_owned()),
        ]),
        _ => {}
    }
    rows.extend([
        ("schema version", schema),
        ("sessions", count(status.sessions)),
        ("messages", count(status.messages)),
    ]);
    rows.extend(spool.map(|told| ("spool", told)));
    let on_server = matches!(status.engine, EngineStatus::Server { .. });
    let (label, nobody) = if on_server { ("connected", "nobody else") } else { ("open in", "no other process") };
    if status.open_by.is_empty() {
        rows.push((label, nobody.to_owned()));
    }
    rows.extend(status.open_by.iter().map(|user| (label, describe_user(user, on_server))));
    out.table(&[], rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect())
}

/// A connection to the server's database; there is no lock on the whole of a store on a server.
fn describe_connection(user: &User) -> String {
    let mut text = visible(user.program.as_deref().unwrap_or("a program without a name")).into_owned();
    text.push_str(&format!(" from {}", visible(user.host.as_deref().unwrap_or("the server's own host"))));
    text.push_str(&format!(", served by process {}", user.pid));
    if let Some(time) = user.waiting {
        text.push_str(&format!(", has waited for a lock for up to {:.1} s", time.as_secs_f64()));
    } else if let Some(time) = user.holding {
        text.push_str(&format!(", has been writing for {:.1} s", time.as_secs_f64()));
    }
    text
}

/// A process that has the file open.
fn describe(user: &User) -> String {
    let mut text = format!("pid {}", user.pid);
    if let Some(program) = &user.program {
        text.push_str(&format!(" ({})", visible(program)));
    }
    if !user.takes_turns {
        text.push_str(", an older release or another program");
    }
    if let Some(time) = since(user) {
        text.push_str(&format!(", since {}", times::local(time)));
    }
    let operation = user.operation.as_deref().map(|operation| format!(" for {operation}")).unwrap_or_default();
    if let Some(time) = user.holding {
        text.push_str(&format!(", has held the write lock{operation} for {:.1} s", time.as_secs_f64()));
    } else if user.holds_write_lock {
        text.push_str(", holds the write lock");
    } else if let Some(time) = user.waiting {
        text.push_str(&format!(", has waited for the write lock{operation} for {:.1} s", time.as_secs_f64()));
    }
    text
}
