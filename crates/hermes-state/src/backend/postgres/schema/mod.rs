//! What the store's schema on a server must look like, and everything that opening one changes.
//!
//! An open asks one question, without a lock. Only if that finds work does it take the lock of openers and do all of it
//! in that one transaction: racing processes find either nothing done or everything.

use tokio_postgres::{Client, IsolationLevel, Transaction};

use super::errors::{Failure, classify, no_rights, server};
use super::url::Address;
use crate::backend::sqlite::schema::SCHEMA_VERSION;
use crate::error::ServerTrouble;

/// The migrations, in order; the place in this list, from one on, is the version of the layout.
const MIGRATIONS: [&str; 6] = [
    include_str!("0001.sql"),
    include_str!("0002.sql"),
    include_str!("0003.sql"),
    include_str!("0004.sql"),
    include_str!("0005.sql"),
    include_str!("0006.sql"),
];
/// The version of the layout that this release writes.
pub(crate) const LAYOUT_VERSION: i64 = MIGRATIONS.len() as i64;

/// What an open found, or made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inspection {
    /// The store is as this release wants it.
    UpToDate,
    /// The store is of an older release. Only looking finds this; bringing it up to date does not leave it so.
    Older,
    /// A newer release has written it; it may be read, and nothing of it changed.
    TooNew {
        /// The schema's or the layout's version, whichever is newer than `supported`.
        found: i64,
        /// The version of this release.
        supported: i64,
    },
}

/// The versions that are recorded in the schema; NULL where a table is empty.
#[derive(Debug, Clone, Copy)]
struct Versions {
    layout: Option<i64>,
    schema: Option<i64>,
}

impl Versions {
    fn inspection(self) -> Inspection {
        let newer = |found: Option<i64>, supported: i64| {
            found.filter(|found| *found > supported).map(|found| Inspection::TooNew { found, supported })
        };
        let current = self.layout == Some(LAYOUT_VERSION) && self.schema == Some(SCHEMA_VERSION);
        newer(self.schema, SCHEMA_VERSION).or_else(|| newer(self.layout, LAYOUT_VERSION)).unwrap_or(if current {
            Inspection::UpToDate
        } else {
            Inspection::Older
        })
    }
}

/// Names the tables with their schema: a missing right on it is then an error of its own, where a search path would
/// pass it over and find no tables.
fn versions_sql(address: &Address) -> String {
    format!(
        "SELECT (SELECT max(version) FROM \"{0}\".server_layout), (SELECT max(version) FROM \"{0}\".schema_version)",
        address.schema()
    )
}

/// The versions; `None` if there is no store.
async fn versions(client: &Client, address: &Address) -> Result<Option<Versions>, Failure> {
    match client.query_typed(&versions_sql(address), &[]).await {
        Ok(rows) => {
            let read = |index| match rows.first().map(|row| row.try_get(index)).transpose() {
                Ok(value) => Ok(value.flatten()),
                Err(error) => Err(classify(address, &error)),
            };
            Ok(Some(Versions { layout: read(0)?, schema: read(1)? }))
        }
        Err(error) => match error.code().map(|state| state.code()) {
            // No such table, no such schema.
            Some("42P01" | "3F000") => Ok(None),
            Some("42501") => Err(refused(address, "read", &error)),
            _ => Err(classify(address, &error)),
        },
    }
}

fn refused(address: &Address, what: &'static str, error: &tokio_postgres::Error) -> Failure {
    match error.as_db_error() {
        Some(db) if db.code().code() == "42501" => Failure::Failed(no_rights(address, what, db.message())),
        _ => classify(address, error),
    }
}

/// Looks at the store and changes nothing.
///
/// # Errors
///
/// [`ServerTrouble::NoStore`] if there is none.
pub(crate) async fn inspect_only(client: &Client, address: &Address) -> Result<Inspection, Failure> {
    match versions(client, address).await? {
        Some(versions) => Ok(versions.inspection()),
        None => {
            let schema = address.schema().to_owned();
            Err(Failure::Failed(server(address, ServerTrouble::NoStore { schema })))
        }
    }
}

/// Makes the store, or brings one of an older release up to date.
///
/// # Errors
///
/// [`ServerTrouble::NoRights`] if the user may not do what is missing.
pub(crate) async fn bring_up_to_date(client: &mut Client, address: &Address) -> Result<Inspection, Failure> {
    match versions(client, address).await?.map(Versions::inspection) {
        None | Some(Inspection::Older) => migrate(client, address).await,
        Some(settled) => Ok(settled),
    }
}

/// The key of the lock that openers take; advisory locks are per database already. FNV-1a, as the key has to be the
/// same in every release.
fn lock_key(schema: &str) -> i64 {
    let hash = format!("hermes-state layout of {schema}")
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    hash.cast_signed()
}

async fn migrate(client: &mut Client, address: &Address) -> Result<Inspection, Failure> {
    let failed = |error: tokio_postgres::Error| classify(address, &error);
    // Read committed: what was committed while this one waited for the lock must be seen.
    let builder = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).read_only(false);
    let transaction = builder.start().await.map_err(failed)?;
    let lock = format!("SELECT pg_advisory_xact_lock({})", lock_key(address.schema()));
    transaction.batch_execute(&lock).await.map_err(failed)?;
    let found = existing(&transaction, address).await?;
    if let Some(settled @ (Inspection::UpToDate | Inspection::TooNew { .. })) = found.map(Versions::inspection) {
        return Ok(settled);
    }
    let done = found.and_then(|versions| versions.layout).unwrap_or(0);
    for (version, sql) in (1..).zip(MIGRATIONS).filter(|(version, _)| *version > done) {
        let record = format!(
            "INSERT INTO server_layout (version, applied_at) VALUES ({version}, extract(epoch FROM clock_timestamp()))"
        );
        for part in [sql, &record] {
            let what = "create or change tables and functions";
            transaction.batch_execute(part).await.map_err(|error| refused(address, what, &error))?;
        }
    }
    let stamp = format!(
        "INSERT INTO schema_version (version) SELECT {SCHEMA_VERSION} WHERE NOT EXISTS (SELECT 1 FROM schema_version); \
         UPDATE schema_version SET version = {SCHEMA_VERSION} WHERE version < {SCHEMA_VERSION}"
    );
    transaction.batch_execute(&stamp).await.map_err(|error| refused(address, "write", &error))?;
    transaction.commit().await.map_err(failed)?;
    Ok(Inspection::UpToDate)
}

/// Makes the schema if it is missing, and reads the versions if there are any. Asking first keeps users out of trouble
/// who may create in the schema but not the schema itself: the server refuses them also when there is nothing to do.
async fn existing(transaction: &Transaction<'_>, address: &Address) -> Result<Option<Versions>, Failure> {
    let failed = |error: tokio_postgres::Error| classify(address, &error);
    let schema = address.schema();
    let sql = format!(
        "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = '{schema}'), \
         EXISTS (SELECT 1 FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace \
         WHERE nspname = '{schema}' AND relname = 'server_layout')"
    );
    let row = transaction.query_one(&sql, &[]).await.map_err(failed)?;
    let (has_schema, has_layout): (bool, bool) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
    if has_layout {
        let row = transaction.query_one(&versions_sql(address), &[]).await.map_err(failed)?;
        return Ok(Some(Versions { layout: row.try_get(0).map_err(failed)?, schema: row.try_get(1).map_err(failed)? }));
    }
    if !has_schema {
        let what = "create anything (the schema itself is missing)";
        let create = format!("CREATE SCHEMA \"{schema}\"");
        transaction.batch_execute(&create).await.map_err(|error| refused(address, what, &error))?;
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
