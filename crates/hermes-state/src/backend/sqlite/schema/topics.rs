//! The tables of Telegram topics: made when they are first asked for, and rebuilt where an older release made them so
//! that a topic kept its session from being deleted.
//!
//! Older releases rebuild in several transactions: they fill a second table, drop the first, and rename. What is left
//! when that was cut short tells by itself where.

use rusqlite::Connection;

use super::catalog::{self, Catalog};
use super::{TOPICS_SQL, columns};
use crate::transaction::TOPIC_BINDINGS;

/// Where older releases build the table anew.
const LEFT_OVER: &str = "telegram_dm_topic_bindings_new";
/// Where ours keeps the rows meanwhile; it never outlives the transaction.
const ASIDE: &str = "telegram_dm_topic_bindings_rebuilding";
/// What keeps a session from having two topics.
const ONE_EACH: &str = "idx_telegram_dm_topic_bindings_session";

/// Makes what is missing; with `mend`, brings what is there to the present shape.
pub(in crate::backend::sqlite) fn ensure(conn: &Connection, mend: bool) -> rusqlite::Result<()> {
    if !mend {
        return conn.execute_batch(TOPICS_SQL);
    }
    let catalog = Catalog::read(conn)?;
    let is_there = catalog.has_table(TOPIC_BINDINGS);
    let is_old = is_there && !cascades(conn)?;
    let rebuild = is_old || is_there && !catalog.has_index(ONE_EACH);
    let live = catalog::columns(conn, TOPIC_BINDINGS)?;
    if rebuild {
        conn.execute_batch(&format!(
            "CREATE TABLE {ASIDE} AS SELECT * FROM {TOPIC_BINDINGS}; DROP TABLE {TOPIC_BINDINGS};"
        ))?;
    }
    conn.execute_batch(TOPICS_SQL)?;
    if rebuild {
        let known = catalog::columns(conn, TOPIC_BINDINGS)?;
        let is_known = |name: &str| known.iter().any(|column| column.name.eq_ignore_ascii_case(name));
        for column in live.iter().filter(|column| !is_known(&column.name) && !column.needs_empty_table()) {
            columns::add(conn, TOPIC_BINDINGS, column)?;
        }
        adopt(conn, ASIDE)?;
    }
    if catalog.has_table(LEFT_OVER) {
        if is_old {
            // The rebuilding had not come to dropping the old table, which therefore has everything.
            conn.execute_batch(&format!("DROP TABLE {LEFT_OVER}"))?;
        } else {
            adopt(conn, LEFT_OVER)?;
        }
    }
    Ok(())
}

/// Whether bindings go with their sessions.
fn cascades(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row(
        "SELECT EXISTS (SELECT 1 FROM pragma_foreign_key_list(?1) \
         WHERE lower(\"table\") = 'sessions' AND upper(on_delete) = 'CASCADE')",
        [TOPIC_BINDINGS],
        |row| row.get(0),
    )
}

/// Takes the rows of another table in and drops it. What is there stays; of several rows for one session the last
/// changed is taken. A binding of a session that no longer exists binds nothing.
fn adopt(conn: &Connection, from: &str) -> rusqlite::Result<()> {
    let found = catalog::columns(conn, from)?;
    let shared: Vec<String> = catalog::columns(conn, TOPIC_BINDINGS)?
        .iter()
        .filter(|column| found.iter().any(|found| found.name.eq_ignore_ascii_case(&column.name)))
        .map(|column| catalog::quoted(&column.name))
        .collect();
    let names = shared.join(", ");
    conn.execute_batch(&format!(
        "INSERT OR IGNORE INTO {TOPIC_BINDINGS} ({names}) SELECT {names} FROM {from} \
         WHERE session_id IN (SELECT id FROM sessions) ORDER BY updated_at DESC; DROP TABLE {from};"
    ))
}
