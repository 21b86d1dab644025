//! The health of a file, and its repair. All of it is about files that no handle can be had on, or should.

use std::path::Path;

use super::SessionDb;
use crate::backend::location::is_url;
use crate::backend::sqlite::repair;
use crate::error::{Error, Result};
use crate::repair::{CheckDepth, Health, RepairOptions, RepairReport};
use crate::spool::Spool;

impl SessionDb {
    /// Looks at the file of a store and says how it is. Changes nothing and waits for nobody; the store may be in use.
    ///
    /// ```
    /// use hermes_state::{CheckDepth, SessionDb};
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("state.db");
    /// SessionDb::open(&path)?.close()?;
    /// assert!(SessionDb::check_file(&path, CheckDepth::Full)?.is_well());
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::CannotOpen`] where there is no file, [`Error::NotADatabase`] for one that is none; [`Error::Invalid`] for
    /// a store on a server, which looks after its own.
    pub fn check_file(path: impl AsRef<Path>, depth: CheckDepth) -> Result<Health> {
        let path = of_a_file(path.as_ref(), "checked")?;
        let mut health = repair::look(path, depth)?;
        health.parts.extend(Spool::of(path, None)?.map(|spool| spool.health()));
        Ok(health)
    }

    /// What keeps the file of a store from being read, searched or written, in SQLite's words; `None` if nothing does.
    /// Writing is tried and undone. Being busy, or protected from this user, is no ailment.
    ///
    /// # Errors
    /// Those of [`check_file`](SessionDb::check_file).
    pub fn file_ailment(path: impl AsRef<Path>) -> Result<Option<String>> {
        repair::ailment(of_a_file(path.as_ref(), "checked")?)
    }

    /// Repairs the file of a store, if something is wrong with it.
    ///
    /// What helps is found on a copy: search indexes are filled anew, ordinary indexes made anew, objects that the schema
    /// has twice removed; if all that does not help, every row that can be read is put into a new file, with a session for
    /// messages whose own is lost. Only when the copy is well it takes the file's name, in one step; the damaged file
    /// keeps another. Until then, and if nothing helps, it stays as it was. The file must not be in use.
    ///
    /// # Errors
    /// [`Error::InUse`] names who has it open; [`Error::TooNew`] for a file of a newer release; [`Error::Corrupt`] if it is
    /// beyond repair; [`Error::Full`] without room for the copy; and those of [`check_file`](SessionDb::check_file).
    pub fn repair_file(path: impl AsRef<Path>, options: &RepairOptions) -> Result<RepairReport> {
        repair::repair(of_a_file(path.as_ref(), "repaired")?, options)
    }
}

fn of_a_file<'a>(path: &'a Path, what: &str) -> Result<&'a Path> {
    let why = if is_url(path) {
        "a store on a server is looked after by the server: ask whoever runs it"
    } else if path == Path::new(":memory:") {
        "a store in memory has no file"
    } else {
        return Ok(path);
    };
    Err(Error::Invalid(format!("only a store in a file can be {what}; {why}")))
}
