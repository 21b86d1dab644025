//! An open store on whichever engine its location names.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::location::is_url;
use super::{Opening, sqlite};
#[cfg(not(feature = "postgres"))]
use crate::error::{Error, ServerTrouble};
use crate::error::{Holder, Result};
use crate::gate::Interrupt;
use crate::op::Write;
use crate::search::index::Indexes;
use crate::status::Status;
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

    /// Which indexes answer searches.
    pub(crate) fn indexes(&self) -> Indexes {
        on_engine!(self, store => store.indexes())
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

    /// Commits a write; returns when it is durable.
    pub(crate) fn write<W: Write>(
        &self,
        write: W,
        patience: Duration,
        interrupt: Option<&Interrupt>,
    ) -> Result<W::Answer> {
        on_engine!(self, store => store.write(write, patience, interrupt))
    }

    /// Merges what the engine keeps aside, as far as that makes nobody wait.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        on_engine!(self, store => store.checkpoint())
    }

    /// How the store stands.
    pub(crate) fn status(&self) -> Result<Status> {
        on_engine!(self, store => store.status())
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
