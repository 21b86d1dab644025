//! Filling indexes that were begun anew with the rows that were there before, a range of ids at a time.
//!
//! Range and marker change in one transaction, and the range is chosen under the write lock: any number of processes fill
//! side by side, and none does what another has done. The markers are those by which the triggers of all releases know
//! which rows an index holds.

use rusqlite::{Connection, OptionalExtension};

use super::catalog::{self, Catalog};
use super::fts::{CJK, Layout, MESSAGES, Surface, TRIGRAM};
use super::unattended;

/// How much text is indexed under one lock: about thirty milliseconds' work.
const STEP_BYTES: i64 = 128 << 10;

/// How far around the last id the end of a backfill looks for rows that fell through: another release may have set the
/// markers a moment before or after a message came in.
const SWEEP: i64 = 1000;

const COLUMNS: &str = "content, tool_name, tool_calls";

/// The indexes that share a pair of markers.
fn surfaces(cjk: bool) -> &'static [Surface] {
    if cjk { &[CJK] } else { &[MESSAGES, TRIGRAM] }
}

/// The two markers as they stand: the highest id to be filled in, and the highest that was.
pub(crate) struct Markers {
    pub(crate) high_water: Option<String>,
    pub(crate) progress: Option<String>,
}

pub(crate) fn markers(conn: &Connection, cjk: bool) -> rusqlite::Result<Markers> {
    let surface = &surfaces(cjk)[0];
    let read = |key: String| -> rusqlite::Result<Option<String>> {
        let mut row = conn.prepare_cached("SELECT CAST(value AS TEXT) FROM state_meta WHERE key = ?1")?;
        Ok(row.query_row([key], |row| row.get(0)).optional()?.flatten())
    };
    Ok(Markers { high_water: read(surface.high_water())?, progress: read(surface.progress())? })
}

/// Whether the indexes of these markers are of a layout that can be filled.
pub(crate) fn can_be_filled(conn: &Connection, cjk: bool) -> rusqlite::Result<bool> {
    let catalog = Catalog::read(conn)?;
    let layout = Layout::of(&catalog);
    Ok(!layout.is_legacy()
        && surfaces(cjk)[0].has_table(&catalog, layout)
        && !(cjk && catalog::has_marker(conn, super::cjk::STALE)?))
}

/// Fills in the rows with ids above `done` and up to the `last`, at most so many ids and so much text; the end clears the
/// markers. Returns whether there is more.
pub(crate) fn step(conn: &Connection, cjk: bool, done: i64, last: i64, ids: i64) -> rusqlite::Result<bool> {
    let catalog = Catalog::read(conn)?;
    let layout = Layout::of(&catalog);
    let present = || surfaces(cjk).iter().filter(|surface| surface.has_table(&catalog, layout));
    let key = &surfaces(cjk)[0];
    let upto = if done < last { reach(conn, done, done.saturating_add(ids).min(last))? } else { last };
    if done < last {
        for surface in present() {
            fill(conn, surface, "row.id > ?1 AND row.id <= ?2", [done, upto])?;
        }
    }
    if upto < last {
        catalog::set_marker(conn, &key.progress(), &upto.to_string())?;
        unattended::touch(conn)?;
        return Ok(true);
    }
    for surface in present() {
        let missing = format!("NOT EXISTS (SELECT 1 FROM {}_docsize AS held WHERE held.id = row.id)", surface.table);
        let range = [last.saturating_sub(SWEEP), last.saturating_add(SWEEP)];
        fill(conn, surface, &format!("row.id > ?1 AND row.id <= ?2 AND {missing}"), range)?;
    }
    catalog::clear_marker(conn, &key.high_water())?;
    catalog::clear_marker(conn, &key.progress())?;
    unattended::settle(conn)?;
    catalog::clear_marker(conn, &key.ours())?;
    if !cjk {
        catalog::clear_marker(conn, super::renewal::DAMAGED)?;
    }
    Ok(false)
}

fn fill(conn: &Connection, surface: &Surface, which: &str, range: [i64; 2]) -> rusqlite::Result<usize> {
    let Surface { table, view, .. } = surface;
    let source = view.unwrap_or("messages");
    conn.prepare_cached(&format!(
        "INSERT INTO {table} (rowid, {COLUMNS}) SELECT row.id, {COLUMNS} FROM {source} AS row WHERE {which}"
    ))?
    .execute(range)
}

