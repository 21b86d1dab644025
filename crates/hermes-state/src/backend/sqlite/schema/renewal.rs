//! Full-text indexes begun anew in one short transaction, whatever state they were in: their tables are set aside, new
//! ones take the names, and markers tell every process that the old rows are still to be filled in.
//!
//! Deleting a large index takes long, so what is set aside becomes ordinary tables that [`clear_step`] empties in small
//! parts. All names and markers are those that older releases know: they go on with what was begun here.

use rusqlite::Connection;

use super::backfill;
use super::catalog::{self, Catalog, quoted};
use super::cjk::{self, STALE};
use super::fts::{CJK, Layout, MESSAGES, Surface, TRIGRAM};
use super::unattended;

/// What the names of tables that were set aside begin with.
pub(in crate::backend::sqlite) const TRASH: &str = "fts_v22_trash_";

/// The marker that a rebuild is due to damage; its end clears it.
pub(super) const DAMAGED: &str = "fts_index_damaged";

/// Whether the indexes were found damaged and are not whole again yet.
pub(crate) fn is_marked_damaged(conn: &Connection) -> rusqlite::Result<bool> {
    catalog::has_marker(conn, DAMAGED)
}

/// What FTS5 makes beside a table of its own.
const SHADOWS: [&str; 5] = ["data", "idx", "docsize", "config", "content"];

/// Begins the indexes of words and of trigrams anew, in the current layout. Returns the highest id that they have to be
/// filled up to.
pub(crate) fn renew(conn: &Connection) -> rusqlite::Result<i64> {
    let surfaces = [&MESSAGES, &TRIGRAM];
    set_aside(conn, &surfaces)?;
    for surface in surfaces {
        conn.execute_batch(&(surface.current_table() + &surface.current_triggers()))?;
    }
    let last: i64 = conn.query_row("SELECT coalesce(max(id), 0) FROM messages", [], |row| row.get(0))?;
    catalog::set_marker(conn, &MESSAGES.high_water(), &last.to_string())?;
    catalog::set_marker(conn, &MESSAGES.progress(), "0")?;
    backfill::mark_ours(conn, false)?;
    catalog::clear_marker(conn, "fts_optimize_available")?;
    unattended::touch(conn)?;
    Ok(last)
}

/// Begins the cjk index anew. The tokenizer is there for every program, as the caller knows.
pub(crate) fn renew_cjk(conn: &Connection) -> rusqlite::Result<()> {
    set_aside(conn, &[&CJK])?;
    catalog::clear_marker(conn, STALE)?;
    catalog::clear_marker(conn, &CJK.high_water())?;
    catalog::clear_marker(conn, &CJK.progress())?;
    cjk::attach(conn, &Catalog::read(conn)?)?;
    backfill::mark_ours(conn, true)
}

/// Begins every index anew that the triggers of this file keep. A cjk index goes out of service where `cjk` says that its
/// tokenizer is not everybody's.
pub(crate) fn renew_all(conn: &Connection, cjk: bool) -> rusqlite::Result<()> {
    renew(conn)?;
    catalog::set_marker(conn, DAMAGED, "1")?;
    if cjk::has_any_trigger(&Catalog::read(conn)?) {
        if cjk { renew_cjk(conn) } else { cjk::detach(conn) }?;
    }
    Ok(())
}

/// Takes the tables out of the catalogue and renames what they were made of. They are not opened for it, as damaged ones
/// could not be.
fn set_aside(conn: &Connection, surfaces: &[&Surface]) -> rusqlite::Result<()> {
    for trigger in surfaces.iter().flat_map(|surface| surface.triggers()) {
        conn.execute_batch(&format!("DROP TRIGGER IF EXISTS {trigger}"))?;
    }
    // The renaming reads no other table's triggers and views: one that is broken must not be in the way.
    conn.execute_batch("PRAGMA legacy_alter_table = ON; PRAGMA writable_schema = ON")?;
    let done = out_of_catalogue(conn, surfaces).and_then(|()| rename_shadows(conn, surfaces));
    // RESET also has the catalogue read anew.
    conn.execute_batch("PRAGMA writable_schema = RESET; PRAGMA legacy_alter_table = OFF")?;
    done
}

fn out_of_catalogue(conn: &Connection, surfaces: &[&Surface]) -> rusqlite::Result<()> {
    for surface in surfaces {
        conn.execute("DELETE FROM sqlite_master WHERE type = 'table' AND name = ?1", [surface.table])?;
    }
    conn.execute_batch("PRAGMA writable_schema = RESET")
}

fn rename_shadows(conn: &Connection, surfaces: &[&Surface]) -> rusqlite::Result<()> {
    let catalog = Catalog::read(conn)?;
    for shadow in surfaces.iter().flat_map(|surface| SHADOWS.map(|part| format!("{}_{part}", surface.table))) {
        if catalog.has_table(&shadow) {
            // Of an earlier renewal there may be some left.
            let mut name = format!("{TRASH}{shadow}");
            while catalog.has_table(&name) {
                name.push('_');
            }
            conn.execute_batch(&format!("ALTER TABLE {shadow} RENAME TO {name}"))?;
        }
    }
    Ok(())
}

/// Deletes at most so many rows of what was set aside, or a table that has none left. `false` when nothing is left.
pub(crate) fn clear_step(conn: &Connection, rows: i64) -> rusqlite::Result<bool> {
    let catalog = Catalog::read(conn)?;
    let Some(table) = catalog.first_table_starting(TRASH) else { return Ok(false) };
    let mut key: Vec<_> = catalog::columns(conn, table)?.into_iter().filter(|column| column.key > 0).collect();
    key.sort_by_key(|column| column.key);
    let key = match &key[..] {
        [] => "rowid".to_owned(),
        key => key.iter().map(|column| quoted(&column.name)).collect::<Vec<_>>().join(", "),
    };
    let table = quoted(table);
    let sql = format!("DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} LIMIT ?1)");
    if conn.execute(&sql, [rows])? == 0 {
        conn.execute_batch(&format!("DROP TABLE {table}"))?;
    }
    let more = Catalog::read(conn)?.has_table_starting(TRASH);
    if more { unattended::touch(conn) } else { unattended::settle(conn) }?;
    Ok(true)
}

/// Whether the full-text storage could be brought up to date: an old layout, work begun and not done, or leftovers.
pub(crate) fn is_due(conn: &Connection, cjk: bool) -> rusqlite::Result<bool> {
    let catalog = Catalog::read(conn)?;
    Ok(Layout::of(&catalog).is_legacy()
        || catalog::has_marker(conn, &MESSAGES.high_water())?
        || cjk && (catalog::has_marker(conn, &CJK.high_water())? || catalog::has_marker(conn, STALE)?)
        || catalog.has_table_starting(TRASH))
}
