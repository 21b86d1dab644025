//! How a store is opened, and how long its writes wait.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use super::{Held, SessionDb};
use crate::backend::Opening;
use crate::backend::sqlite::lock;
use crate::backend::store::{Store, identify};
use crate::error::Result;
use crate::gate::Interrupt;
use crate::spool::{Spool, SpoolLimits};

/// How long a write waits for a sibling that holds the write lock, before it gives up with [`Error::Busy`](crate::Error::Busy). Zero means
/// a single attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the writes a turn needs: messages.
    pub transcript: Duration,
    /// For all others.
    pub routine: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { transcript: Duration::from_secs(60), routine: Duration::from_secs(20) }
    }
}

/// How a store is opened.
///
/// ```
/// use hermes_state::OpenOptions;
/// let folder = tempfile::tempdir().unwrap();
/// let db = OpenOptions::new().open(folder.path().join("state.db"))?;
/// assert_eq!(db.session_count(&Default::default())?, 0);
/// # Ok::<(), hermes_state::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct OpenOptions {
    read_only: bool,
    patience: Patience,
    sessions_json: Option<PathBuf>,
    cjk: bool,
    rollback_journal: bool,
    password: Option<String>,
    interrupt: Option<Arc<Interrupt>>,
    no_spool: bool,
    spool_folder: Option<PathBuf>,
    spool_limits: SpoolLimits,
}

impl OpenOptions {
    /// For reading and writing, creating the file if it is missing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only look: nothing is created, nothing is changed, no lock is waited for.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// How long the opening (by the routine patience) and later writes wait for others.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// The gateway's `sessions/sessions.json`, from which files of schema versions before 18 take what they do not have
    /// themselves; other files do not have it read. The library knows no home folder; its callers do.
    #[must_use]
    pub fn sessions_json(mut self, path: impl Into<Option<PathBuf>>) -> Self {
        self.sessions_json = path.into();
        self
    }

    /// Whether this machine's other programs have the tokenizer `cjk_unicode61`, so that an index which needs it may
    /// be kept in the file.
    #[must_use]
    pub fn cjk(mut self, loaded: bool) -> Self {
        self.cjk = loaded;
        self
    }

    /// Do not ask for a write-ahead log, for file systems that do not share memory between processes reliably. A file
    /// that has one keeps it. Readers then wait while a writer writes its pages.
    #[must_use]
    pub fn rollback_journal(mut self, rollback: bool) -> Self {
        self.rollback_journal = rollback;
        self
    }

    /// The password for a server whose URL has none, so that it need not stand in a command line.
    #[must_use]
    pub fn password(mut self, password: impl Into<Option<String>>) -> Self {
        self.password = password.into();
        self
    }

    /// What to ask, about ten times a second and on the calling thread, while one of this handle's writes waits for the
    /// lock: `true` withdraws the write, which then fails with [`Error::Interrupted`](crate::Error::Interrupted). A write that is being committed
    /// is not withdrawn any more.
    #[must_use]
    pub fn interrupt(mut self, wanted_no_longer: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.interrupt = Some(Arc::new(wanted_no_longer));
        self
    }

    /// Whether appends that the store cannot take for now are spooled, which they are if nothing else is said: kept on the
    /// disk, in order, until somebody can store them. The spool of a file is the folder `<file>-spool` beside it; a store
    /// on a server has none unless [`spool_folder`](OpenOptions::spool_folder) names its place.
    #[must_use]
    pub fn spool(mut self, spool: bool) -> Self {
        self.no_spool = !spool;
        self
    }

    /// The folder in which the spools of stores are, each in a folder of its own, instead of beside the store: such as on
    /// another disk. All programs that use a store must name the same, or they do not see what others spooled.
    #[must_use]
    pub fn spool_folder(mut self, folder: impl Into<Option<PathBuf>>) -> Self {
        self.spool_folder = folder.into();
        self
    }

    pub(super) fn spool_place(&self) -> Option<&Path> {
        self.spool_folder.as_deref()
    }

    /// How much the spool keeps.
    #[must_use]
    pub fn spool_limits(mut self, limits: SpoolLimits) -> Self {
        self.spool_limits = limits;
        self
    }

    /// Opens the store at `path`; `:memory:` is a private one that ends with its handle, and a URL
    /// (`postgresql://user@host/database?schema=name`) one on a server, in builds with the feature `postgres`.
    ///
    /// # Errors
    /// See [`SessionDb::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<SessionDb> {
        let opening = Opening {
            read_only: self.read_only,
            patience: self.patience.routine,
            rollback_journal: self.rollback_journal,
            sessions_json: self.sessions_json.clone(),
            cjk: self.cjk,
            password: self.password.clone(),
        };
        let spool = if self.read_only || self.no_spool {
            None
        } else {
            Spool::with_limits(path.as_ref(), self.spool_folder.as_deref(), self.spool_limits)?
        };
        let location = path.as_ref().to_owned();
        // What is named and logged has no password, which opening it again needs.
        let (held, path) = match open_store(&location, &opening) {
            Ok(store) => {
                let path = store.path().to_owned();
                (Held::Open(store), path)
            }
            Err(error) if spool.as_ref().is_some_and(|spool| spool.helps_opening(&location, &error)) => {
                let path = identify(&location)?.unwrap_or_else(|| location.clone());
                tracing::warn!(path = %path.display(), "appends are spooled until the store can be opened: {error}");
                (Held::Wanting, path)
            }
            Err(error) => return Err(error),
        };
        let db = SessionDb {
            path,
            location,
            generation: lock::generation(),
            opened_by: std::process::id(),
            read_only: self.read_only,
            routine: AtomicU64::new(nanoseconds(self.patience.routine)),
            transcript: AtomicU64::new(nanoseconds(self.patience.transcript)),
            interrupt: self.interrupt.clone(),
            spool,
            opening,
            store: RwLock::new(held),
        };
        db.replay_at_opening();
        Ok(db)
    }
}

/// Opens a store and logs what was found.
pub(super) fn open_store(location: &Path, opening: &Opening) -> Result<Store> {
    let (store, notes) = Store::open(location, opening)?;
    for note in notes {
        tracing::warn!(path = %store.path().display(), "{note}");
    }
    Ok(store)
}

impl std::fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenOptions")
            .field("read_only", &self.read_only)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

pub(super) fn nanoseconds(patience: Duration) -> u64 {
    u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX)
}
