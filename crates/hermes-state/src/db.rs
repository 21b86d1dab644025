//! The one public handle on a store: opening, closing, and, a file for each kind, every operation.

pub(crate) mod backup;
mod compression;
mod conversation;
mod deletion;
mod detail;
mod doctor;
mod export;
mod gateway;
mod handoff;
mod import;
mod index;
mod lease;
mod listing;
mod lookup;
mod maintenance;
mod message;
mod meta;
mod open;
mod prune;
mod repair;
mod retention;
mod search;
mod session;
mod spool;
mod steps;
mod title;
mod topic;
mod usage;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use crate::backend::Opening;
use crate::backend::sqlite::lock;
use crate::backend::store::Store;
use crate::error::{Error, Holder, Result};
use crate::gate::Interrupt;
use crate::spool::Spool;
use crate::status::Status;

pub use export::{ExportAll, LineageExport, SessionExport};
pub use index::{OptimizeOptions, OptimizePhase, OptimizeProgress, StepPace};
pub use lease::UnderLease;
pub use maintenance::{AutoPruneOptions, AutoPruneReport, SpaceReport};
pub use open::{OpenOptions, Patience};
pub use search::SearchIndexes;
pub use spool::Appended;
pub use steps::StepProgress;

use open::nanoseconds;

/// A handle on a store. It may be used from any number of threads at once; several handles on one file, in this process
/// or in others, see each other's writes.
///
/// A call returns when what it wrote is durable: no acknowledged message is ever lost. A sibling that holds the write
/// lock makes writes wait, never fail before their [`Patience`] is over, and never makes a read wait.
///
/// A handle does not survive a fork: the child gets [`Error::Forked`] and opens its own.
///
/// ```
/// use hermes_state::{NewMessage, NewSession, SessionDb};
/// let folder = tempfile::tempdir().unwrap();
/// let db = SessionDb::open(folder.path().join("state.db"))?;
/// db.create_session(NewSession::new("s1", "cli"))?;
/// db.append_message("s1", NewMessage::new("user", "Where is the harbour?"))?;
/// assert_eq!(db.messages("s1", &Default::default())?[0].content().text(), Some("Where is the harbour?"));
/// # Ok::<(), hermes_state::Error>(())
/// ```
pub struct SessionDb {
    path: PathBuf,
    /// As it was named.
    location: PathBuf,
    generation: u64,
    opened_by: u32,
    read_only: bool,
    routine: AtomicU64,
    transcript: AtomicU64,
    interrupt: Option<Arc<Interrupt>>,
    /// Where writes of transcripts are kept that the store cannot take.
    spool: Option<Spool>,
    opening: Opening,
    store: RwLock<Held>,
}

/// What a handle has of its store.
enum Held {
    Open(Store),
    /// It could not be opened yet, and its transcripts are spooled meanwhile. Each use tries again.
    Wanting,
    Closed,
}

/// A running call's hold on the store; closing waits for it.
struct Open<'a>(RwLockReadGuard<'a, Held>);

impl std::ops::Deref for Open<'_> {
    type Target = Store;
    fn deref(&self) -> &Store {
        match &*self.0 {
            Held::Open(store) => store,
            Held::Wanting | Held::Closed => unreachable!("checked when the hold was taken"),
        }
    }
}

