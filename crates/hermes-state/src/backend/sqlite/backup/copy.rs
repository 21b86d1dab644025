//! Copies a store page by page into a draft, as it is at one moment, and looks at the copy.
//!
//! SQLite's backup begins anew whenever another process has written, and so has no end under load. It does not while its
//! source is in a read transaction: with a log that is a snapshot, which makes no writer wait. What it costs is that the
//! log cannot begin anew from its start while pages are being copied; it is merged all the same up to the snapshot, and
//! the copy is looked at when the snapshot has been let go of. `VACUUM INTO` would hold one for as long as it takes to build
//! every tree anew.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::super::errors::classify;
use super::super::journal;
use super::super::lock::crew;
use super::super::repair::check;
use super::super::status::{self, Reading};
use super::draft::Draft;
use super::watch::Watch;
use crate::backup::BackupPhase;
use crate::error::{Error, Result};
use crate::repair::{CheckDepth, Health};

/// Pages of a step.
const STEP: i32 = 1024;

/// After how many steps what was written is given to the disk: all of it at the end would keep the disk from those who
/// wait for their commits.
const STEPS_A_SYNC: u64 = 4;

/// With a rollback journal, how often the copy may begin anew before it makes writers wait.
const RESTARTS: usize = 3;

/// What a copy holds.
pub(super) struct Copied {
    pub(super) bytes: u64,
    pub(super) sessions: i64,
    pub(super) messages: i64,
    pub(super) health: Health,
}

/// Whether it is a store: others have databases too.
pub(super) fn is_store(connection: &Connection) -> rusqlite::Result<bool> {
    let tables = "SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('sessions', 'messages')";
    Ok(connection.query_row(tables, [], |row| row.get::<_, i64>(0))? == 2)
}

/// Copies what `source`, which is in a read transaction, sees; it still is in one afterwards.
pub(super) fn copy(source: &Connection, path: &Path, draft: &mut Draft, watch: &Watch) -> Result<Option<Reading>> {
    let failed = |error: rusqlite::Error| classify(path, &error);
    let mode = journal::mode(source).map_err(failed)?;
    if mode != "delete" && mode != "truncate" && mode != "persist" {
        let reading = status::read(source).map_err(failed)?;
        copy_pages(source, path, draft, watch, usize::MAX)?;
        return Ok(Some(reading));
    }
    // Here a read transaction keeps writers from their commits.
    source.execute_batch("COMMIT").map_err(failed)?;
    let copied = copy_pages(source, path, draft, watch, RESTARTS);
    if source.is_autocommit() {
        source.execute_batch("BEGIN").map_err(failed)?;
    }
    copied.map(|()| None)
}

/// Copies page by page. A copy that has begun anew so often holds on to what it sees until it is done.
fn copy_pages(source: &Connection, path: &Path, draft: &mut Draft, watch: &Watch, restarts: usize) -> Result<()> {
    let target = draft.target().to_owned();
    let file = draft.path().to_owned();
    let backup = Backup::new(source, draft.connection()).map_err(|error| classify(path, &error))?;
    let (mut copied, mut begun_anew) = (0, 0);
    for step in 1_u64.. {
        let outcome = backup.step(STEP).map_err(|error| match classify(path, &error) {
            // The store is only read: whatever is full is the disk of the copy.
            Error::Full { .. } => Error::Full { path: target.clone() },
            other => other,
        })?;
        let progress = backup.progress();
        let done = progress.pagecount - progress.remaining;
        match outcome {
            StepResult::Done => break,
            StepResult::More => {}
            // A writer has its pages in hand, or a checkpoint.
            _ => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
        if done < copied {
            begun_anew += 1;
            if begun_anew == restarts {
                let hold = "BEGIN; SELECT 1 FROM sqlite_schema LIMIT 1";
                // Refused while somebody commits; the next time will do.
                if source.execute_batch(hold).is_err() && !source.is_autocommit() {
                    source.execute_batch("ROLLBACK").map_err(|error| classify(path, &error))?;
                    begun_anew -= 1;
                }
            }
        }
        copied = done;
        if step % STEPS_A_SYNC == 0 {
            sync_so_far(&file);
        }
        let pages = |number: i32| u64::try_from(number).unwrap_or_default();
        watch.tell(BackupPhase::Copying, pages(done), pages(progress.pagecount))?;
    }
    Ok(())
}

/// Has the system write what it was given. An error shows when SQLite asks for the same in the end.
#[expect(clippy::disallowed_methods, reason = "a draft, on a thread that owns no locks to lose")]
fn sync_so_far(draft: &Path) {
    let draft = draft.to_owned();
    let _ = crew::bystander().run(move || std::fs::File::open(draft).and_then(|file| file.sync_data()));
}

/// Looks at a copy and lets it stand by itself. One with messages that cannot be read, or other than the snapshot's, is
/// refused, as damage of `origin`.
pub(super) fn verify(
    draft: &mut Draft,
    origin: &Path,
    seen: Option<&Reading>,
    depth: CheckDepth,
    watch: &Watch,
) -> Result<Copied> {
    draft.finish()?;
    watch.tell(BackupPhase::Verifying, 0, 1)?;
    let target = draft.target().to_owned();
    let connection = draft.connection();
    let refused = |message: String| {
        let code = rusqlite::ffi::SQLITE_CORRUPT;
        Err(Error::Corrupt { path: origin.to_owned(), message, part: None, code })
    };
    let health = check::pages(connection, origin, depth)?;
    if !health.unreadable.is_empty() {
        let problem = health.problems.first().map_or("", String::as_str);
        return refused(format!("rows of {} cannot be read ({problem})", health.unreadable.join(", ")));
    }
    let failed = |error: rusqlite::Error| classify(&target, &error);
    let found = status::read(connection).map_err(failed)?;
    if let Some(seen) = seen
        && (found.sessions, found.messages) != (seen.sessions, seen.messages)
    {
        return refused(format!(
            "the copy has {} sessions and {} messages, and the store {} and {}",
            found.sessions, found.messages, seen.sessions, seen.messages
        ));
    }
    watch.tell(BackupPhase::Verifying, 1, 1)?;
    Ok(Copied { bytes: status::bytes(draft.path()), sessions: found.sessions, messages: found.messages, health })
}
