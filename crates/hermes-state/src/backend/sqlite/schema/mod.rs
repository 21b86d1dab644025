//! What the file must look like: everything that opening a store looks for, and everything that it changes.
//!
//! An open asks [`inspect`] in a read transaction. Only if that finds work does it take the write lock and call
//! [`adopt`], which does all of it in that one transaction: racing processes find either nothing done or everything,
//! and so does whoever opens the file after a crash. No error of SQLite is taken for "already done".

mod backfill;
mod catalog;
mod cjk;
mod columns;
mod fts;
mod indexes;
mod migrate;
mod renewal;
mod sessions_json;
pub(super) mod stand_ins;
#[cfg(test)]
mod tests;
pub(super) mod topics;
mod unattended;
mod usage;

use std::fmt;

use rusqlite::Connection;

use catalog::Catalog;
use fts::Layout;
use migrate::Version;

pub(crate) use backfill::{
    begin_in_place, can_be_filled, in_place, in_place_step, is_ours, markers, rebuild_legacy, step,
};
pub(in crate::backend::sqlite) use catalog::quoted;
pub(in crate::backend::sqlite) use renewal::TRASH;
pub(crate) use renewal::{clear_step, is_due, is_marked_damaged, renew, renew_all, renew_cjk};
pub(crate) use unattended::{Pending, pending};

pub use columns::{SchemaColumns, parse_schema_columns};

/// The version of the schema that this release writes.
pub const SCHEMA_VERSION: i64 = 23;
/// The version of the full-text layout, counted apart from the schema.
pub const FTS_STORAGE_VERSION: i64 = 1;

/// A script, safe to run again, that makes the base tables and base indexes and nothing else.
pub const SCHEMA_SQL: &str = concat!(include_str!("tables.sql"), include_str!("indexes.sql"));
/// A script, safe to run again, that makes the tables and indexes of Telegram topics. They are no part of the base: a
/// file has them only once somebody asked for them.
pub(crate) const TOPICS_SQL: &str = include_str!("topics.sql");
const TABLES_SQL: &str = include_str!("tables.sql");
const INDEXES_SQL: &str = include_str!("indexes.sql");
const LATE_INDEXES_SQL: &str = include_str!("late_indexes.sql");
/// What stores get that know keys of callers.
pub(crate) const CLIENT_KEYS_SQL: &str = include_str!("client_keys.sql");
/// What stores get that have given a lease.
pub(crate) const LEASES_SQL: &str = include_str!("leases.sql");
/// Which spooled writes are stored; made when the first of them is.
pub(crate) const SPOOL_NOTES_SQL: &str = include_str!("spool_notes.sql");

/// What an open has to be told, since the library reads no environment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Context {
    /// The text of `sessions/sessions.json` in the home folder, which a file older than version 18 is completed from.
    pub(crate) sessions_json: Option<String>,
    /// Whether the tokenizer of the cjk index is installed on this host for every program, and switched on.
    pub(crate) cjk: bool,
    /// Whether nobody else has the file, so that indexes may be filled under one lock however long that takes.
    pub(crate) alone: bool,
}

/// What [`inspect`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Inspection {
    /// Nothing to do.
    UpToDate(Features),
    /// [`adopt`] would change something.
    NeedsWork {
        /// Whether it would look at [`Context::sessions_json`].
        sessions_json: bool,
    },
    /// A newer release has written the file; it may be read, and not a byte of it changed.
    TooNew {
        /// The version that the file has.
        found: i64,
    },
}

/// What [`adopt`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Adoption {
    /// The file is up to date now.
    Done {
        /// What a handle on it may use.
        features: Features,
        /// What the caller should log.
        notes: Vec<Note>,
    },
    /// A newer release came first; nothing was touched.
    TooNew {
        /// The version that the file has.
        found: i64,
    },
}

/// What of a file's full-text indexes may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Features {
    /// `messages_fts` is there and kept.
    pub(crate) fts: bool,
    /// `messages_fts_trigram` is there and kept.
    pub(crate) trigram: bool,
    /// `messages_fts_cjk` is there, kept and complete.
    pub(crate) cjk: bool,
    /// The indexes have the layout of older releases: one column, and no markers.
    pub(crate) legacy_fts: bool,
}

/// Something that happened to a file and that its owner may want to know. The caller logs it after the commit: code of
/// others, as loggers are, must not run under the write lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// The data of an older version was brought up to date.
    Migrated {
        /// That version.
        from: i64,
    },
    /// So many sessions lost a title that a later session has too.
    TitlesCleared(usize),
    /// So many usage rows were dropped because their session no longer exists.
    UsageOfGoneSessions(usize),
    /// Triggers of the index had gone missing; it was filled anew.
    IndexRebuilt(&'static str),
    /// The same, but there was too much to fill in while others wait: the indexes were begun anew.
    IndexesBegun,
    /// The tokenizer is gone from this host, so the cjk index was taken out of service.
    CjkDetached,
    /// A write met a damaged full-text index; the indexes were begun anew and are being filled.
    IndexesRenewed,
    /// The cjk index could not be made; this is what SQLite said.
    CjkUnavailable(String),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Migrated { from } => write!(f, "brought a file of schema version {from} to version {SCHEMA_VERSION}"),
            Self::TitlesCleared(count) => {
                write!(f, "cleared the duplicate titles of {count} session(s); the latest of each title keeps it")
            }
            Self::UsageOfGoneSessions(count) => {
                write!(f, "dropped {count} usage row(s) of sessions that no longer exist")
            }
            Self::IndexRebuilt(table) => {
                write!(f, "rebuilt the full-text index {table}, which was not kept for a while")
            }
            Self::IndexesBegun => write!(
                f,
                "a full-text index was not kept for a while: searches read rows instead until the indexes are rebuilt; call for that (rebuild_fts), or it is done behind the writes"
            ),
            Self::CjkDetached => write!(
                f,
                "the cjk tokenizer is not installed here: its index is out of use until the search storage is optimised where it is"
            ),
            Self::IndexesRenewed => write!(
                f,
                "a full-text index was damaged: the transcript is intact, and searches read rows instead until the indexes are rebuilt; call for that (rebuild_fts), or it begins behind the writes in a minute"
            ),
            Self::CjkUnavailable(error) => write!(f, "the cjk index cannot be used: {error}"),
        }
    }
}

