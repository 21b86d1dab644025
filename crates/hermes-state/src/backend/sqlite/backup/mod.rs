//! Backups of a store that is in use, and restoring one. Both make a copy beside its name, look at it, and rename it.

mod compare;
mod copy;
mod draft;
mod replace;
mod restore;
pub(crate) mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;

use super::connection::Location;
use super::errors::{cannot_open, classify};
use super::identity::FileIdentity;
use super::onlooker;
use super::readers::{Readers, begin_reading};
use super::status;
use super::store::{absolute, refuse_truncated, resolved};
use crate::backup::{BackupOptions, BackupReport};
use crate::error::{Error, Result};
use crate::repair::Health;
use draft::Draft;
use watch::{Progress, Watch, attended};

pub(crate) use restore::restore;

/// Backs up the store that these read from.
pub(super) fn backup(
    readers: &Arc<Readers>,
    target: &Path,
    options: &BackupOptions,
    progress: Progress<'_>,
) -> Result<BackupReport> {
    let target = resolved(absolute(target)?);
    let _permit = readers.permit();
    let (readers, options) = (readers.clone(), options.clone());
    attended(progress, move |watch| run(&readers, target, &options, watch))
}

fn run(readers: &Readers, target: PathBuf, options: &BackupOptions, watch: &Watch) -> Result<BackupReport> {
    let previous = previous(readers, &target)?.filter(|_| !options.always_copy);
    // One connection reads all the while: whatever becomes of its transactions, the log is not removed under our hands.
    let (draft, seen, origin) = readers.read_directly(|store, path| {
        if let Some(previous) = &previous {
            if compare::is_same(store, previous, watch)? {
                return Ok((None, None, path.to_owned()));
            }
            // The comparing may have taken long; what others have written meanwhile is to be in the copy.
            renew(store, path)?;
        }
        let mut draft = Draft::begin(&target, watch)?;
        let seen = copy::copy(store, path, &mut draft, watch)?;
        Ok((Some(draft), seen, path.to_owned()))
    })?;
    let Some(mut draft) = draft else { return unchanged(target, previous.as_ref()) };
    drop(previous);
    let copied = copy::verify(&mut draft, &origin, seen.as_ref(), options.check, watch)?;
    replace::replace(draft, None)?;
    let copy::Copied { bytes, sessions, messages, health } = copied;
    Ok(BackupReport { target, copied: true, bytes, sessions, messages, health })
}

/// Lets go of what the connection sees, and looks anew.
fn renew(store: &Connection, path: &Path) -> Result<()> {
    if !store.is_autocommit() {
        store.execute_batch("COMMIT").map_err(|error| classify(path, &error))?;
    }
    begin_reading(store, path)
}

fn unchanged(target: PathBuf, backup: Option<&Connection>) -> Result<BackupReport> {
    let found = backup.map(status::read).transpose().map_err(|error| classify(&target, &error))?;
    let (sessions, messages) = found.map_or((0, 0), |found| (found.sessions, found.messages));
    let bytes = status::bytes(&target);
    Ok(BackupReport { target, copied: false, bytes, sessions, messages, health: Health::default() })
}

/// A connection on the backup that is there, if there is one and it can be read. What is no backup is left alone.
fn previous(readers: &Readers, target: &Path) -> Result<Option<Connection>> {
    refuse_truncated(target)?;
    let Ok(found) = std::fs::metadata(target) else { return Ok(None) };
    if !found.is_file() {
        return Err(cannot_open(target.to_owned()));
    }
    let store = readers.path();
    if FileIdentity::of(target) == FileIdentity::of(store) {
        let what = format!("{} is the store itself; name another file for its backup", target.display());
        return Err(Error::Invalid(what));
    }
    if found.len() == 0 {
        return Ok(None);
    }
    let connection =
        onlooker::open_as_it_is(&Location::File(target.to_owned())).map_err(|error| classify(target, &error))?;
    match copy::is_store(&connection).map_err(|error| classify(target, &error)) {
        Ok(true) => Ok(Some(connection)),
        // A backup that time has damaged is of no use to anybody.
        Err(Error::Corrupt { .. }) => Ok(None),
        Ok(false) | Err(Error::NotADatabase { .. }) => Err(no_store(target)),
        Err(error) => Err(error),
    }
}

/// The error for a file that holds something else.
fn no_store(path: &Path) -> Error {
    Error::Invalid(format!("{} is not a session store, so it is left alone; name another file", path.display()))
}
