//! The ordinary indexes, and the unique titles that one of them demands.

use rusqlite::Connection;

use super::catalog::Catalog;
use super::columns::declared;
use super::{INDEXES_SQL, LATE_INDEXES_SQL, Note};

const TITLE_INDEX: &str = "idx_sessions_title_unique";

pub(super) fn complete(catalog: &Catalog) -> rusqlite::Result<bool> {
    Ok(declared()?.indexes.iter().all(|index| catalog.has_index(index)))
}

/// Makes the missing indexes. They come after all columns: an index made earlier would keep a file shut that merely
/// lacks the indexed column.
pub(super) fn ensure(conn: &Connection, catalog: &Catalog, notes: &mut Vec<Note>) -> rusqlite::Result<()> {
    if !catalog.has_index(TITLE_INDEX) {
        clear_duplicate_titles(conn, notes)?;
    }
    conn.execute_batch(INDEXES_SQL)?;
    conn.execute_batch(LATE_INDEXES_SQL)
}

/// Of sessions with one title the last written keeps it; a lost title is a smaller harm than two sessions that answer
/// to the same name.
fn clear_duplicate_titles(conn: &Connection, notes: &mut Vec<Note>) -> rusqlite::Result<()> {
    let cleared = conn.execute(
        "UPDATE sessions SET title = NULL
         WHERE title IS NOT NULL
           AND rowid NOT IN (SELECT max(rowid) FROM sessions WHERE title IS NOT NULL GROUP BY title)",
        [],
    )?;
    if cleared > 0 {
        notes.push(Note::TitlesCleared(cleared));
    }
    Ok(())
}
