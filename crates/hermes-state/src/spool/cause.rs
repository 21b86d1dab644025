//! Which errors of a store the spool is for.

use std::path::Path;

use super::Spool;
use crate::error::{Error, ServerTrouble};

const TOO_BIG: i32 = 18;
const INTERRUPTED: i32 = 9;

impl Spool {
    /// Whether an append that fails so is spooled: the store cannot take it for now, whatever it says.
    #[must_use]
    pub fn helps(error: &Error) -> bool {
        match error {
            Error::Busy { .. }
            | Error::LockedOnServer { .. }
            | Error::InUse { .. }
            | Error::ReadOnly { .. }
            | Error::NotPermitted { .. }
            | Error::CannotOpen { .. }
            | Error::TooManyFiles { .. }
            | Error::Directory { .. }
            | Error::NotADatabase { .. }
            | Error::Corrupt { .. }
            | Error::Replaced { .. }
            | Error::Full { .. }
            | Error::Unreachable { .. } => true,
            Error::Server { trouble, .. } => is_passing(trouble),
            Error::Engine { code, .. } => *code != TOO_BIG,
            _ => false,
        }
    }

    /// Whether a write that failed so may have been stored all the same.
    pub(crate) fn is_in_doubt(error: &Error) -> bool {
        match error {
            Error::Unreachable { perhaps_stored, .. } => *perhaps_stored,
            Error::Engine { code, .. } => *code & 0xff != INTERRUPTED,
            // What was committed to a file that is not the store any more may come back with it.
            Error::Replaced { .. } | Error::Full { .. } | Error::Corrupt { .. } => true,
            _ => false,
        }
    }

    /// Whether a store at `location` that could not be opened for this reason may be waited for: there is, or was, one,
    /// and the spool has a place.
    pub(crate) fn helps_opening(&self, location: &Path, error: &Error) -> bool {
        let is_no_file = std::fs::metadata(location).is_ok_and(|found| !found.is_file());
        Self::helps(error) && !is_no_file && self.has_a_place()
    }
}

/// Whether the server may be there again without anything being changed in the URL or the rights of the user.
fn is_passing(trouble: &ServerTrouble) -> bool {
    matches!(
        trouble,
        ServerTrouble::UnknownHost { .. }
            | ServerTrouble::Refused { .. }
            | ServerTrouble::NoAnswer { .. }
            | ServerTrouble::Unavailable { .. }
            | ServerTrouble::WrongServer { .. }
    )
}
