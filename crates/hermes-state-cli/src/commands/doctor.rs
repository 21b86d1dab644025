//! `doctor`: what the store stands on, and whether anything about it asks for care.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use hermes_state::{Examination, FileExamination, Finding, Probe, ServerExamination, Severity};
use serde_json::{Value as Json, json};

use crate::arguments::Global;
use crate::commands::{spool, status};
use crate::error::{CommandError, Kind};
use crate::output::Output;
use crate::store::{self, shown};
use crate::text::{bytes, thousands, visible};
use crate::times;

/// Examine the store and what it stands on
///
/// Tells the kind of file system and whether locks and shared memory work there (tried with a file that is gone at once),
/// journal mode, versions, sizes, the log, the search indexes, the spool, free space, permissions, the newest message and who
/// has the store open; of a server its version, how fast it answers and what this role may do. Each finding has one next step.
/// The store itself is only looked at. Whether it is whole is for `check` to say.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  hermes-state doctor\n  hermes-state --db ./state.db doctor --json")]
pub(crate) struct Arguments {}

pub(crate) fn run(_arguments: &Arguments, global: &Global, out: &mut Output) -> Result<(), CommandError> {
    let found = store::examine(global)?;
    if out.json {
        out.document(&view(&found))?;
    } else {
        write(out, &found)?;
    }
    let kind = match found.worst() {
        Some(Severity::Damage) => Kind::Damaged,
        Some(Severity::Problem) => Kind::Stopped,
        _ => return Ok(()),
    };
    let worst = &found.findings[0];
    Err(CommandError::new(kind, format!("{}: {}", shown(&found.location), worst.message)).hint(worst.next_step.clone()))
}

fn view(found: &Examination) -> Json {
    let age = found.newest_message.map(|time| now() - time);
    let findings = found.findings.iter().map(|finding| {
        json!({
            "severity": finding.severity.name(),
            "about": finding.about,
            "message": finding.message,
            "next_step": finding.next_step,
        })
    });
    json!({
        "store": shown(&found.location),
        "exists": found.exists,
        "engine": if found.file.is_some() { "sqlite" } else { "postgresql" },
        "program_version": found.program_version,
        "schema_version": found.schema_version,
        "schema_supported": found.schema_supported,
        "newest_message": found.newest_message.and_then(times::rfc3339),
        "newest_message_age_seconds": age,
        "index": found.index.map(|index| json!({
            "filled": index.filled,
            "unindexed": index.unindexed,
            "degraded": index.degraded,
        })),
        "file": found.file.as_ref().map(file_view),
        "server": found.server.as_ref().map(server_view),
        "spool": found.spool.as_ref().map(spool::status_view),
        "open_by": found.open_by.iter().map(status::user_view).collect::<Vec<_>>(),
        "findings": findings.collect::<Vec<_>>(),
    })
}

fn file_view(file: &FileExamination) -> Json {
    let probe = |probe: &Probe| json!({ "outcome": probe.name(), "reason": probe.reason() });
    let access = file.access.iter().map(|access| {
        json!({
            "path": shown(&access.path),
            "mode": format!("{:04o}", access.mode),
            "owner": access.owner,
            "group": access.group,
        })
    });
    json!({
        "file_system": {
            "kind": file.file_system.kind,
            "mount": file.file_system.mount.as_deref().map(shown),
            "free_bytes": file.file_system.free_bytes,
            "locks": probe(&file.file_system.locks),
            "shared_memory": probe(&file.file_system.shared_memory),
        },
        "journal_configured": file.journal_configured,
        "journal_effective": file.journal_effective,
        "sqlite_version": file.sqlite_version,
        "main_bytes": file.main_bytes,
        "wal_bytes": file.wal_bytes,
        "shm_bytes": file.shm_bytes,
        "unused_bytes": file.unused_bytes,
        "wal_frames": file.wal_frames,
        "wal_unmerged": file.wal_unmerged,
        "permissions": access.collect::<Vec<_>>(),
    })
}

