//! Backing a store up while it is in use, and restoring one.

use std::path::Path;

use super::SessionDb;
use crate::backend::location::is_url;
use crate::backend::sqlite::backup;
use crate::backup::{BackupOptions, BackupProgress, BackupReport, RestoreOptions, RestoreReport};
use crate::error::{Error, Result};

impl SessionDb {
    /// Copies the store into the file `target`, as it is at one moment, search indexes included, while others go on
    /// writing: nobody waits for it. The copy is made beside its name, readable for this user only, is looked at, and
    /// takes its name in one step, so that an earlier backup there stays whole whatever happens. If that holds the same as
    /// the store already, nothing is written; otherwise all of it is copied, however little has changed: a file cannot be
    /// changed in part and be whole at every moment. A backup is a store, and can be opened as one.
    ///
    /// Writers wait only where the store has a rollback journal and they leave the copy no time to be made. Two backups
    /// into the same file are not made at once.
    ///
    /// `progress` is told how far it is, about ten times a second; its error ends the backup and is returned.
    ///
    /// ```
    /// # use hermes_state::{NewSession, RestoreOptions, SessionDb, restore};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("state.db");
    /// # let backup = folder.path().join("backup.db");
    /// let db = SessionDb::open(&path)?;
    /// db.create_session(NewSession::new("s1", "cli"))?;
    /// let report = db.backup(&backup, &Default::default(), &mut |_| Ok(()))?;
    /// assert_eq!((report.copied, report.sessions), (true, 1));
    /// db.close()?;
    ///
    /// let report = restore(&backup, &path, &RestoreOptions::default(), &mut |_| Ok(()))?;
    /// println!("what was there before is {:?} now", report.kept);
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Full`] and [`Error::CannotOpen`] of the target; [`Error::InUse`] if somebody has the backup that is there
    /// open, or makes the same; [`Error::Corrupt`] if messages cannot be read; [`Error::Invalid`] for a target that is
    /// the store itself or something else than a store, and for a store on a server, whose own tools back it up;
    /// those of every read and of `progress`. An earlier backup is as it was then.
    pub fn backup(
        &self,
        target: impl AsRef<Path>,
        options: &BackupOptions,
        progress: &mut dyn FnMut(&BackupProgress) -> Result<()>,
    ) -> Result<BackupReport> {
        let target = of_a_file(target.as_ref(), "a backup is a file")?;
        self.open_store()?.backup(target, options, progress)
    }
}

/// Makes the backup in the file `backup` the store at `path`. It is copied beside the store and looked at before anything
/// is touched; then it takes the store's name in one step. The file that was the store is kept under the name that the
/// report tells, with all that was in its log. Nobody may have the store open: whoever does is named, and nothing is
/// changed. A store that is missing or damaged is replaced too; a log that cannot be merged any more is kept as well.
///
/// # Errors
/// [`Error::InUse`] names who has the store open; [`Error::Corrupt`], [`Error::NotADatabase`], [`Error::TooNew`] and
/// [`Error::CannotOpen`] are about the backup; [`Error::Full`] without room for the copy; [`Error::Invalid`] for a
/// database that is no store, and for stores on a server; those of `progress`. The store is as it was then.
pub fn restore(
    backup: impl AsRef<Path>,
    path: impl AsRef<Path>,
    options: &RestoreOptions,
    progress: &mut dyn FnMut(&BackupProgress) -> Result<()>,
) -> Result<RestoreReport> {
    let backup = of_a_file(backup.as_ref(), "a backup is a file")?;
    let path = of_a_file(path.as_ref(), "a file is restored as a file")?;
    backup::restore(backup, path, options, progress)
}

fn of_a_file<'a>(path: &'a Path, rule: &str) -> Result<&'a Path> {
    let why = if is_url(path) {
        "`migrate` copies a store to a server or from there"
    } else if path == Path::new(":memory:") {
        "what is in memory ends with its process"
    } else {
        return Ok(path);
    };
    Err(Error::Invalid(format!("{rule}; {why}")))
}
