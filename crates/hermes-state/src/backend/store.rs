//! An open store on whichever engine its location names.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::location::is_url;
use super::{Opening, sqlite};
use crate::backup::{BackupOptions, BackupProgress, BackupReport};
use crate::doctor::ServerExamination;
use crate::error::Error;
#[cfg(not(feature = "postgres"))]
use crate::error::ServerTrouble;
use crate::error::{Holder, Result};
use crate::gate::{Interrupt, new_id};
use crate::op::Write;
use crate::status::{Status, User};
use crate::transaction::Transaction;

#[cfg(feature = "postgres")]
use super::postgres;

/// An open store. All handles of this process on the same location share it.
pub(crate) enum Store {
    File(Arc<sqlite::store::Store>),
    #[cfg(feature = "postgres")]
    Server(Arc<postgres::store::Store>),
}

/// Passes a call on to the engine.
macro_rules! on_engine {
    ($store:expr, $engine:ident => $call:expr) => {
        match $store {
            Store::File($engine) => $call,
            #[cfg(feature = "postgres")]
            Store::Server($engine) => $call,
        }
    };
}

/// The one name of the store at `location`, whether it can be opened or not: the file's resolved path, or the URL without
/// its password. `None` for one in memory, which has none.
pub(crate) fn identify(location: &Path) -> Result<Option<PathBuf>> {
    if !is_url(location) {
        return sqlite::store::identify(location);
    }
    #[cfg(feature = "postgres")]
    return postgres::store::identify(location).map(Some);
    #[cfg(not(feature = "postgres"))]
    Err(Error::Server { path: "postgresql://…".into(), trouble: ServerTrouble::NotBuilt })
}

impl Store {
    /// Opens the store at `location`, a path or the URL of a server. Returns what the caller should log.
    pub(crate) fn open(location: &Path, opening: &Opening) -> Result<(Self, Vec<String>)> {
        if !is_url(location) {
            let (store, notes) = sqlite::store::Store::open(location, opening)?;
            return Ok((Store::File(store), notes.iter().map(ToString::to_string).collect()));
        }
        #[cfg(feature = "postgres")]
        return Ok((Store::Server(postgres::store::Store::open(location, opening)?), Vec::new()));
        #[cfg(not(feature = "postgres"))]
        Err(Error::Server { path: "postgresql://…".into(), trouble: ServerTrouble::NotBuilt })
    }

    /// The file, or the URL without its password.
    pub(crate) fn path(&self) -> &Path {
        on_engine!(self, store => store.path())
    }

