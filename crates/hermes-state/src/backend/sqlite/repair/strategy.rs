//! What is tried on a copy of a damaged file, the mildest first. None of it changes or removes a row.

use std::path::Path;

use super::super::errors::{classify, extended_code};
use crate::error::Result;
use crate::repair::{RepairStrategy, RepairedTable};

pub(super) const ON_A_COPY: [RepairStrategy; 5] = [
    RepairStrategy::AdoptOrphans,
    RepairStrategy::RebuildFts,
    RepairStrategy::ReindexBtree,
    RepairStrategy::DedupSchema,
    RepairStrategy::DropFtsRebuild,
];

/// Does it, on a connection of its own, which reads the schema as the one before has left it.
pub(super) fn apply(strategy: RepairStrategy, copy: &Path) -> Result<()> {
    let connection = super::open_copy(copy)?;
    let done = match strategy {
        RepairStrategy::RebuildFts => {
            for index in ["messages_fts", "messages_fts_trigram", "messages_fts_cjk"] {
                let rebuilt = connection.execute_batch(&format!("INSERT INTO {index}({index}) VALUES ('rebuild')"));
                match rebuilt {
                    // There is no such index, or it needs what is not here.
                    Err(error) if extended_code(&error) == rusqlite::ffi::SQLITE_ERROR => {}
                    rebuilt => rebuilt.map_err(|error| classify(copy, &error))?,
                }
            }
            Ok(())
        }
        RepairStrategy::ReindexBtree => connection.execute_batch("REINDEX"),
        RepairStrategy::DedupSchema => connection.execute_batch(
            "DELETE FROM sqlite_schema WHERE rowid NOT IN (SELECT MIN(rowid) FROM sqlite_schema GROUP BY type, name)",
        ),
        RepairStrategy::DropFtsRebuild => {
            let dropped = "DELETE FROM sqlite_schema WHERE name LIKE 'messages\\_fts%' ESCAPE '\\'";
            connection.execute_batch(dropped).map_err(|error| classify(copy, &error))?;
            drop(connection);
            // Only a new connection knows nothing any more of what was taken out, and leaves it behind.
            super::open_copy(copy)?.execute_batch("VACUUM")
        }
        // It is done to every copy that is well.
        RepairStrategy::AdoptOrphans | RepairStrategy::AlreadyHealthy | RepairStrategy::SalvageRows => Ok(()),
    };
    done.map_err(|error| classify(copy, &error))
}

/// The rows of each table, as far as they can be counted.
pub(super) fn count(copy: &Path) -> Result<Vec<(String, Option<u64>)>> {
    let connection = super::open_copy(copy)?;
    let Ok(tables) = super::tables(&connection) else { return Ok(Vec::new()) };
    let counted = tables.into_iter().map(|(name, _)| {
        let sql = format!("SELECT COUNT(*) FROM \"{}\" NOT INDEXED", name.replace('"', "\"\""));
        let rows = connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).ok();
        (name, rows.and_then(|rows| u64::try_from(rows).ok()))
    });
    Ok(counted.collect())
}

/// The report on tables that kept all of their rows, and on the sessions that were made.
pub(super) fn compare(
    before: &[(String, Option<u64>)],
    after: Vec<(String, Option<u64>)>,
    made: u64,
) -> Vec<RepairedTable> {
    let tables = after.into_iter().map(|(name, rows)| {
        let before = before.iter().find(|(table, _)| *table == name).and_then(|(_, rows)| *rows);
        let (rows, made) = (rows.unwrap_or_default(), if name == "sessions" { made } else { 0 });
        RepairedTable { before, rows, made, ..RepairedTable::empty(name) }
    });
    tables.collect()
}

/// Gives messages without a session one; returns how many were made.
pub(super) fn adopt_orphans(copy: &Path) -> Result<u64> {
    let connection = super::open_copy(copy)?;
    let has = |table: &str| connection.table_exists(Some("main"), table);
    let adopted = has("messages").and_then(|messages| {
        if !messages || !has("sessions")? {
            return Ok(0);
        }
        connection.execute_batch("BEGIN")?;
        let made = connection.execute(ADOPT, [])?;
        if made > 0 && connection.column_exists(Some("main"), "sessions", "message_count")? {
            let active = connection.column_exists(Some("main"), "messages", "active")?;
            connection.execute(
                &format!(
                    "UPDATE sessions SET message_count = (SELECT COUNT(*) FROM messages m WHERE m.session_id = sessions.id{}) \
                     WHERE rowid > (SELECT MAX(rowid) FROM sessions) - ?1",
                    if active { " AND m.active = 1" } else { "" }
                ),
                [made as i64],
            )?;
        }
        connection.execute_batch("COMMIT")?;
        Ok(made as u64)
    });
    adopted.map_err(|error| classify(copy, &error))
}

/// Makes the sessions that messages name and that are not there.
pub(super) const ADOPT: &str = "INSERT INTO sessions (id, source, started_at) SELECT session_id, 'unknown', MIN(timestamp) \
     FROM messages WHERE session_id IS NOT NULL AND session_id NOT IN (SELECT id FROM sessions WHERE id IS NOT NULL) \
     GROUP BY session_id";

impl RepairedTable {
    pub(super) fn empty(name: String) -> Self {
        Self { name, before: None, rows: 0, lost: 0, mended: 0, made: 0, incomplete: false }
    }
}
