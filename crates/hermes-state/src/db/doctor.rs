//! The examination of a store and of what it stands on.

use std::path::Path;

use super::SessionDb;
use super::open::OpenOptions;
use crate::backend::location::is_url;
use crate::backend::sqlite;
use crate::doctor::{Examination, Finding, IndexLag, Severity};
use crate::error::{Error, Result, ServerTrouble};
use crate::repair::PartState;
use crate::spool::Spool;
use crate::spool::health::told;
use crate::status::EngineStatus;

/// From which time on an answer of a server is felt.
const SLOW: std::time::Duration = std::time::Duration::from_millis(50);

impl OpenOptions {
    /// Examines the store at `location` and what it stands on: the file system, on which locks and shared memory are
    /// tried with a file that is gone at once; the journal, versions, sizes, permissions, the search indexes, the spool,
    /// and who has the store open. Of a server its version, how fast it answers, and what this role may do. The store
    /// itself is only looked at, may be in use, and need not be there; whether it is whole is for
    /// [`check_file`](SessionDb::check_file) to say.
    ///
    /// ```
    /// use hermes_state::{OpenOptions, Severity};
    /// let folder = tempfile::tempdir().unwrap();
    /// let found = OpenOptions::new().examine(folder.path().join("state.db"))?;
    /// assert!(!found.exists && found.worst() < Some(Severity::Damage));
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Server`] and [`Error::Unreachable`] for a server that cannot be asked; what is wrong with a file is a
    /// finding.
    pub fn examine(&self, location: impl AsRef<Path>) -> Result<Examination> {
        let location = location.as_ref();
        if location == Path::new(":memory:") {
            return Err(Error::Invalid("a store in memory has nothing that could be examined".to_owned()));
        }
        let mut found =
            if is_url(location) { self.examine_server(location)? } else { sqlite::doctor::examine(location)? };
        if let Some(spool) = Spool::of(location, self.spool_place())? {
            let status = spool.status();
            found.findings.extend(told(&status).into_iter().map(|told| {
                let severity = if told.state == PartState::Damaged { Severity::Problem } else { Severity::Warning };
                Finding::new(severity, "spool", told.finding, told.next_step)
            }));
            found.spool = status.ok();
        }
        Ok(found.conclude())
    }

    fn examine_server(&self, location: &Path) -> Result<Examination> {
        let supported = sqlite::schema::SCHEMA_VERSION;
        let db = match self.clone().read_only(true).open(location) {
            Ok(db) => db,
            Err(Error::Server { path, trouble: trouble @ ServerTrouble::NoStore { .. } }) => {
                let mut found = Examination::of(path, supported);
                let next = "Nothing: the first program that opens it for writing makes it.";
                found.findings.push(Finding::new(Severity::Notice, "store", trouble.to_string(), next));
                return Ok(found);
            }
            Err(error) => return Err(error),
        };
        db.examine_server(supported)
    }
}

impl SessionDb {
    fn examine_server(&self, supported: i64) -> Result<Examination> {
        let status = self.status()?;
        let mut found = Examination::of(status.path, supported);
        found.exists = true;
        found.schema_version = status.schema_version;
        found.open_by = status.open_by;
        let newest = "SELECT timestamp FROM messages ORDER BY id DESC LIMIT 1";
        found.newest_message = self.read(|transaction| Ok(transaction.scalar(newest, &[])?.as_f64()))?;
        found.index = Some(match self.fts_rebuild_status()? {
            None => IndexLag { filled: 100, unindexed: 0, degraded: self.search_indexes()?.damaged },
            Some(status) => {
                let unindexed = "SELECT COUNT(*) FROM messages WHERE id > ?1 AND id <= ?2";
                let range = [status.indexed.into(), status.total.into()];
                let unindexed = self.read(move |transaction| Ok(transaction.scalar(unindexed, &range)?.as_i64()))?;
                IndexLag { filled: status.percent.min(99), unindexed: unindexed.unwrap_or(0), degraded: true }
            }
        });
        found.server = self.open_store()?.examine_server()?;
        if let (Some(server), EngineStatus::Server { version, schema, bytes, encrypted, .. }) =
            (&mut found.server, status.engine)
        {
            (server.version, server.schema, server.bytes, server.encrypted) = (version, schema, bytes, encrypted);
            let mut say = |severity, message: String, next: &str| {
                found.findings.push(Finding::new(severity, "server", message, next));
            };
            if !server.may_write {
                let message = format!("the role {} may only read", server.role);
                say(
                    Severity::Notice,
                    message,
                    "Nothing, if reading is all that is wanted; else have the owner of the schema GRANT more.",
                );
            } else if !server.may_upgrade {
                let message =
                    format!("the role {} may store messages, but not bring the schema up to date", server.role);
                say(
                    Severity::Notice,
                    message,
                    "Have the owner of the schema open the store after an upgrade of this program.",
                );
            }
            if server.latency > SLOW {
                let message = format!(
                    "the server takes {:.0} ms to answer, which every write pays for",
                    server.latency.as_secs_f64() * 1e3
                );
                say(Severity::Warning, message, "Use a server that is nearer, or find what slows the way to it.");
            }
            if server.connections * 10 >= server.max_connections * 9 {
                let message = format!("{} of {} connections are taken", server.connections, server.max_connections);
                say(
                    Severity::Warning,
                    message,
                    "Raise max_connections on the server, or end clients that are not needed.",
                );
            }
        }
        Ok(found)
    }
}
