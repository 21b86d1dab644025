//! Data migrations: what a file of an older version needs besides the shape that every open restores.
//!
//! Each block can run again on its own result, because older releases advanced the version over blocks that failed,
//! and left blocks done whose version had not yet advanced.

use rusqlite::Connection;

use super::catalog::{self, Catalog};
use super::fts::Layout;
use super::{Context, FTS_STORAGE_VERSION, Note, SCHEMA_VERSION, sessions_json};

/// Which text of `model_config` can carry a marker: an object; nothing at all counts as an empty one. Text that is not
/// JSON has no marker and cannot get one; one such row must not stop the others.
const CONFIG: &str =
    "CASE WHEN model_config IS NULL THEN '{}' WHEN json_valid(model_config) THEN model_config ELSE 'null' END";

/// The rows of `schema_version`. There should be one; two processes of older releases that made a file at the same
/// moment left two.
pub(super) struct Version {
    /// Nothing stands for a value that is no number.
    rows: Vec<Option<i64>>,
}

impl Version {
    pub(super) fn read(conn: &Connection, catalog: &Catalog) -> rusqlite::Result<Self> {
        let readable = catalog.has_table("schema_version")
            && catalog::columns(conn, "schema_version")?.iter().any(|column| column.name == "version");
        if !readable {
            return Ok(Self { rows: Vec::new() });
        }
        let mut rows = conn.prepare_cached(
            "SELECT CASE typeof(version) WHEN 'integer' THEN version END FROM schema_version ORDER BY rowid",
        )?;
        Ok(Self { rows: rows.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()? })
    }

    /// The version of a release newer than this one that has written the file, if any has.
    pub(super) fn newer(&self) -> Option<i64> {
        self.rows.iter().flatten().copied().max().filter(|version| *version > SCHEMA_VERSION)
    }

    /// Whether the file is known to be older than this; the first row tells. A version that is no number is unknown,
    /// and then the data is left alone.
    pub(super) fn is_below(&self, version: i64) -> bool {
        matches!(self.rows.first(), Some(Some(found)) if *found < version)
    }

    /// Whether there is nothing to migrate or to note down.
    pub(super) fn is_settled(&self) -> bool {
        !self.rows.is_empty() && !self.is_below(SCHEMA_VERSION)
    }
}

/// Brings data and version up to date. The shape of the file is current already.
pub(super) fn run(
    conn: &Connection,
    catalog: &Catalog,
    context: &Context,
    notes: &mut Vec<Note>,
) -> rusqlite::Result<()> {
    let version = Version::read(conn, catalog)?;
    if version.rows.is_empty() {
        conn.execute("INSERT INTO schema_version (version) VALUES (?1)", [SCHEMA_VERSION])?;
        return Ok(());
    }
    if version.is_settled() {
        return Ok(());
    }
    if version.is_below(16) {
        tag_delegates(conn)?;
        tag_orphans(conn)?;
    }
    if version.is_below(18)
        && let Some(text) = &context.sessions_json
    {
        sessions_json::import(conn, text)?;
    }
    if version.is_below(20) {
        seed_usage(conn)?;
    }
    if version.is_below(23) && Layout::of(catalog).is_legacy() {
        catalog::set_marker(conn, "fts_optimize_available", "1")?;
    }
    conn.execute("UPDATE schema_version SET version = ?1", [SCHEMA_VERSION])?;
    notes.push(Note::Migrated { from: version.rows[0].unwrap_or_default() });
    Ok(())
}

/// 16, first half: children that neither branched off nor continue a compressed parent are delegates of it.
fn tag_delegates(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute(
        &format!(
            "UPDATE sessions SET model_config = json_set({CONFIG}, '$._delegate_from', parent_session_id)
             WHERE parent_session_id IS NOT NULL
               AND {unmarked}
               AND NOT EXISTS (
                   SELECT 1 FROM sessions AS parent WHERE parent.id = sessions.parent_session_id
                   AND (parent.end_reason = 'compression'
                        OR parent.end_reason = 'branched' AND sessions.started_at >= parent.ended_at))",
            unmarked = unmarked()
        ),
        [],
    )?;
    Ok(())
}