/// How far towards `upto` the text that may be indexed under one lock goes; at least one row.
fn reach(conn: &Connection, done: i64, upto: i64) -> rusqlite::Result<i64> {
    let mut rows = conn.prepare_cached(
        "SELECT id, OCTET_LENGTH(COALESCE(content, '')) + OCTET_LENGTH(COALESCE(tool_calls, '')) FROM messages \
         WHERE id > ?1 AND id <= ?2 ORDER BY id",
    )?;
    let mut bytes = 0;
    let mut rows = rows.query([done, upto])?;
    while let Some(row) = rows.next()? {
        bytes += row.get::<_, i64>(1)?;
        if bytes >= STEP_BYTES {
            return row.get(0);
        }
    }
    Ok(upto)
}

/// Notes that the backfill that these markers tell of was begun by a release that others may join in it.
pub(super) fn mark_ours(conn: &Connection, cjk: bool) -> rusqlite::Result<()> {
    match markers(conn, cjk)?.high_water {
        Some(last) => catalog::set_marker(conn, &surfaces(cjk)[0].ours(), &last),
        None => Ok(()),
    }
}

/// Whether such a backfill is going on.
pub(crate) fn is_ours(conn: &Connection, cjk: bool) -> rusqlite::Result<bool> {
    match markers(conn, cjk)?.high_water {
        Some(last) => catalog::marker_is(conn, &surfaces(cjk)[0].ours(), &last),
        None => Ok(false),
    }
}

/// Up to which id the indexes of an old layout are replaced, and how far that has come. No other release knows these
/// markers, nor needs to: the triggers of that layout keep a row whether or not it was replaced.
const IN_PLACE: [&str; 2] = ["hermes_state_in_place_high_water", "hermes_state_in_place_progress"];

/// Begins to replace what the indexes of an old layout with a copy of all text hold, or joins who does; returns how many
/// there are, 0 in another layout.
pub(crate) fn begin_in_place(conn: &Connection) -> rusqlite::Result<usize> {
    let catalog = Catalog::read(conn)?;
    if Layout::of(&catalog) != Layout::Inline {
        return Ok(0);
    }
    let present = [MESSAGES, TRIGRAM].iter().filter(|surface| catalog.has_table(surface.table)).count();
    if present > 0 && !catalog::has_marker(conn, IN_PLACE[0])? {
        let last: i64 = conn.query_row("SELECT coalesce(max(id), 0) FROM messages", [], |row| row.get(0))?;
        catalog::set_marker(conn, IN_PLACE[0], &last.to_string())?;
        catalog::set_marker(conn, IN_PLACE[1], "0")?;
    }
    Ok(present)
}

/// The markers of [`begin_in_place`].
pub(crate) fn in_place(conn: &Connection) -> rusqlite::Result<Option<[i64; 2]>> {
    let read = |key: &str| {
        let mut row = conn.prepare_cached("SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = ?1")?;
        row.query_row([key], |row| row.get::<_, i64>(0)).optional()
    };
    Ok(match (read(IN_PLACE[0])?, read(IN_PLACE[1])?) {
        (Some(last), done) => Some([done.unwrap_or(0), last]),
        (None, _) => None,
    })
}

/// Replaces a range of rows in the indexes of an old layout; returns whether there is more.
pub(crate) fn in_place_step(conn: &Connection, ids: i64) -> rusqlite::Result<bool> {
    let Some([done, last]) = in_place(conn)? else { return Ok(false) };
    let catalog = Catalog::read(conn)?;
    // An optimisation may have come in between, which has begun the indexes anew.
    let upto = match Layout::of(&catalog) {
        Layout::Inline => reach(conn, done, done.saturating_add(ids).min(last))?,
        _ => last,
    };
    for surface in [MESSAGES, TRIGRAM].iter().filter(|surface| catalog.has_table(surface.table)) {
        if Layout::of(&catalog) == Layout::Inline {
            surface.replace(conn, [done, upto], upto >= last)?;
        }
    }
    if upto < last {
        catalog::set_marker(conn, IN_PLACE[1], &upto.to_string())?;
        return Ok(true);
    }
    IN_PLACE.iter().try_for_each(|key| catalog::clear_marker(conn, key))?;
    Ok(false)
}

/// Fills an index of one of the old layouts, which have no markers, at one go.
pub(crate) fn rebuild_legacy(conn: &Connection, trigrams: bool) -> rusqlite::Result<bool> {
    let catalog = Catalog::read(conn)?;
    let layout = Layout::of(&catalog);
    let surface = if trigrams { &TRIGRAM } else { &MESSAGES };
    if !layout.is_legacy() || !surface.has_table(&catalog, layout) {
        return Ok(false);
    }
    surface.rebuild(conn, layout)?;
    Ok(true)
}
