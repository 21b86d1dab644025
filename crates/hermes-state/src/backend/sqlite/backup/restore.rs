//! Makes a backup the store, and keeps the file that was the store.

use std::path::{Path, PathBuf};

use super::super::connection::Location;
use super::super::errors::classify;
use super::super::identity::FileIdentity;
use super::super::onlooker;
use super::super::readers::{begin_reading, patiently_reading};
use super::super::repair::exclusive::Exclusive;
use super::super::repair::existing;
use super::super::repair::work::free_name;
use super::super::status;
use super::super::store::{absolute, prepare_folder, resolved};
use super::draft::Draft;
use super::watch::{Progress, Watch, attended};
use super::{copy, no_store, replace};
use crate::backend::sqlite::schema::SCHEMA_VERSION;
use crate::backup::{RestoreOptions, RestoreReport};
use crate::error::{Error, Result};

/// What the name of a replaced store goes on with.
const MARK: &str = ".before-restore-";

/// Restores the store at `path` from `backup`.
pub(crate) fn restore(
    backup: &Path,
    path: &Path,
    options: &RestoreOptions,
    progress: Progress<'_>,
) -> Result<RestoreReport> {
    let backup = existing(backup)?;
    let path = resolved(absolute(path)?);
    if FileIdentity::of(&path) == FileIdentity::of(&backup) {
        let what = format!("{} is the store itself; name its backup", backup.display());
        return Err(Error::Invalid(what));
    }
    let options = options.clone();
    attended(progress, move |watch| run(backup, path, &options, watch))
}

fn run(backup: PathBuf, path: PathBuf, options: &RestoreOptions, watch: &Watch) -> Result<RestoreReport> {
    refuse_users(&path)?;
    let failed = |error: rusqlite::Error| classify(&backup, &error);
    let source = patiently_reading(&backup, || onlooker::open_as_it_is(&Location::File(backup.clone())))?;
    begin_reading(&source, &backup)?;
    if !copy::is_store(&source).map_err(failed)? {
        return Err(no_store(&backup));
    }
    if let Some(found) = status::read(&source).map_err(failed)?.schema_version
        && found > SCHEMA_VERSION
    {
        return Err(Error::TooNew { path: backup, found, supported: SCHEMA_VERSION });
    }
    prepare_folder(&path)?;
    let mut draft = Draft::begin(&path, watch)?;
    let seen = copy::copy(&source, &backup, &mut draft, watch)?;
    drop(source);
    let copied = copy::verify(&mut draft, &backup, seen.as_ref(), options.check, watch)?;
    draft.take_after_target()?;
    replace::remove_second_names(&path, MARK);
    let aside = free_name(&path, MARK, options.stamp.as_deref());
    let kept = replace::replace(draft, Some(aside))?;
    let copy::Copied { bytes, sessions, messages, health } = copied;
    Ok(RestoreReport { path, backup, kept: kept.file, kept_log: kept.log, bytes, sessions, messages, health })
}

/// Refuses at once where somebody has the store open; whether nobody has is asked again when it is replaced.
fn refuse_users(path: &Path) -> Result<()> {
    if status::bytes(path) == 0 {
        return Ok(());
    }
    match Exclusive::take(path) {
        Err(error @ Error::InUse { .. }) => Err(error),
        // What else is the matter with it is why it is restored.
        _ => Ok(()),
    }
}
