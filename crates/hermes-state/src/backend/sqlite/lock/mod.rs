//! The lock layer: makes SQLite's file locks hold although another SQLite library lives in the same process.
//!
//! The reasoning, the measurements and the test for each guarantee are in `docs/locks.md`. This folder is the only
//! place that knows how locks are owned; the rest of the backend asks [`crew`] to run its SQLite calls and never
//! touches a connection elsewhere.

pub(crate) mod crew;
mod fork;
pub(crate) mod holder;
#[cfg(target_os = "linux")]
mod ofd;
#[cfg(target_os = "linux")]
mod private_table;

use std::sync::OnceLock;

pub(crate) use fork::{PerProcess, generation, in_child, while_not_forking};

/// By which means this process owns its locks on store files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockKind {
    /// All SQLite calls run on threads with a descriptor table of their own, so that nobody else in the process can
    /// drop their locks and both SQLite libraries see each other's (Linux 5.9 and later).
    PrivateTable,
    /// SQLite's system calls are replaced so that it locks open file descriptions instead of the process (Linux 3.15
    /// and later, where a private table is refused).
    OpenFileDescription,
    /// Ordinary POSIX locks: correct between processes, unsafe beside a second SQLite library in this one. Only the
    /// generation check round each commit guards them.
    Ordinary,
}

impl LockKind {
    /// The name used in `status` and accepted by [`LockKind::from_name`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LockKind::PrivateTable => "private-table",
            LockKind::OpenFileDescription => "open-file-description",
            LockKind::Ordinary => "ordinary",
        }
    }

    /// The kind with this [`name`](LockKind::name).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [LockKind::PrivateTable, LockKind::OpenFileDescription, LockKind::Ordinary]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

static ASKED: OnceLock<LockKind> = OnceLock::new();
static IN_FORCE: OnceLock<LockKind> = OnceLock::new();

/// Asks for a kind of locks other than the best this system has. Works once, before the process opens its first store;
/// later calls, and kinds the system refuses, are answered with the kind in force.
///
/// All connections of one process must have one owner of locks, which is why this is no option of a single open.
///
/// # Errors
/// The kind that is in force instead.
pub fn require_lock_kind(kind: LockKind) -> Result<(), LockKind> {
    let _ = ASKED.set(kind);
    let chosen = in_force();
    if chosen == kind { Ok(()) } else { Err(chosen) }
}

/// Sees to it that forks find nothing of this library halfway, for stores without locks on files.
#[cfg(feature = "postgres")]
pub(crate) fn be_ready_for_forks() {
    in_force();
}

/// The kind of locks this process uses; decided at the first call and never changed afterwards.
pub(crate) fn in_force() -> LockKind {
    *IN_FORCE.get_or_init(|| {
        let chosen = choose(ASKED.get().copied());
        fork::guard(chosen);
        chosen
    })
}

#[cfg(target_os = "linux")]
fn choose(asked: Option<LockKind>) -> LockKind {
    let wanted = asked.unwrap_or(LockKind::PrivateTable);
    if wanted == LockKind::PrivateTable && private_table::available() {
        return LockKind::PrivateTable;
    }
    if wanted != LockKind::Ordinary && ofd::install() {
        return LockKind::OpenFileDescription;
    }
    LockKind::Ordinary
}

/// Elsewhere than on Linux there is neither a private table nor a tested way of locking descriptions.
#[cfg(not(target_os = "linux"))]
fn choose(_asked: Option<LockKind>) -> LockKind {
    LockKind::Ordinary
}
