//! Puts a finished copy under its name, where another file may be. At every moment the name leads to a whole file, and
//! no log of one file is ever beside another.

use std::path::{Path, PathBuf};

use super::super::identity::{FileIdentity, sidecar};
use super::super::repair::exclusive::{Exclusive, users};
use super::super::repair::work::told;
use super::super::status;
use super::super::store::birth;
use super::draft::Draft;
use crate::error::{Error, Result};

/// Where the replaced file is now, and its log if that could not be merged.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) file: Option<PathBuf>,
    pub(super) log: Option<PathBuf>,
}

/// Puts `draft` in its place, when nobody has the file that is there open. That one gets the name `aside`, and is gone
/// without one; one that SQLite cannot open is only replaced if it is kept.
pub(super) fn replace(draft: Draft, aside: Option<PathBuf>) -> Result<Kept> {
    let target = draft.target().to_owned();
    let mut kept = Kept::default();
    if status::bytes(&target) == 0 {
        if let Some(aside) = &aside {
            kept.log = set_log_aside(&target, aside)?;
        }
        // An empty file is as good as none, and one that can be locked: nobody begins a store there meanwhile.
        birth::create_private(&target);
    } else {
        kept.file = aside.clone();
    }
    match (Exclusive::take(&target), aside) {
        (Ok(present), aside) => {
            match (present.merge_log(), &aside) {
                (Err(error), Some(aside)) if is_damage(&error) => kept.log = set_log_aside(&target, aside)?,
                (merged, _) => merged?,
            }
            if let Some(name) = &kept.file {
                present.keep_as(name)?;
            }
            present.remove_sidecars();
            put(draft, &kept)?;
        }
        (Err(error), Some(aside)) if is_damage(&error) => {
            let users = users(&target);
            if !users.is_empty() {
                return Err(Error::InUse { path: target, users });
            }
            // Where a file can have one name only, there is none for a moment; nobody could open this one anyway.
            if std::fs::hard_link(&target, &aside).is_err() {
                std::fs::rename(&target, &aside).map_err(|error| told(&aside, &error))?;
            }
            kept.log = set_log_aside(&target, &aside)?;
            let _ = std::fs::remove_file(sidecar(&target, "-shm"));
            put(draft, &kept)?;
        }
        (Err(error), _) => return Err(error),
    }
    Ok(kept)
}

fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupt { .. } | Error::NotADatabase { .. })
}

fn put(draft: Draft, kept: &Kept) -> Result<()> {
    let target = draft.target().to_owned();
    draft.put_in_place().inspect_err(|_| {
        if let Some(name) = &kept.file {
            remove_second_name(&target, name);
        }
    })
}

/// Removes a name that leads to the file at `target`, so that this has one name again.
fn remove_second_name(target: &Path, name: &Path) {
    if cfg!(unix) && FileIdentity::of(name).is_some() && FileIdentity::of(name) == FileIdentity::of(target) {
        let _ = std::fs::remove_file(name);
    }
}

/// Gives the log of a file that is damaged or gone a name beside what is kept of it.
fn set_log_aside(target: &Path, aside: &Path) -> Result<Option<PathBuf>> {
    let log = sidecar(target, "-wal");
    if status::bytes(&log) == 0 {
        let _ = std::fs::remove_file(log);
        return Ok(None);
    }
    let name = sidecar(aside, "-wal");
    std::fs::rename(&log, &name).map_err(|error| told(&name, &error))?;
    Ok(Some(name))
}

/// Removes the names that killed processes have given the file at `target` and that it still shares with them.
pub(super) fn remove_second_names(target: &Path, mark: &str) {
    let (Some(folder), Some(name)) = (target.parent(), target.file_name()) else { return };
    let start = [name.as_encoded_bytes(), mark.as_bytes()].concat();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(&start) {
            remove_second_name(target, &entry.path());
        }
    }
}