/// 16, second half: small untitled runs of tools without family are delegates whose parent was deleted.
fn tag_orphans(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute(
        &format!(
            "UPDATE sessions SET model_config = json_set({CONFIG}, '$._delegate_from', '__orphaned__')
             WHERE parent_session_id IS NULL AND title IS NULL AND message_count <= 25
               AND {unmarked}
               AND EXISTS (SELECT 1 FROM messages WHERE session_id = sessions.id AND role = 'tool')
               AND NOT EXISTS (SELECT 1 FROM sessions AS child WHERE child.parent_session_id = sessions.id)",
            unmarked = unmarked()
        ),
        [],
    )?;
    Ok(())
}

/// The session can carry markers and has neither. A member that is JSON null is no marker.
fn unmarked() -> String {
    format!(
        "json_type({CONFIG}) = 'object'
         AND json_extract({CONFIG}, '$._delegate_from') IS NULL
         AND json_extract({CONFIG}, '$._branched_from') IS NULL"
    )
}

/// 20: sessions that used tokens before usage was kept per model get their row.
fn seed_usage(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute(
        "INSERT INTO session_model_usage (
             session_id, model, billing_provider, billing_base_url, billing_mode, task, api_call_count,
             input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens,
             estimated_cost_usd, actual_cost_usd, cost_status, cost_source, first_seen, last_seen)
         SELECT id, coalesce(model, 'unknown'), coalesce(billing_provider, ''), coalesce(billing_base_url, ''),
                coalesce(billing_mode, ''), '', coalesce(api_call_count, 0),
                coalesce(input_tokens, 0), coalesce(output_tokens, 0), coalesce(cache_read_tokens, 0),
                coalesce(cache_write_tokens, 0), coalesce(reasoning_tokens, 0),
                coalesce(estimated_cost_usd, 0), coalesce(actual_cost_usd, 0), cost_status, cost_source,
                started_at, coalesce(ended_at, started_at)
         FROM sessions
         WHERE id IS NOT NULL
           AND coalesce(input_tokens, 0) + coalesce(output_tokens, 0) + coalesce(cache_read_tokens, 0)
             + coalesce(cache_write_tokens, 0) + coalesce(reasoning_tokens, 0) > 0
         ON CONFLICT DO NOTHING",
        [],
    )?;
    Ok(())
}

const STAMP: &str = "fts_storage_version";

/// Whether the layout of the full-text index is noted down wherever it is final.
pub(super) fn is_stamped(conn: &Connection, catalog: &Catalog) -> rusqlite::Result<bool> {
    Ok(!has_final_layout(conn, catalog)? || catalog::marker_is(conn, STAMP, &FTS_STORAGE_VERSION.to_string())?)
}

/// What is noted down once the full-text storage has been brought up to date, as an open does too.
pub(super) fn settle(conn: &Connection) -> rusqlite::Result<()> {
    catalog::set_marker(conn, STAMP, &FTS_STORAGE_VERSION.to_string())?;
    catalog::clear_marker(conn, "fts_optimize_available")?;
    conn.execute("UPDATE schema_version SET version = ?1 WHERE version < ?1", [SCHEMA_VERSION])?;
    Ok(())
}

pub(super) fn stamp(conn: &Connection, catalog: &Catalog) -> rusqlite::Result<()> {
    if has_final_layout(conn, catalog)? {
        catalog::set_marker(conn, STAMP, &FTS_STORAGE_VERSION.to_string())?;
    }
    Ok(())
}

/// Current, filled, and rid of the tables that it replaced.
fn has_final_layout(conn: &Connection, catalog: &Catalog) -> rusqlite::Result<bool> {
    Ok(!Layout::of(catalog).is_legacy()
        && !catalog.has_table_starting(super::renewal::TRASH)
        && !catalog::has_marker(conn, &super::fts::MESSAGES.high_water())?)
}