/// Whether an open has to change anything; reads only, and little.
///
/// # Errors
///
/// Whatever SQLite reports.
pub(crate) fn inspect(conn: &Connection, context: &Context) -> rusqlite::Result<Inspection> {
    let catalog = Catalog::read(conn)?;
    let version = Version::read(conn, &catalog)?;
    if let Some(found) = version.newer() {
        return Ok(Inspection::TooNew { found });
    }
    // In this order: what comes later reads tables and columns that what comes first has found complete.
    let up_to_date = version.is_settled()
        && columns::complete(conn, &catalog)?
        && indexes::complete(&catalog)?
        && usage::complete(conn, &catalog)?
        && fts::complete(&catalog)
        && cjk::complete(conn, &catalog, context)?
        && !has_messages_without_state(conn)?
        && migrate::is_stamped(conn, &catalog)?;
    if up_to_date {
        Ok(Inspection::UpToDate(features_of(conn, &catalog, context)?))
    } else {
        Ok(Inspection::NeedsWork { sessions_json: version.is_below(18) })
    }
}

/// Brings a file of any older release, or an empty one, to the shape that this release works on.
///
/// The caller has begun an immediate transaction and commits it, or rolls back on an error. The pragmas of the
/// connection are set before; foreign keys are expected to be on.
///
/// # Errors
///
/// Whatever SQLite reports; a lock error too, none is swallowed.
pub(crate) fn adopt(conn: &Connection, context: &Context) -> rusqlite::Result<Adoption> {
    let mut notes = Vec::new();
    // Each step reads the catalogue anew, since the one before has changed it.
    let catalog = || Catalog::read(conn);
    if let Some(found) = Version::read(conn, &catalog()?)?.newer() {
        return Ok(Adoption::TooNew { found });
    }
    conn.execute_batch(TABLES_SQL)?;
    columns::reconcile(conn)?;
    usage::ensure(conn, &catalog()?, &mut notes)?;
    indexes::ensure(conn, &catalog()?, &mut notes)?;
    fts::ensure(conn, &catalog()?, context, &mut notes)?;
    cjk::ensure(conn, &catalog()?, context, &mut notes)?;
    if has_messages_without_state(conn)? {
        conn.execute("UPDATE messages SET active = 1 WHERE active IS NULL", [])?;
    }
    migrate::run(conn, &catalog()?, context, &mut notes)?;
    migrate::stamp(conn, &catalog()?)?;
    Ok(Adoption::Done { features: features_of(conn, &catalog()?, context)?, notes })
}

/// What a handle that may not change the file can use of it.
///
/// # Errors
///
/// Whatever SQLite reports.
#[cfg(test)]
pub(crate) fn features(conn: &Connection, context: &Context) -> rusqlite::Result<Features> {
    features_of(conn, &Catalog::read(conn)?, context)
}

/// Which of the full-text indexes are there and kept by their triggers, whatever they hold: words, trigrams, cjk.
///
/// # Errors
///
/// Whatever SQLite reports.
pub(crate) fn kept_indexes(conn: &Connection) -> rusqlite::Result<[bool; 3]> {
    let catalog = Catalog::read(conn)?;
    Ok([fts::is_kept(&fts::MESSAGES, &catalog), fts::is_kept(&fts::TRIGRAM, &catalog), cjk::is_kept(&catalog)])
}

/// Whether the full-text indexes have the layout of an older release.
///
/// # Errors
///
/// Whatever SQLite reports.
pub(crate) fn is_legacy(conn: &Connection) -> rusqlite::Result<bool> {
    Ok(Layout::of(&Catalog::read(conn)?).is_legacy())
}

/// Makes the cjk index, or what is missing of it, where the tokenizer is everybody's; one with gaps is begun anew.
///
/// # Errors
///
/// Whatever SQLite reports.
pub(crate) fn ensure_cjk(conn: &Connection) -> rusqlite::Result<()> {
    if catalog::has_marker(conn, cjk::STALE)? {
        renew_cjk(conn)
    } else if Layout::of(&Catalog::read(conn)?).is_legacy() {
        Ok(())
    } else {
        cjk::attach(conn, &Catalog::read(conn)?)
    }
}

/// Notes down that the full-text storage is up to date.
///
/// # Errors
///
/// Whatever SQLite reports.
pub(crate) fn settle(conn: &Connection) -> rusqlite::Result<()> {
    migrate::settle(conn)
}

fn features_of(conn: &Connection, catalog: &Catalog, context: &Context) -> rusqlite::Result<Features> {
    Ok(Features {
        fts: fts::is_kept(&fts::MESSAGES, catalog),
        trigram: fts::is_kept(&fts::TRIGRAM, catalog),
        cjk: cjk::serves(conn, catalog, context)?,
        legacy_fts: Layout::of(catalog).is_legacy(),
    })
}

/// Whether a message is neither active nor inactive, as a column added without a default left them.
fn has_messages_without_state(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row("SELECT EXISTS (SELECT 1 FROM messages WHERE active IS NULL)", [], |row| row.get(0))
}
