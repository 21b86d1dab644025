//! Errors sorted by what a person can do about them.

use crate::error::{Error, ServerTrouble};

/// What kept something from being stored, as far as a person is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody else is writing; waiting helps.
    Locked,
    /// The disk is full, or fails.
    Disk,
    /// This user or this handle may not write.
    ReadOnly,
    /// The file is damaged, or is none.
    Corrupt,
    /// The file was replaced or removed while it was open.
    Replaced,
    /// A newer release has written the file.
    TooNew,
    /// The process has too many files open.
    Descriptors,
    /// Anything else.
    Unknown,
}

impl ErrorKind {
    /// All of them.
    pub const ALL: [ErrorKind; 8] = [
        ErrorKind::Locked,
        ErrorKind::Disk,
        ErrorKind::ReadOnly,
        ErrorKind::Corrupt,
        ErrorKind::Replaced,
        ErrorKind::TooNew,
        ErrorKind::Descriptors,
        ErrorKind::Unknown,
    ];

    /// Its name for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Locked => "locked",
            ErrorKind::Disk => "disk",
            ErrorKind::ReadOnly => "readonly",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Replaced => "replaced",
            ErrorKind::TooNew => "too_new",
            ErrorKind::Descriptors => "descriptors",
            ErrorKind::Unknown => "unknown",
        }
    }

    /// The kind with this [`name`](ErrorKind::name).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// One sentence for the person at the terminal, with what to do next.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            ErrorKind::Locked => {
                "Another program is writing to the session store; the store is well, so try again in a moment."
            }
            ErrorKind::Disk => {
                "The disk of the session store is full or failing; free some space, or check the disk, and try again."
            }
            ErrorKind::ReadOnly => {
                "The session store may only be read here; check the permissions of the file and its folder."
            }
            ErrorKind::Corrupt => {
                "The session store is damaged; stop the programs that use it and run `hermes-state repair`, which keeps the damaged file."
            }
            ErrorKind::Replaced => {
                "The session store was replaced or removed while it was open; restart this program before going on."
            }
            ErrorKind::TooNew => {
                "The session store was written by a newer release and can only be read; upgrade this program."
            }
            ErrorKind::Descriptors => {
                "This program has too many files open; close some, or raise the limit (ulimit -n), and try again."
            }
            ErrorKind::Unknown => {
                "The session store could not be used for a reason that is not known; the log has the error itself."
            }
        }
    }
}

impl std::fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Error {
    /// The kind of trouble, for callers that tell people.
    ///
    /// ```
    /// use hermes_state::{ErrorKind, SessionDb};
    /// let folder = tempfile::tempdir().unwrap();
    /// std::fs::write(folder.path().join("state.db"), "Dear diary, ".repeat(100)).unwrap();
    /// let error = SessionDb::open_read_only(folder.path().join("state.db")).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Corrupt);
    /// assert!(error.kind().sentence().contains("damaged"));
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Busy { .. } | Error::LockedOnServer { .. } | Error::InUse { .. } => ErrorKind::Locked,
            Error::ReadOnly { .. }
            | Error::NotPermitted { .. }
            | Error::Server { trouble: ServerTrouble::NoRights { .. } | ServerTrouble::WrongServer { .. }, .. } => {
                ErrorKind::ReadOnly
            }
            Error::Full { .. } => ErrorKind::Disk,
            Error::SpoolFull { cause, .. } | Error::Spool { cause: Some(cause), .. } => cause.kind(),
            Error::Spool { errno: Some(errno), .. } => ErrorKind::of_errno(*errno),
            Error::Corrupt { .. } | Error::NotADatabase { .. } => ErrorKind::Corrupt,
            Error::Replaced { .. } => ErrorKind::Replaced,
            Error::TooNew { .. } => ErrorKind::TooNew,
            Error::TooManyFiles { .. } => ErrorKind::Descriptors,
            Error::Directory { errno: Some(errno), .. } => ErrorKind::of_errno(*errno),
            Error::Engine { code, .. } => ErrorKind::of_sqlite(*code),
            _ => ErrorKind::Unknown,
        }
    }
}

impl ErrorKind {
    /// The kind of an error of the system by its number.
    #[must_use]
    pub fn of_errno(errno: i32) -> Self {
        match errno {
            libc::ENOSPC | libc::EIO => ErrorKind::Disk,
            #[cfg(unix)]
            libc::EDQUOT => ErrorKind::Disk,
            libc::EROFS | libc::EACCES | libc::EPERM => ErrorKind::ReadOnly,
            libc::EMFILE | libc::ENFILE => ErrorKind::Descriptors,
            _ => ErrorKind::Unknown,
        }
    }

    /// The kind of an error of SQLite by its result code, extended or not.
    #[must_use]
    pub fn of_sqlite(code: i32) -> Self {
        match code & 0xff {
            5 | 6 | 15 => ErrorKind::Locked,
            10 | 13 => ErrorKind::Disk,
            8 => ErrorKind::ReadOnly,
            11 | 26 => ErrorKind::Corrupt,
            _ => ErrorKind::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_kinds_and_each_has_one_sentence() {
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_name(kind.name()), Some(kind));
            assert!(kind.sentence().ends_with('.') && !kind.sentence().trim_end_matches('.').contains(". "), "{kind}");
        }
        assert_eq!(ErrorKind::from_name("sick"), None);
    }

    #[test]
    fn errors_are_sorted_by_what_can_be_done_about_them() {
        let path = std::path::PathBuf::from("/s/state.db");
        let directory = |errno| Error::Directory { path: path.clone(), message: String::new(), errno: Some(errno) };
        let engine = |code| Error::Engine { message: String::new(), code };
        let cases = [
            (Error::InUse { path: path.clone(), users: Vec::new() }, ErrorKind::Locked),
            (Error::Full { path: path.clone() }, ErrorKind::Disk),
            (engine(10 | 3 << 8), ErrorKind::Disk),
            (engine(1), ErrorKind::Unknown),
            (directory(libc::ENOSPC), ErrorKind::Disk),
            (directory(libc::EACCES), ErrorKind::ReadOnly),
            (directory(libc::EMFILE), ErrorKind::Descriptors),
            (Error::ReadOnly { path: path.clone() }, ErrorKind::ReadOnly),
            (Error::NotPermitted { path: path.clone() }, ErrorKind::ReadOnly),
            (Error::NotADatabase { path: path.clone() }, ErrorKind::Corrupt),
            (Error::Replaced { path: path.clone(), what: String::new() }, ErrorKind::Replaced),
            (Error::TooNew { path: path.clone(), found: 99, supported: 23 }, ErrorKind::TooNew),
            (Error::TooManyFiles { path: path.clone() }, ErrorKind::Descriptors),
            (Error::Invalid("no".into()), ErrorKind::Unknown),
        ];
        for (error, kind) in cases {
            assert_eq!(error.kind(), kind, "{error}");
        }
    }
}
