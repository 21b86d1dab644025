//! Whether a store may still be written: what anybody in this process met of damage to its rows, or of files that are no
//! longer the store's, stops all its handles from writing, until the last of them is closed.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::identity::FileIdentity;
use super::lock::PerProcess;
use crate::error::{Error, Result};

/// The files that this process has open.
static KNOWN: PerProcess<Mutex<HashMap<FileIdentity, Weak<Soundness>>>> = PerProcess::new(Mutex::default);

/// What is known of one file, shared by all handles of this process on it.
#[derive(Default)]
pub(super) struct Soundness {
    fault: OnceLock<Error>,
}

impl Soundness {
    /// That of the file at `path`; of its own for what is no file.
    pub(super) fn of(path: &Path) -> Arc<Self> {
        let Some(identity) = FileIdentity::of(path) else { return Arc::default() };
        let mut known = KNOWN.get().lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, soundness| soundness.strong_count() > 0);
        if let Some(shared) = known.get(&identity).and_then(Weak::upgrade) {
            return shared;
        }
        let fresh = Arc::default();
        known.insert(identity, Arc::downgrade(&fresh));
        fresh
    }

    /// Refuses to write once something was found.
    pub(super) fn check(&self) -> Result<()> {
        self.fault.get().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// Refuses to read files that are no longer the store's. What damage has left may be read.
    pub(super) fn check_files(&self) -> Result<()> {
        match self.fault.get() {
            Some(fault @ Error::Replaced { .. }) => Err(fault.clone()),
            _ => Ok(()),
        }
    }

    /// Notes what was found; the first finding stays.
    pub(super) fn note(&self, fault: &Error) {
        debug_assert!(
            matches!(fault, Error::Corrupt { .. } | Error::NotADatabase { .. } | Error::Replaced { .. }),
            "no fault of the store: {fault}"
        );
        let _ = self.fault.set(fault.clone());
    }
}
