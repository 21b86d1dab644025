//! The optional index for Chinese, Japanese and Korean, which only files of hosts with the tokenizer have.
//!
//! A process without the tokenizer cannot write a message to a file with these triggers. So they are made only where
//! the tokenizer is installed for everyone, and an open elsewhere drops them, after marking that the index has gaps.

use rusqlite::{Connection, ffi};

use super::catalog::{self, Catalog};
use super::fts::{CJK, Layout};
use super::{Context, Note};
use crate::backend::sqlite::errors::extended_code;

pub(super) const STALE: &str = "fts_cjk_stale";

/// Whether an open under this context would leave the cjk objects as they are.
pub(super) fn complete(conn: &Connection, catalog: &Catalog, context: &Context) -> rusqlite::Result<bool> {
    if !context.cjk {
        return Ok(!has_any_trigger(catalog));
    }
    let layout = Layout::of(catalog);
    Ok(layout.is_legacy()
        || CJK.has_table(catalog, layout) && (has_all_triggers(catalog) || catalog::has_marker(conn, STALE)?))
}

/// Whether the index is there and kept.
pub(super) fn is_kept(catalog: &Catalog) -> bool {
    let layout = Layout::of(catalog);
    layout == Layout::Current && CJK.has_table(catalog, layout) && has_all_triggers(catalog)
}

/// Whether the index holds every row and may answer.
pub(super) fn serves(conn: &Connection, catalog: &Catalog, context: &Context) -> rusqlite::Result<bool> {
    Ok(context.cjk
        && is_kept(catalog)
        && !catalog::has_marker(conn, STALE)?
        && !catalog::has_marker(conn, &CJK.high_water())?)
}

pub(super) fn ensure(
    conn: &Connection,
    catalog: &Catalog,
    context: &Context,
    notes: &mut Vec<Note>,
) -> rusqlite::Result<()> {
    if complete(conn, catalog, context)? {
        return Ok(());
    }
    if !context.cjk {
        detach(conn)?;
        notes.push(Note::CjkDetached);
        return Ok(());
    }
    // A tokenizer that turns out not to work must not keep the file shut; nothing of the attempt stays.
    conn.execute_batch("SAVEPOINT cjk")?;
    match attach(conn, catalog) {
        Ok(()) => conn.execute_batch("RELEASE cjk"),
        Err(error) if extended_code(&error) & 0xff == ffi::SQLITE_ERROR => {
            conn.execute_batch("ROLLBACK TO cjk; RELEASE cjk")?;
            notes.push(Note::CjkUnavailable(error.to_string()));
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Takes the index out of service.
pub(super) fn detach(conn: &Connection) -> rusqlite::Result<()> {
    catalog::set_marker(conn, STALE, "1")?;
    for trigger in CJK.triggers() {
        conn.execute_batch(&format!("DROP TRIGGER IF EXISTS {trigger}"))?;
    }
    Ok(())
}

/// Makes what is missing of the index; a table made now waits for its backfill.
pub(super) fn attach(conn: &Connection, catalog: &Catalog) -> rusqlite::Result<()> {
    let is_new = !catalog.has_table(CJK.table);
    conn.execute_batch(&CJK.current_table())?;
    if is_new {
        catalog::clear_marker(conn, STALE)?;
        begin_backfill(conn)?;
    }
    if !catalog::has_marker(conn, STALE)? {
        conn.execute_batch(&CJK.current_triggers())?;
    }
    Ok(())
}

/// The new index is empty: either so is the file, or all that is in it waits for the backfill.
fn begin_backfill(conn: &Connection) -> rusqlite::Result<()> {
    let last: Option<i64> = conn.query_row(
        "SELECT max(id) FROM messages WHERE EXISTS (SELECT 1 FROM messages WHERE role <> 'tool')",
        [],
        |row| row.get(0),
    )?;
    if let Some(last) = last {
        catalog::set_marker(conn, &CJK.high_water(), &last.to_string())?;
        catalog::set_marker(conn, &CJK.progress(), "0")
    } else {
        catalog::clear_marker(conn, &CJK.high_water())?;
        catalog::clear_marker(conn, &CJK.progress())
    }
}

pub(super) fn has_any_trigger(catalog: &Catalog) -> bool {
    CJK.triggers().iter().any(|trigger| catalog.has_trigger(trigger))
}

fn has_all_triggers(catalog: &Catalog) -> bool {
    CJK.triggers().iter().all(|trigger| catalog.has_trigger(trigger))
}
