//! Work on the full-text indexes that somebody began: whether there is some, and for how long nobody has been at it.
//!
//! Whoever does a step of it notes the time in the same transaction. Releases that note none are given as much time as
//! the one who looks wants to give.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension};

use super::catalog::{self, Catalog};
use super::fts::{CJK, MESSAGES};
use super::renewal::TRASH;

/// The marker with the time of the last step, in seconds of the clock.
const TOUCHED: &str = "hermes_state_index_touched";

/// Work that is there to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pending {
    /// For how long nobody has been at it, if that was noted.
    pub(crate) idle: Option<Duration>,
}

/// Whether there are rows to be indexed, or remains to be removed; reads only.
pub(crate) fn pending(conn: &Connection, cjk: bool, now: SystemTime) -> rusqlite::Result<Option<Pending>> {
    let catalog = Catalog::read(conn)?;
    let is_begun = catalog::has_marker(conn, &MESSAGES.high_water())?
        || cjk && catalog::has_marker(conn, &CJK.high_water())? && !catalog::has_marker(conn, super::cjk::STALE)?;
    if !is_begun && !catalog.has_table_starting(TRASH) {
        return Ok(None);
    }
    let sql = "SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = ?1";
    let touched: Option<i64> = conn.query_row(sql, [TOUCHED], |row| row.get(0)).optional()?.flatten();
    // A clock that was set back says nothing.
    let idle = touched.map(|touched| Duration::from_secs(seconds(now).abs_diff(touched)));
    Ok(Some(Pending { idle }))
}

/// Notes that somebody is at work.
pub(super) fn touch(conn: &Connection) -> rusqlite::Result<()> {
    catalog::set_marker(conn, TOUCHED, &seconds(SystemTime::now()).to_string())
}

/// Notes that there is no more to do.
pub(super) fn settle(conn: &Connection) -> rusqlite::Result<()> {
    catalog::clear_marker(conn, TOUCHED)
}

fn seconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::renewal;
    use super::*;

    #[test]
    fn work_is_idle_since_its_last_step() {
        let conn = super::super::tests::fresh();
        let now = SystemTime::now();
        assert_eq!(pending(&conn, false, now).unwrap(), None);
        renewal::renew(&conn).unwrap();
        let idle = pending(&conn, false, now + Duration::from_secs(100)).unwrap().unwrap().idle.unwrap();
        assert!((90..=110).contains(&idle.as_secs()), "{idle:?}");
        settle(&conn).unwrap();
        assert_eq!(pending(&conn, false, now).unwrap(), Some(Pending { idle: None }));
    }
}
