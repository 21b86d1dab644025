//! Sessions as they come in from exports.

use super::SessionDb;
use crate::error::Result;
use crate::op::import::{ImportEntry, ImportOptions, ImportReport, ImportSessions, check, preview};

impl SessionDb {
    /// Brings in sessions that [`export_session`](SessionDb::export_session) and its brothers gave out, of this store or
    /// another one: all in one transaction, or, if anything is wrong with one of them, none. A session that the store
    /// has is skipped and stays as it is. Messages get new ids and are all active.
    ///
    /// ```
    /// use hermes_state::{ImportOptions, SessionDb};
    /// let folder = tempfile::tempdir().unwrap();
    /// let db = SessionDb::open(folder.path().join("state.db"))?;
    /// let session = r#"{"id": "s1", "messages": [{"role": "user", "content": "Where is the harbour?"}]}"#;
    /// let report = db.import_sessions([session], &ImportOptions::default())?;
    /// assert_eq!(report.imported_ids, ["s1"]);
    /// let again = db.import_sessions([session], &ImportOptions::default())?;
    /// assert_eq!(again.skipped_ids, ["s1"]);
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for more entries than [`ImportLimits`](crate::ImportLimits) allow; those
    /// of every write. What is wrong with an entry is no error but stands in the report.
    pub fn import_sessions<E: Into<ImportEntry>>(
        &self,
        entries: impl IntoIterator<Item = E>,
        options: &ImportOptions,
    ) -> Result<ImportReport> {
        let entries: Vec<ImportEntry> = entries.into_iter().map(Into::into).collect();
        let (sessions, errors) = check(&entries, &options.limits)?;
        drop(entries);
        if !errors.is_empty() {
            return Ok(ImportReport { errors, ..ImportReport::default() });
        }
        if sessions.is_empty() {
            return Ok(ImportReport::default());
        }
        if options.dry_run {
            return self.read(move |transaction| preview(transaction, &sessions));
        }
        let report = self.routine(ImportSessions(sessions))?;
        for id in &report.detached_ids {
            tracing::warn!(
                session = %id,
                "imported without its parent, which is neither in the store nor among the imported, or would be its own descendant"
            );
        }
        Ok(report)
    }
}
