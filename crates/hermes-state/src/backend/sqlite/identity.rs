//! The generation check: whether the files at the store's path are still those that the connection works on.
//!
//! A store whose file was replaced, or whose log was unlinked by somebody who thought it unused, takes commits that
//! nobody else will ever see. `stat` by path opens nothing and so endangers no lock.

use std::ffi::OsString;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use super::own_files::OwnFile;
use crate::error::{Error, Result};

/// What makes a file the same file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// The file at `path` now; `None` if there is none. Where the system has no inode numbers all files are alike, and
    /// only their being there is checked.
    pub(super) fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().as_ref().map(Self::from)
    }
}

impl From<&Metadata> for FileIdentity {
    fn from(found: &Metadata) -> Self {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            Self { device: found.dev(), inode: found.ino() }
        }
        #[cfg(not(unix))]
        {
            let _ = found;
            Self { device: 0, inode: 0 }
        }
    }
}

/// The files of an open store as they were when its connection was made.
pub(super) struct StoreIdentity {
    main: (PathBuf, FileIdentity),
    sidecars: Vec<(PathBuf, FileIdentity)>,
    /// Whether the main file may be empty: it was when it was looked at first, and nobody has begun the store.
    unbegun: bool,
}

/// The path of a sidecar: the store's own with a suffix.
pub(super) fn sidecar(main: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(main.as_os_str());
    name.push(suffix);
    PathBuf::from(name)
}

impl StoreIdentity {
    /// Takes the identities. In WAL mode the connection must have read something, so that its sidecars exist.
    pub(super) fn take(main: &Path, wal: bool) -> Result<Self> {
        let identity = |path: PathBuf| match FileIdentity::of(&path) {
            Some(found) => Ok((path, found)),
            None => Err(Error::Replaced { path: main.to_owned(), what: format!("{} is gone", path.display()) }),
        };
        let sidecars =
            if wal { vec![identity(sidecar(main, "-wal"))?, identity(sidecar(main, "-shm"))?] } else { vec![] };
        Ok(Self { main: identity(main.to_owned())?, sidecars, unbegun: false })
    }

    /// Takes the identities of files that are only looked at.
    pub(super) fn take_as_found(main: &Path, wal: bool) -> Result<Self> {
        let unbegun = std::fs::metadata(main).is_ok_and(|found| found.len() == 0);
        Ok(Self { unbegun, ..Self::take(main, wal)? })
    }

    /// Whether the store has a log beside it.
    pub(super) fn has_log(&self) -> bool {
        !self.sidecars.is_empty()
    }

    /// Refuses when any of the files is another one now, or gone, or cut to less than it can have. Returns the length of
    /// the main file.
    pub(super) fn check(&self) -> Result<u64> {
        let mut main_bytes = 0;
        for (path, taken) in std::iter::once(&self.main).chain(&self.sidecars) {
            let what = match std::fs::metadata(path).ok() {
                Some(found) if FileIdentity::from(&found) == *taken => {
                    let is_main = *path == self.main.0;
                    if is_main {
                        main_bytes = found.len();
                    }
                    // A store's main file never shrinks to nothing; its log does, when it has been merged. The memory
                    // that the connections share is never shorter than its first region, once it is there.
                    match found.len() {
                        0 if is_main && !self.unbegun => "it was truncated to nothing".to_owned(),
                        bytes if bytes < OwnFile::SHARED_BYTES && self.is_shared_memory(path) => {
                            format!("{} was truncated", path.display())
                        }
                        _ => continue,
                    }
                }
                Some(_) => format!("{} is another file now", path.display()),
                None => format!("{} was removed", path.display()),
            };
            return Err(Error::Replaced { path: self.main.0.clone(), what });
        }
        Ok(main_bytes)
    }

    fn is_shared_memory(&self, path: &Path) -> bool {
        self.sidecars.last().is_some_and(|(last, _)| path == last)
    }
}