    /// Runs `read` in one read transaction; it is run again if the engine lost its place.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        read: impl Fn(&mut dyn Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        on_engine!(self, store => store.read(read))
    }

    /// As [`read`](Store::read), for reads that take long: each of their queries has the time that a whole read has.
    pub(crate) fn read_at_length<T: Send + 'static>(
        &self,
        read: impl Fn(&mut dyn Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match self {
            // Reading a file waits for nothing that could be bounded.
            Store::File(store) => store.read(read),
            #[cfg(feature = "postgres")]
            Store::Server(store) => store.read_at_length(read),
        }
    }

    /// Whether columns have one type each, which values of other types cannot be stored in.
    pub(crate) fn is_typed(&self) -> bool {
        !matches!(self, Store::File(_))
    }

    /// Whether whoever writes keeps everybody else from writing meanwhile.
    pub(crate) fn has_one_writer(&self) -> bool {
        matches!(self, Store::File(_))
    }

    /// Commits a write; returns when it is durable.
    pub(crate) fn write<W: Write>(
        &self,
        write: W,
        patience: Duration,
        interrupt: Option<&Interrupt>,
    ) -> Result<W::Answer> {
        self.write_under(new_id(), write, patience, interrupt)
    }

    /// The same under an id that is known beforehand.
    pub(crate) fn write_under<W: Write>(
        &self,
        id: Uuid,
        write: W,
        patience: Duration,
        interrupt: Option<&Interrupt>,
    ) -> Result<W::Answer> {
        match self {
            Store::File(store) => {
                let tell = |waited: Duration| tell_of_wait(store.path(), waited, store.write_lock_holder().as_ref());
                let answer = store.write(id, write, patience, interrupt, &tell);
                for note in store.take_notes() {
                    tracing::warn!(path = %store.path().display(), "{note}");
                }
                answer
            }
            #[cfg(feature = "postgres")]
            Store::Server(store) => store.write(id, write, patience, interrupt),
        }
    }

    /// Gives back the space of the engine's storage that is free, at one go; says whether there is such a thing to do.
    pub(crate) fn rewrite(&self, patience: Duration) -> Result<bool> {
        match self {
            Store::File(store) => store.rewrite(patience).map(|()| true),
            // It does so by itself, in small parts.
            #[cfg(feature = "postgres")]
            Store::Server(store) => store.check_writable().map(|()| false),
        }
    }

    /// Merges what the engine keeps aside, as far as that makes nobody wait.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        on_engine!(self, store => store.checkpoint())
    }

    /// Gives the space of what was deleted back in small steps; returns the bytes before and after. Between two steps it
    /// tells how many bytes are given back, of how many, and asks whether to go on.
    pub(crate) fn release_space(
        &self,
        patience: Duration,
        goes_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(u64, u64)> {
        match self {
            Store::File(store) => store.release_space(patience, goes_on),
            #[cfg(feature = "postgres")]
            Store::Server(store) => store.release_space(),
        }
    }

    /// Gives all of it back at once; returns the bytes before and after.
    pub(crate) fn vacuum(&self, patience: Duration) -> Result<(u64, u64)> {
        match self {
            Store::File(store) => store.vacuum(patience),
            #[cfg(feature = "postgres")]
            Store::Server(store) => store.vacuum(),
        }
    }

    /// Copies the store into a file.
    pub(crate) fn backup(
        &self,
        target: &Path,
        options: &BackupOptions,
        progress: &mut dyn FnMut(&BackupProgress) -> Result<()>,
    ) -> Result<BackupReport> {
        match self {
            Store::File(store) => store.backup(target, options, progress),
            #[cfg(feature = "postgres")]
            Store::Server(store) => Err(Error::Invalid(format!(
                "{} is a store on a server, which its own tools back up: pg_dump with --schema (docs/postgres.md has the \
                 commands); `hermes-state migrate --from URL --to FILE` copies it into a file",
                store.path().display()
            ))),
        }
    }

    /// Who has the store open, as far as can be seen.
    pub(crate) fn users(&self) -> Result<Vec<User>> {
        on_engine!(self, store => store.users())
    }

    /// How the store stands.
    pub(crate) fn status(&self) -> Result<Status> {
        on_engine!(self, store => store.status())
    }

    /// What an examination finds of a server; nothing of a file, which is examined without being opened.
    pub(crate) fn examine_server(&self) -> Result<Option<ServerExamination>> {
        match self {
            Store::File(_) => Ok(None),
            #[cfg(feature = "postgres")]
            Store::Server(store) => store.examine().map(Some),
        }
    }

    /// The error with which a write would be refused at once, if one would.
    pub(crate) fn check_writable(&self) -> Result<()> {
        on_engine!(self, store => store.check_writable())
    }

    /// Who holds the write lock now, if there is one and that can be seen.
    pub(crate) fn write_lock_holder(&self) -> Option<Holder> {
        on_engine!(self, store => store.write_lock_holder())
    }
}

/// How long a write waits before that is told although nobody can be named.
const NOBODY: Duration = Duration::from_secs(4);

/// Says who is in the way of a write that waits; whether there was something to say.
fn tell_of_wait(path: &Path, waited: Duration, holder: Option<&Holder>) -> bool {
    let seconds = waited.as_secs_f64();
    match holder {
        Some(holder) => {
            let pid = holder.pid;
            tracing::warn!(path = %path.display(), pid, "a write has waited {seconds:.1} s for the write lock, which is held by {holder}");
        }
        // It may have been handed on in this moment.
        None if waited < NOBODY => return false,
        None => {
            tracing::warn!(path = %path.display(), "a write has waited {seconds:.1} s for the write lock, and nobody who holds it can be named");
        }
    }
    true
}
