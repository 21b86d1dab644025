//! What an append answers, and how the spool takes part in appending and opening.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::SessionDb;
use crate::backend::store::Store;
use crate::error::{Error, Result};
use crate::gate::new_id;
use crate::op::message::AppendMessages;
use crate::spool::{ReplayReport, Spool, SpoolStatus, Ticket};

/// What became of an append. Either way it will survive a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended<T = i64> {
    /// It is in the store, under this id, or these.
    Stored(T),
    /// The store could not take it for now. It stands in the spool, and whoever can store it next does so.
    Spooled(Ticket),
}

impl<T> Appended<T> {
    /// What it is stored under.
    #[must_use]
    pub fn stored(self) -> Option<T> {
        match self {
            Appended::Stored(answer) => Some(answer),
            Appended::Spooled(_) => None,
        }
    }

    /// Whether it is in the spool.
    #[must_use]
    pub fn is_spooled(&self) -> bool {
        matches!(self, Appended::Spooled(_))
    }

    /// Its name in the spool.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        match self {
            Appended::Stored(_) => None,
            Appended::Spooled(ticket) => Some(*ticket),
        }
    }

    pub(super) fn map<U>(self, convert: impl FnOnce(T) -> Result<U>) -> Result<Appended<U>> {
        Ok(match self {
            Appended::Stored(answer) => Appended::Stored(convert(answer)?),
            Appended::Spooled(ticket) => Appended::Spooled(ticket),
        })
    }
}

impl Appended<i64> {
    /// The id of the message, if it is stored.
    #[must_use]
    pub fn id(&self) -> Option<i64> {
        self.stored()
    }
}

impl Appended<Vec<i64>> {
    /// The ids of the messages in order, if they are stored.
    #[must_use]
    pub fn ids(&self) -> Option<&[i64]> {
        match self {
            Appended::Stored(ids) => Some(ids),
            Appended::Spooled(_) => None,
        }
    }
}

impl SessionDb {
    /// The spool of the store, if appends that it cannot take are spooled.
    #[must_use]
    pub fn spool(&self) -> Option<&Spool> {
        self.spool.as_ref()
    }

    /// What the spool holds; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Spool`] if it cannot be read.
    pub fn spool_status(&self) -> Result<Option<SpoolStatus>> {
        self.spool.as_ref().map(Spool::status).transpose()
    }

    /// Stores what is spooled, in order and each write exactly once, however many try it at once; other writes of
    /// transcripts do it by themselves before their own. With `refused` also what the store refused before.
    ///
    /// # Errors
    /// Those of every write, when not all could be stored; the rest stays spooled.
    pub fn replay_spool(&self, refused: bool) -> Result<ReplayReport> {
        match &self.spool {
            Some(spool) => self.replay_spool_of(spool, refused),
            None => self.check_writable().map(|()| ReplayReport::default()),
        }
    }

    /// The same with a spool that need not be the handle's own, such as one of a store that had another name.
    ///
    /// # Errors
    /// As [`replay_spool`](SessionDb::replay_spool).
    pub fn replay_spool_of(&self, spool: &Spool, refused: bool) -> Result<ReplayReport> {
        let patience = self.patience().transcript;
        let deadline = Instant::now() + patience;
        let store = self.open_store_within(patience)?;
        store.check_writable()?;
        let commit = |write, left| store.write(write, left, self.interrupt.as_deref());
        let mut report = spool.replay(deadline, &commit)?;
        if refused {
            let again = spool.replay_refused(deadline, &commit)?;
            report.stored += again.stored;
            report.found_stored += again.found_stored;
            report.refused.extend(again.refused);
        }
        Ok(report)
    }

    /// What is spooled was said before: it comes first.
    pub(super) fn replay_first(&self, store: &Store, deadline: Instant) -> Result<()> {
        let Some(spool) = self.spool.as_ref().filter(|spool| spool.may_hold_something()) else { return Ok(()) };
        store.check_writable()?;
        let report = spool.replay(deadline, &|write, left| store.write(write, left, self.interrupt.as_deref()));
        match report {
            Ok(report) => {
                for (ticket, reason) in report.refused {
                    tracing::warn!(path = %self.path.display(), "the store refuses the spooled write {ticket}, which is kept aside: {reason}");
                }
                Ok(())
            }
            // Others will read it: whatever is stored meanwhile would come before it.
            Err(Error::Spool { errno: Some(libc::EMFILE | libc::ENFILE), .. }) => {
                Err(Error::TooManyFiles { path: self.path.clone() })
            }
            Err(error @ Error::Spool { .. }) => {
                // A folder that cannot be read must not stop a turn.
                tracing::warn!(path = %self.path.display(), "what is spooled cannot be stored: {error}");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Tries it once: who appends comes to wait for it soon enough, and who only opens need not.
    pub(super) fn replay_at_opening(&self) {
        if !self.is_open() || !self.spool.as_ref().is_some_and(Spool::may_hold_something) {
            return;
        }
        let replayed = self.open_store().and_then(|store| self.replay_first(&store, Instant::now()));
        if let Err(error) = replayed {
            tracing::warn!(path = %self.path.display(), "what is spooled is still to be stored: {error}");
        }
    }

    /// Appends, or spools what the store cannot take.
    pub(super) fn append(&self, append: AppendMessages) -> Result<Appended<Vec<i64>>> {
        let patience = self.patience().transcript;
        let started = Instant::now();
        let id = new_id();
        match self.try_append(append.clone(), id, patience, started) {
            Ok(ids) => Ok(Appended::Stored(ids)),
            Err(error) => self.spool_instead(&append, id, error).map(Appended::Spooled),
        }
    }

    fn try_append(&self, append: AppendMessages, id: Uuid, patience: Duration, started: Instant) -> Result<Vec<i64>> {
        let store = self.open_store_within(patience)?;
        self.replay_first(&store, started + patience)?;
        store.write_under(id, append, patience.saturating_sub(started.elapsed()), self.interrupt.as_deref())
    }

    fn spool_instead(&self, append: &AppendMessages, id: Uuid, error: Error) -> Result<Ticket> {
        let Some(spool) = self.spool.as_ref().filter(|_| Spool::helps(&error)) else { return Err(error) };
        if append.lacks_what_it_needs() {
            return Err(error);
        }
        let attempt = Spool::is_in_doubt(&error).then_some(id);
        let ticket = spool.keep(append.session_id(), append.messages(), attempt, &error)?;
        tracing::warn!(path = %self.path.display(), "a write is spooled as {ticket}: {error}");
        Ok(ticket)
    }
}
