//! The key of the usage table: older shapes are rebuilt, and rows that a rebuild of an older release lost come home.
//!
//! Usage is recorded by an upsert that names the six key columns, so a table with any other key refuses every record.
//! The shape itself is looked at, not the version: older releases took a lock error in their rebuild for success and
//! advanced the version over it.

use rusqlite::Connection;

use super::catalog::{self, Catalog, Column};
use super::{Note, TABLES_SQL, columns};

const TABLE: &str = "session_model_usage";
/// Where older releases set the old table aside, in several transactions; a crash between them strands it there.
const STRANDED: &str = "session_model_usage_v21";
/// Where ours does; it never outlives the transaction.
const ASIDE: &str = "session_model_usage_rekeying";

const KEY: [&str; 6] = ["session_id", "model", "billing_provider", "billing_base_url", "billing_mode", "task"];
const SUMS: [&str; 8] = [
    "api_call_count",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "estimated_cost_usd",
    "actual_cost_usd",
];
const REST: [&str; 4] = ["cost_status", "cost_source", "first_seen", "last_seen"];

/// Whether the table has its key and nothing is stranded.
pub(super) fn complete(conn: &Connection, catalog: &Catalog) -> rusqlite::Result<bool> {
    Ok(has_key(&catalog::columns(conn, TABLE)?) && !is_stranded(conn, catalog)?)
}

pub(super) fn ensure(conn: &Connection, catalog: &Catalog, notes: &mut Vec<Note>) -> rusqlite::Result<()> {
    let live = catalog::columns(conn, TABLE)?;
    if !has_key(&live) {
        rekey(conn, &live, notes)?;
    }
    if is_stranded(conn, catalog)? {
        // Counters of a row that the older rebuild had copied before it crashed must not count twice; such a row still
        // has its first sight. A row with another first sight was begun after the crash and lacks the old counts.
        adopt(conn, STRANDED, "WHERE session_model_usage.first_seen IS NOT excluded.first_seen", notes)?;
    }
    Ok(())
}

fn has_key(live: &[Column]) -> bool {
    let mut key: Vec<&Column> = live.iter().filter(|column| column.key > 0).collect();
    key.sort_by_key(|column| column.key);
    key.iter().map(|column| column.name.as_str()).eq(KEY)
}

fn is_stranded(conn: &Connection, catalog: &Catalog) -> rusqlite::Result<bool> {
    if !catalog.has_table(STRANDED) {
        return Ok(false);
    }
    let found = catalog::columns(conn, STRANDED)?;
    Ok(KEY[..2].iter().all(|name| found.iter().any(|column| column.name == *name)))
}

/// Builds the table anew under its own name. It is copied aside rather than renamed, because a rename re-reads every
/// view and trigger of the file and fails on the first that is broken.
fn rekey(conn: &Connection, live: &[Column], notes: &mut Vec<Note>) -> rusqlite::Result<()> {
    conn.execute_batch(&format!("CREATE TABLE {ASIDE} AS SELECT * FROM {TABLE}; DROP TABLE {TABLE};"))?;
    conn.execute_batch(TABLES_SQL)?;
    for column in live.iter().filter(|column| !is_known(&column.name) && !column.needs_empty_table()) {
        columns::add(conn, TABLE, column)?;
    }
    adopt(conn, ASIDE, "", notes)
}

fn is_known(column: &str) -> bool {
    [&KEY[..], &SUMS[..], &REST[..]].concat().iter().any(|known| known.eq_ignore_ascii_case(column))
}

/// Moves all rows of `from` into the usage table and drops it. Rows that meet under the key are added up, under the
/// given condition. A row whose session is gone has no place: the key's reference would have deleted it with it.
fn adopt(conn: &Connection, from: &str, condition: &str, notes: &mut Vec<Note>) -> rusqlite::Result<()> {
    let orphans = conn.execute(
        &format!("DELETE FROM {from} WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE id = {from}.session_id)"),
        [],
    )?;
    if orphans > 0 {
        notes.push(Note::UsageOfGoneSessions(orphans));
    }
    let target = catalog::columns(conn, TABLE)?;
    let source = catalog::columns(conn, from)?;
    let shared: Vec<&Column> = target
        .iter()
        .filter(|column| source.iter().any(|found| found.name.eq_ignore_ascii_case(&column.name)))
        .collect();
    let names = shared.iter().map(|column| catalog::quoted(&column.name)).collect::<Vec<_>>().join(", ");
    let values = shared.iter().map(|column| value(&column.name)).collect::<Vec<_>>().join(", ");
    let sums = SUMS.map(|name| format!("{name} = {TABLE}.{name} + excluded.{name}")).join(", ");
    conn.execute(
        &format!(
            "INSERT INTO {TABLE} ({names})
             SELECT {values} FROM {from} AS old WHERE true
             ON CONFLICT ({key}) DO UPDATE SET {sums},
                 cost_status = coalesce(excluded.cost_status, {TABLE}.cost_status),
                 cost_source = coalesce(excluded.cost_source, {TABLE}.cost_source),
                 first_seen = coalesce(min({TABLE}.first_seen, excluded.first_seen),
                                       {TABLE}.first_seen, excluded.first_seen),
                 last_seen = coalesce(max({TABLE}.last_seen, excluded.last_seen),
                                      {TABLE}.last_seen, excluded.last_seen)
             {condition}",
            key = KEY.join(", ")
        ),
        [],
    )?;
    conn.execute_batch(&format!("DROP TABLE {from}"))
}

/// The old column as the new table may have it: where NULL is no longer allowed it becomes what a missing value means.
fn value(column: &str) -> String {
    let name = catalog::quoted(column);
    match column {
        "model" => format!("coalesce(old.{name}, 'unknown')"),
        _ if KEY.contains(&column) => format!("coalesce(old.{name}, '')"),
        _ if SUMS.contains(&column) => format!("coalesce(old.{name}, 0)"),
        _ => format!("old.{name}"),
    }
}
