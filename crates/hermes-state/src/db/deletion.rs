//! Deleting sessions. They go in steps: each is whole in itself and holds up others for some 20 ms; an error leaves the
//! steps that are done, and the same call again does the rest.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::SessionDb;
use super::steps::{Watch, goes_on, unwatched};
use crate::error::Result;
use crate::op::delete::{Cut, DeleteSessions};
use crate::query::delegates::{Delegates, Doomed};
use crate::query::prune::{self, Reason};
use crate::query::session::existing;
use crate::session_files;

impl SessionDb {
    /// Deletes a session with its messages and all that it delegated; other children stay, without a parent. Returns whether
    /// it was there. On a server this is one transaction. A file has one writer at a time, so there a long session goes in
    /// steps between which others write: what was said last goes first, the session itself at the end. With a folder the files of what was deleted are removed from it afterwards:
    /// see [`remove_session_files`](crate::remove_session_files).
    ///
    /// # Errors
    /// Those of every write.
    pub fn delete_session(&self, id: &str, files: Option<&Path>) -> Result<bool> {
        let list = self.with_delegates(vec![id.to_owned()])?;
        let at_once = !self.open_store()?.has_one_writer();
        Ok(self.delete(list, &Reason::Named, files, at_once, &mut unwatched)? > 0)
    }

    /// Deletes sessions as [`delete_session`](SessionDb::delete_session) does, in steps. Returns how many of those listed
    /// were there.
    ///
    /// # Errors
    /// Those of every write.
    pub fn delete_sessions<I: Into<String>>(
        &self,
        ids: impl IntoIterator<Item = I>,
        files: Option<&Path>,
    ) -> Result<usize> {
        let mut seen = HashSet::new();
        let ids: Vec<String> = ids.into_iter().map(Into::into).filter(|id| seen.insert(id.clone())).collect();
        let list = self.with_delegates(ids)?;
        self.delete(list, &Reason::Named, files, false, &mut unwatched)
    }

    /// Deletes a session if it has no title, no message in any state and no child. Returns whether it did.
    ///
    /// # Errors
    /// Those of every write.
    pub fn delete_session_if_empty(&self, id: &str, files: Option<&Path>) -> Result<bool> {
        let list = vec![Doomed { id: id.to_owned(), with: id.to_owned() }];
        Ok(self.delete(list, &Reason::Untouched, files, true, &mut unwatched)? > 0)
    }

    /// How many sessions [`delete_empty_sessions`](SessionDb::delete_empty_sessions) would delete.
    ///
    /// # Errors
    /// Those of every read.
    pub fn count_empty_sessions(&self) -> Result<i64> {
        self.read(|transaction| prune::count(transaction, &Reason::Empty))
    }

    /// Deletes the sessions that have ended, are not archived, and have neither a title nor a message in any state, with
    /// all that they delegated. Returns how many of them there were.
    ///
    /// # Errors
    /// Those of every write.
    pub fn delete_empty_sessions(&self, files: Option<&Path>) -> Result<usize> {
        self.delete_all(Reason::Empty, files, &mut unwatched)
    }

    /// Deletes all sessions that there is a reason for.
    pub(super) fn delete_all(&self, reason: Reason, files: Option<&Path>, watch: Watch<'_>) -> Result<usize> {
        let asked = reason.clone();
        let list = self.read_at_length(move |transaction| {
            let chosen = prune::ids(transaction, &asked)?;
            Ok(match asked.takes_delegates() && !chosen.is_empty() {
                true => Delegates::read(transaction)?.before(chosen),
                false => Delegates::default().before(chosen),
            })
        })?;
        self.delete(list, &reason, files, false, watch)
    }

    /// Those of some sessions that exist, with all that they delegated.
    fn with_delegates(&self, ids: Vec<String>) -> Result<Vec<Doomed>> {
        self.read_at_length(move |transaction| {
            let chosen = existing(transaction, &ids)?;
            match chosen.is_empty() {
                true => Ok(Vec::new()),
                false => Ok(Delegates::read(transaction)?.before(chosen)),
            }
        })
    }

    /// Deletes what is on a list, and returns how many went on their own account. Files go after each commit, outside of
    /// any lock: so none is gone whose session is still there.
    fn delete(
        &self,
        list: Vec<Doomed>,
        reason: &Reason,
        files: Option<&Path>,
        at_once: bool,
        watch: Watch<'_>,
    ) -> Result<usize> {
        let list: Arc<[Doomed]> = list.into();
        let cut = match (at_once, self.open_store()?.has_one_writer()) {
            (true, _) => Cut::None,
            (false, true) => Cut::Rows,
            (false, false) => Cut::Sessions,
        };
        let (mut from, mut chosen) = (0, 0);
        let total = u64::try_from(list.len()).ok();
        while from < list.len() && goes_on(watch, from, total) {
            let began = Instant::now();
            let step = DeleteSessions { list: list.clone(), from, reason: reason.clone(), cut };
            let deleted = self.routine(step)?;
            (from, chosen) = (deleted.next, chosen + deleted.chosen);
            if let Some(folder) = files.filter(|_| !deleted.ids.is_empty()) {
                self.remove_files(folder, &deleted.ids);
            }
            if from < list.len() {
                self.rest(began)?;
            }
        }
        Ok(chosen)
    }

    /// Where it cannot be told whose a file is, it stays.
    fn remove_files(&self, folder: &Path, ids: &[String]) {
        session_files::remove(folder, ids, |doubtful| {
            let asked = doubtful.to_vec();
            let found = self.read(move |transaction| existing(transaction, &asked));
            found.unwrap_or_else(|_| doubtful.to_vec()).into_iter().collect()
        });
    }
}