fn server_view(server: &ServerExamination) -> Json {
    json!({
        "server_version": server.version,
        "schema": server.schema,
        "bytes": server.bytes,
        "encrypted": server.encrypted,
        "latency_ms": server.latency.as_secs_f64() * 1e3,
        "role": server.role,
        "may_write": server.may_write,
        "may_upgrade": server.may_upgrade,
        "connections": server.connections,
        "max_connections": server.max_connections,
    })
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn write(out: &mut Output, found: &Examination) -> Result<(), CommandError> {
    let mut rows =
        vec![("store", shown(&found.location)), ("program", format!("hermes-state {}", found.program_version))];
    if let Some(file) = &found.file {
        rows.extend(file_rows(file));
    }
    if let Some(server) = &found.server {
        rows.extend(server_rows(server));
    }
    if let Some(version) = found.schema_version {
        rows.push(("schema version", format!("{version} (this program writes {})", found.schema_supported)));
    }
    if let Some(index) = found.index {
        let lacking = if index.unindexed > 0 { format!(", {} messages to go", index.unindexed) } else { String::new() };
        let degraded = if index.degraded { ", searches read messages meanwhile" } else { "" };
        rows.push(("search index", format!("filled to {} %{lacking}{degraded}", index.filled)));
    }
    rows.extend(found.spool.as_ref().and_then(spool::describe_status).map(|told| ("spool", told)));
    if let Some(time) = found.newest_message {
        rows.push(("newest message", format!("{} ({})", times::local(time), age(now() - time))));
    }
    let on_server = found.server.is_some();
    rows.extend(found.open_by.iter().map(|user| ("open in", status::describe_user(user, on_server))));
    rows.extend(found.findings.iter().map(|finding| (finding.severity.name(), describe(finding))));
    if found.findings.is_empty() {
        rows.push(("findings", "none".to_owned()));
    }
    out.table(&[], rows.into_iter().map(|(name, value)| vec![name.to_owned(), visible(&value).into_owned()]).collect())
}

fn describe(finding: &Finding) -> String {
    format!("{}: {}. {}", finding.about, finding.message.trim_end_matches('.').replace('\n', " "), finding.next_step)
}

fn age(seconds: f64) -> String {
    match seconds {
        ..0.0 => "in the future".to_owned(),
        ..120.0 => format!("{seconds:.0} s ago"),
        ..7200.0 => format!("{:.0} min ago", seconds / 60.0),
        ..172_800.0 => format!("{:.0} h ago", seconds / 3600.0),
        _ => format!("{:.0} days ago", seconds / 86_400.0),
    }
}

fn probed(probe: &Probe) -> String {
    probe.reason().map_or_else(|| probe.name().to_owned(), |reason| format!("{}: {reason}", probe.name()))
}

fn file_rows(file: &FileExamination) -> Vec<(&'static str, String)> {
    let system = &file.file_system;
    let mount = system.mount.as_deref().map(|mount| format!(" on {}", shown(mount))).unwrap_or_default();
    let frames = match (file.wal_frames, file.wal_unmerged) {
        (Some(frames), Some(unmerged)) => {
            format!("; {} frames, {} not merged", thousands(frames), thousands(unmerged))
        }
        _ => String::new(),
    };
    let unused = file.unused_bytes.map(|unused| format!(", {} of it unused", bytes(unused))).unwrap_or_default();
    let mut rows = vec![
        ("file system", format!("{}{mount}", system.kind.as_deref().unwrap_or("of an unknown kind"))),
        ("locks", probed(&system.locks)),
        ("shared memory", probed(&system.shared_memory)),
        ("free space", system.free_bytes.map_or_else(|| "unknown".to_owned(), bytes)),
        (
            "journal mode",
            format!("{} (wanted: {})", file.journal_effective.as_deref().unwrap_or("unknown"), file.journal_configured),
        ),
        ("SQLite", file.sqlite_version.to_owned()),
        ("size", format!("{}{unused}", bytes(file.main_bytes))),
        ("log", format!("{} (-wal), {} (-shm){frames}", bytes(file.wal_bytes), bytes(file.shm_bytes))),
    ];
    rows.extend(file.access.iter().map(|access| {
        ("permissions", format!("{:04o} of user {}: {}", access.mode, access.owner, shown(&access.path)))
    }));
    rows
}

fn server_rows(server: &ServerExamination) -> Vec<(&'static str, String)> {
    let rights = match (server.may_write, server.may_upgrade) {
        (true, true) => "reads, writes and upgrades",
        (true, false) => "reads and writes",
        _ => "only reads",
    };
    vec![
        ("server", format!("PostgreSQL {}, answers in {:.1} ms", server.version, server.latency.as_secs_f64() * 1e3)),
        ("encrypted", if server.encrypted { "yes" } else { "no" }.to_owned()),
        ("schema", format!("{}, {}", server.schema, bytes(server.bytes))),
        ("role", format!("{}: {rights}", server.role)),
        ("connections", format!("{} of {}", server.connections, server.max_connections)),
    ]
}
