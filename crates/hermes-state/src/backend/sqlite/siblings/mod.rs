//! The processes that share a store: who they are, what they do, and whose turn to write it is.
//!
//! Beside the store lies a small file, `<store>-siblings`, which every process of ours that has the store open maps into
//! its memory. Each open store owns one slot in it, claimed by a lock that the kernel drops when the process dies. A
//! slot says who its owner is and what it does, and carries its ticket while it waits to write.
//!
//! All of it is advice. Whether two writers exclude each other is SQLite's business alone, so whatever goes wrong here
//! (no room, a file system without locks or maps, a layout of another release, the 129th store) ends in "no slot", with
//! which everything goes on, only without an order among the waiting. In the same way a sidecar deleted under its
//! owners parts them from later openers, each with an order of their own. Like SQLite's `-shm`, the file must not be
//! truncated while somebody has it mapped: the kernel answers the next access with SIGBUS.
//!
//! A [`Siblings`] lives on one crew thread from [`Siblings::join`] to its drop (it is not `Send`): its descriptor means
//! nothing in another descriptor table. The functions [`list`] and [`holder`] may be called from any thread.

#[cfg(target_os = "linux")]
mod byte_lock;
#[cfg(target_os = "linux")]
mod futex;
#[cfg(target_os = "linux")]
mod identity;
#[cfg(target_os = "linux")]
mod mapping;
#[cfg_attr(not(target_os = "linux"), path = "elsewhere.rs")]
mod slots;
#[cfg(all(test, target_os = "linux"))]
mod tests;
mod turn;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::lock::crew;
use crate::backend::Operation;
use crate::error::Holder;

use slots::Seat;
pub(crate) use turn::{Place, Standing};

/// One open store of one living process of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sibling {
    /// Its process.
    pub pid: u32,
    /// The program it runs, as far as the system told.
    pub program: String,
    /// How long it has had the store open.
    pub open_for: Duration,
    /// Since when, by the clock on the wall as it stood then.
    pub open_since: Option<SystemTime>,
    /// What it is doing under the write lock, or waits to do.
    pub operation: Option<&'static str>,
    /// How long it has been waiting for its turn to write; nothing when it does not wait.
    pub waiting_for: Option<Duration>,
    /// How long it has been holding the write lock; nothing when it does not.
    pub holding_for: Option<Duration>,
}

impl Sibling {
    /// It, as an error names it that others wait for.
    pub(crate) fn as_holder(&self) -> Option<Holder> {
        Some(Holder {
            pid: i32::try_from(self.pid).ok()?,
            program: Some(self.program.clone()),
            operation: self.operation,
            since: self.holding_for,
        })
    }
}

/// This process's membership among those that share one open store.
pub(crate) struct Siblings {
    seat: Option<Seat>,
}

impl Siblings {
    /// Claims a slot beside the store at `store`, or does without.
    pub(crate) fn join(store: &Path) -> Self {
        Self { seat: Seat::claim(&sidecar(store)) }
    }

    /// Without a slot, for stores that nobody else can have open.
    pub(crate) fn none() -> Self {
        Self { seat: None }
    }

    /// Whether the order among siblings is in force for this open store.
    #[cfg(test)]
    pub(crate) fn has_slot(&self) -> bool {
        self.seat().is_some()
    }

    /// All that have the store open, this one included; empty without a slot.
    pub(crate) fn list(&self) -> Vec<Sibling> {
        self.seat().map(Seat::list).unwrap_or_default()
    }

    /// The one that holds the write lock, if it is one of ours.
    pub(crate) fn holder(&self) -> Option<Sibling> {
        holder_among(self.list())
    }

    /// The slot, unless this is a copy in a forked child, to which neither slot nor mapping belongs.
    fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref().filter(|seat| seat.is_of_this_process())
    }
}

/// All that have the store at `store` open, seen from outside: takes no slot, creates and changes nothing.
pub(crate) fn list(store: &Path) -> Vec<Sibling> {
    slots::look(&sidecar(store))
}

/// The one that holds the write lock of the store at `store`, if it is one of ours; seen from outside as by [`list`].
pub(crate) fn holder(store: &Path) -> Option<Sibling> {
    holder_among(list(store))
}

/// Two may say that they hold it for the moment in which one has committed and the next has begun: the later does.
fn holder_among(all: Vec<Sibling>) -> Option<Sibling> {
    all.into_iter().filter(|sibling| sibling.holding_for.is_some()).min_by_key(|sibling| sibling.holding_for)
}

/// How long the part of one write takes that is about siblings when nobody else wants to write: for the benchmark, which
/// cannot see it in an append.
#[must_use]
pub fn registry_upkeep(store: &Path, writes: u32) -> Duration {
    let store = store.to_owned();
    let measured = crew::owners().run(move || {
        let siblings = Siblings::join(&store);
        let started = Instant::now();
        for _ in 0..writes {
            let mut place = Place::take(&siblings, Operation::Write);
            let _ = place.wait(&siblings, Duration::ZERO);
            place.holding(&siblings, Operation::Write);
            place.leave(&siblings);
        }
        started.elapsed() / writes.max(1)
    });
    measured.unwrap_or(Duration::MAX)
}

fn sidecar(store: &Path) -> PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push("-siblings");
    path.into()
}