impl SessionDb {
    /// Opens the store at `path` for reading and writing; creates it, and its folder, if it is missing. A file of an
    /// older release is brought up to date, keeping every row, in one step that waits for siblings with patience.
    ///
    /// A URL (`postgresql://user@host/database?schema=name`) is a store in a schema of a server, in builds with the
    /// feature `postgres`; [`is_url`](crate::is_url) tells which is which.
    ///
    /// A store that cannot be opened for now (busy, damaged, no room, no server) gives a handle all the same if its
    /// transcripts can be [spooled](OpenOptions::spool): appends are spooled until it can, everything else answers with
    /// the error of the opening, and each call tries it again.
    ///
    /// # Errors
    /// [`Error::Directory`], [`Error::CannotOpen`], [`Error::NotADatabase`], [`Error::Corrupt`], [`Error::ReadOnly`]
    /// at once, according to what is in the way; [`Error::Busy`] when the routine patience is over. Of a URL
    /// [`Error::Server`], within some seconds, says what to change; [`Error::Unreachable`] that the server broke off.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().open(path)
    }

    /// Opens the store at `path` for reading only: creates nothing and leaves everything as it was found.
    ///
    /// # Errors
    /// As [`SessionDb::open`]; a missing file is [`Error::CannotOpen`], a schema without a store [`Error::Server`] with
    /// [`ServerTrouble::NoStore`](crate::ServerTrouble::NoStore).
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().read_only(true).open(path)
    }

    /// The file of the store, absolute and without symbolic links, or the URL without its password.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the handle only reads.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether the store is open. That of a handle whose transcripts are spooled because the store could not be opened is
    /// not, until a call could.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.is_inherited() && matches!(&*self.store.read().unwrap_or_else(PoisonError::into_inner), Held::Open(_))
    }

    /// Sets how long this handle's next writes wait.
    pub fn set_patience(&self, patience: Patience) {
        self.routine.store(nanoseconds(patience.routine), Ordering::Relaxed);
        self.transcript.store(nanoseconds(patience.transcript), Ordering::Relaxed);
    }

    /// How long this handle's next writes wait.
    #[must_use]
    pub fn patience(&self) -> Patience {
        Patience {
            routine: Duration::from_nanos(self.routine.load(Ordering::Relaxed)),
            transcript: Duration::from_nanos(self.transcript.load(Ordering::Relaxed)),
        }
    }

    /// Closes the handle once its running calls are done. The last handle on a store merges its log as far as that
    /// makes nobody wait. Closing twice does nothing.
    ///
    /// # Errors
    /// None today; a handle inherited by a fork is left alone.
    pub fn close(&self) -> Result<()> {
        if self.is_inherited() {
            return Ok(());
        }
        let held = std::mem::replace(&mut *self.store.write().unwrap_or_else(PoisonError::into_inner), Held::Closed);
        drop(held);
        Ok(())
    }

    fn is_inherited(&self) -> bool {
        self.generation != lock::generation()
    }

    /// In a forked child not even the handle's own lock may be touched: its owner does not exist there.
    fn open_store(&self) -> Result<Open<'_>> {
        self.open_store_within(self.patience().routine)
    }

    /// The same; an opening that is still to be done takes so long.
    fn open_store_within(&self, patience: Duration) -> Result<Open<'_>> {
        if self.is_inherited() {
            return Err(Error::Forked { path: self.path.clone(), opened_by: self.opened_by });
        }
        loop {
            let held = self.store.read().unwrap_or_else(PoisonError::into_inner);
            match &*held {
                Held::Open(_) => return Ok(Open(held)),
                Held::Closed => return Err(Error::Closed { path: self.path.clone() }),
                Held::Wanting => drop(held),
            }
            let mut held = self.store.write().unwrap_or_else(PoisonError::into_inner);
            if matches!(*held, Held::Wanting) {
                let opening = Opening { patience, ..self.opening.clone() };
                *held = Held::Open(open::open_store(&self.location, &opening)?);
            }
        }
    }

    pub(crate) fn routine<W: crate::op::Write>(&self, write: W) -> Result<W::Answer> {
        self.open_store()?.write(write, self.patience().routine, self.interrupt.as_deref())
    }

    /// Ends long work between two of its steps if its caller wants it no longer. What is done by then stays.
    fn check_interrupt(&self) -> Result<()> {
        match &self.interrupt {
            Some(wanted_no_longer) if wanted_no_longer() => Err(Error::Interrupted { perhaps_stored: false }),
            _ => Ok(()),
        }
    }

    pub(crate) fn patiently<W: crate::op::Write>(&self, write: W, patience: Duration) -> Result<W::Answer> {
        self.open_store()?.write(write, patience, self.interrupt.as_deref())
    }

    pub(crate) fn transcript<W: crate::op::Write>(&self, write: W) -> Result<W::Answer> {
        let patience = self.patience().transcript;
        let started = Instant::now();
        let store = self.open_store_within(patience)?;
        self.replay_first(&store, started + patience)?;
        store.write(write, patience.saturating_sub(started.elapsed()), self.interrupt.as_deref())
    }

    pub(crate) fn read<T: Send + 'static>(
        &self,
        read: impl Fn(&mut dyn crate::transaction::Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.open_store()?.read(read)
    }

    pub(crate) fn read_at_length<T: Send + 'static>(
        &self,
        read: impl Fn(&mut dyn crate::transaction::Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.open_store()?.read_at_length(read)
    }

    /// Whether the columns of the store have one type each, which values of other types cannot be stored in.
    pub(crate) fn is_typed(&self) -> Result<bool> {
        Ok(self.open_store()?.is_typed())
    }

    /// How the store stands: its files, its settings, and who has it open.
    ///
    /// # Errors
    /// Those of every read.
    pub fn status(&self) -> Result<Status> {
        self.open_store()?.status()
    }

    /// Whether the store takes writes.
    ///
    /// # Errors
    /// Those with which a write would be refused at once: [`Error::ReadOnly`], [`Error::TooNew`], [`Error::Closed`],
    /// [`Error::Forked`].
    pub fn check_writable(&self) -> Result<()> {
        self.open_store()?.check_writable()
    }

    /// Who holds the write lock now, if somebody does and can be named. Of use to callers that work on the file through
    /// a connection of their own.
    #[must_use]
    pub fn write_lock_holder(&self) -> Option<Holder> {
        self.open_store().ok()?.write_lock_holder()
    }

    /// Merges the store's log into its main file, as far as that makes nobody wait. Writes do it by themselves from
    /// time to time.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn checkpoint(&self) -> Result<()> {
        self.open_store()?.checkpoint()
    }
}

impl Drop for SessionDb {
    fn drop(&mut self) {
        if self.is_inherited() {
            // The parent's threads and connections are not here: releasing anything of theirs would do harm.
            if let Ok(held) = self.store.get_mut() {
                std::mem::forget(std::mem::replace(held, Held::Closed));
            }
        } else {
            let _ = self.close();
        }
    }
}

impl std::fmt::Debug for SessionDb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionDb")
            .field("path", &self.path)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}
