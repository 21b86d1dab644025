//! Copies a store into another one, whatever their engines: checked first, resumable, and compared at the end.
//!
//! A migration into an empty target owns it until it ends, which a row of the target's key-value table says. It works in
//! passes ([`copy`]), each of which brings the target to what the source held at one moment. A run that was killed is
//! resumed by running the same again. Merging into a store in use is [`merge`].

mod changed;
mod check;
mod copy;
mod merge;
mod origin;
pub(crate) mod report;
mod rows;
mod source;
mod tables;
pub(crate) mod trouble;
mod write;

use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use changed::Changed;
use origin::Origin;
use report::{MigrationPhase, MigrationProgress, MigrationReport, TableReport};
use rows::{Checksum, checksums};
use tables::tables;
use trouble::MigrationTrouble;
use write::{Begin, Finish, IndexSome, Marker, RaiseIds, occupied};

use crate::db::SessionDb;
use crate::error::{Error, Result};

/// After so many passes a source that is still being written to is left as it was at the beginning of the last one.
const PASSES: usize = 5;

/// How long a step of filling the search index may take; on a server it is one for all.
const INDEXING: Duration = Duration::from_secs(3600);

/// How a store is copied into another.
#[derive(Debug, Clone, Copy, Default)]
pub struct MigrateOptions {
    merge: bool,
    ignore_unknown: bool,
}

impl MigrateOptions {
    /// Into an empty target, refusing what this release does not know.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Into a target that may hold something. Sessions that the target does not have come over, with their messages
    /// under new ids and in their order; whatever the target has under the same key stays as it is there.
    #[must_use]
    pub fn merge(mut self, merge: bool) -> Self {
        self.merge = merge;
        self
    }

    /// Leave behind what is in columns that this release does not know, and say so in the report.
    #[must_use]
    pub fn ignore_unknown(mut self, ignore: bool) -> Self {
        self.ignore_unknown = ignore;
        self
    }
}

/// Where a migration that is only planned would go.
#[derive(Debug, Clone, Copy)]
pub enum MigrationTarget<'a> {
    /// Into this store, which is only looked at.
    Store(&'a SessionDb),
    /// Into a file that is not there yet.
    NewFile,
    /// Into a server's schema that is not there yet.
    NewServer,
}

/// Copies everything of `from` into `to`: ids, times and all columns as they are. `from` may be in use meanwhile; the
/// target is as it was at one moment. Until this returns the target belongs to the migration, unless it merges: nothing
/// else should write to it. If it is cut short, by whatever, the same call goes on from there.
///
/// ```
/// use hermes_state::{MigrateOptions, NewMessage, NewSession, SessionDb, migrate};
/// let folder = tempfile::tempdir().unwrap();
/// let from = SessionDb::open(folder.path().join("from.db"))?;
/// from.create_session(NewSession::new("s1", "cli"))?;
/// let id = from.append_message("s1", NewMessage::new("user", "Where is the harbour?"))?.id();
/// let to = SessionDb::open(folder.path().join("to.db"))?;
/// let report = migrate(&from, &to, &MigrateOptions::new(), &mut |_| {})?;
/// assert!(report.is_equal());
/// assert_eq!(Some(to.search_messages("harbour", &Default::default())?[0].id), id);
/// # Ok::<(), hermes_state::Error>(())
/// ```
///
/// # Errors
/// [`Error::Migration`] says what is in the way: nothing has been changed unless it says otherwise. Besides those of
/// every read and write.
pub fn migrate(
    from: &SessionDb,
    to: &SessionDb,
    options: &MigrateOptions,
    progress: &mut dyn FnMut(MigrationProgress),
) -> Result<MigrationReport> {
    to.check_writable()?;
    different(from, to)?;
    let target = to.path().display().to_string();
    let source = from.path().display().to_string();
    // Refused early where it is to be refused; `Begin` decides.
    let marker = standing(to)?;
    match &marker {
        Some(found) if found.source != source || found.merge != options.merge => {
            let source_store = found.source.clone();
            return Err(MigrationTrouble::Unfinished { target, source_store, merge: found.merge }.into());
        }
        None if !options.merge => {
            if let Some(table) = to.read(occupied)? {
                return Err(MigrationTrouble::NotEmpty { target, table }.into());
            }
        }
        _ => {}
    }
    let checked = check::check(from, to.is_typed()?, options.ignore_unknown, progress)?;
    if checked.count > 0 {
        return Err(MigrationTrouble::Problems { count: checked.count, first: checked.problems }.into());
    }
    let highest = from.read(|transaction| transaction.highest_message_id())?;
    let wanted = Marker { source, merge: options.merge, highest, session: None };
    let marker_then = to.routine(Begin { target, marker: wanted })?;
    let mut report = MigrationReport { resumed: marker.is_some(), notes: checked.notes, ..MigrationReport::default() };
    if options.merge {
        merge::merge(from, to, marker_then, &checked.rows, &mut report, progress)?;
    } else {
        copy_all(from, to, Origin::new(marker_then.highest)?, checked.rows.iter().sum(), &mut report, progress)?;
    }
    while let Some((done, total)) = to.patiently(IndexSome, INDEXING)? {
        let number = |id: i64| u64::try_from(id).unwrap_or_default();
        let (done, total) = (number(done), number(total));
        progress(MigrationProgress { phase: MigrationPhase::Indexing, table: "messages", done, total });
    }
    to.transcript(Finish)?;
    Ok(report)
}

/// What [`migrate`] would do, changing nothing.
///
/// # Errors
/// As [`migrate`]; what is the matter with single rows is in the report.
pub fn plan_migration(
    from: &SessionDb,
    to: MigrationTarget<'_>,
    options: &MigrateOptions,
    progress: &mut dyn FnMut(MigrationProgress),
) -> Result<MigrationReport> {
    let mut report = MigrationReport { dry_run: true, merged: options.merge, ..MigrationReport::default() };
    let source = from.path().display().to_string();
    let (to, typed) = match to {
        MigrationTarget::Store(to) => (Some(to), to.is_typed()?),
        MigrationTarget::NewFile => (None, false),
        MigrationTarget::NewServer => (None, true),
    };
    if let Some(to) = to {
        different(from, to)?;
        let target = to.path().display().to_string();
        match standing(to)? {
            Some(found) if found.source != source || found.merge != options.merge => {
                let source_store = found.source;
                return Err(MigrationTrouble::Unfinished { target, source_store, merge: found.merge }.into());
            }
            Some(_) => report.resumed = true,
            None if !options.merge => {
                if let Some(table) = to.read(occupied)? {
                    return Err(MigrationTrouble::NotEmpty { target, table }.into());
                }
            }
            None => {}
        }
    }
    // Reading it may need a right that reading the tables does not.
    from.read(|transaction| transaction.highest_message_id())?;
    let checked = check::check(from, typed, options.ignore_unknown, progress)?;
    (report.notes, report.problems) = (checked.notes, checked.problems);
    let theirs = sums(from, &checked.rows, progress)?;
    let ours = to.map(|to| sums(to, &[], progress)).transpose()?;
    report.tables = tables()?
        .iter()
        .enumerate()
        .map(|(number, table)| TableReport {
            table: table.name,
            copied: theirs[number].rows,
            ..of_table(table.name, theirs[number], ours.as_ref().map_or_else(Checksum::default, |sums| sums[number]))
        })
        .collect();
    if let (true, Some(to)) = (options.merge, to) {
        merge::plan(from, to, &mut report)?;
    }
    Ok(report)
}

fn different(from: &SessionDb, to: &SessionDb) -> Result<()> {
    if from.path() == to.path() {
        return Err(MigrationTrouble::SameStore(from.path().display().to_string()).into());
    }
    if standing(from)?.is_some() {
        return Err(MigrationTrouble::SourceUnfinished(from.path().display().to_string()).into());
    }
    Ok(())
}

/// Whose unfinished migration a store holds. Stores of the oldest releases have no table to say it in.
fn standing(db: &SessionDb) -> Result<Option<Marker>> {
    match db.read(Marker::read) {
        Err(Error::Engine { .. }) => Ok(None),
        found => found,
    }
}

/// Passes until the target is what the source was at one moment, and until the source rests if it does.
fn copy_all(
    from: &SessionDb,
    to: &SessionDb,
    mut origin: Origin,
    total: u64,
    report: &mut MigrationReport,
    progress: &mut dyn FnMut(MigrationProgress),
) -> Result<()> {
    let mut copied = vec![0; tables()?.len()];
    let mut removed = copied.clone();
    loop {
        let passed = copy::pass(from, to, &mut origin, total, progress)?;
        report.passes += 1;
        let expected: Vec<u64> = passed.source.iter().map(|sum| sum.rows).collect();
        let held = sums(to, &expected, progress)?;
        copied.iter_mut().zip(&passed.copied).for_each(|(all, some)| *all += some);
        let unequal: Vec<&'static str> = tables()?
            .iter()
            .enumerate()
            .filter(|(number, _)| held[*number] != passed.source[*number])
            .map(|(_, table)| table.name)
            .collect();
        // What else changes, the next pass would find, but not everything is worth another one.
        let changed = Changed::since(from, &passed)?;
        report.source_changed = changed.at_all;
        let last = report.passes >= PASSES;
        if unequal.is_empty() && (!changed.grown || last) {
            report.tables = tables()?
                .iter()
                .enumerate()
                .map(|(number, table)| TableReport {
                    copied: copied[number],
                    removed: removed[number],
                    ..of_table(table.name, passed.source[number], held[number])
                })
                .collect();
            return to.transcript(RaiseIds(passed.highest));
        }
        if last {
            return Err(MigrationTrouble::Unequal { passes: report.passes, tables: unequal }.into());
        }
        if !unequal.is_empty() {
            let gone = copy::remove_extras(from, to, &origin)?;
            removed.iter_mut().zip(gone).for_each(|(all, some)| *all += some);
        }
    }
}

fn of_table(table: &'static str, source: Checksum, target: Checksum) -> TableReport {
    TableReport {
        table,
        source_rows: source.rows,
        target_rows: target.rows,
        source_checksum: source.text(),
        target_checksum: target.text(),
        ..TableReport::default()
    }
}

/// Counts and checksums of a store as of one moment.
fn sums(db: &SessionDb, expected: &[u64], progress: &mut dyn FnMut(MigrationProgress)) -> Result<Vec<Checksum>> {
    let total = expected.iter().sum();
    let (teller, told) = sync_channel(64);
    thread::scope(|scope| {
        let reading = thread::Builder::new()
            .name("hermes-compare".into())
            .spawn_scoped(scope, || {
                db.read_at_length(move |transaction| {
                    checksums(transaction, &|table, rows| {
                        // If nobody wants to know how far it is, it is read all the same.
                        let _ = teller.send((table, rows));
                    })
                })
            })
            .map_err(|error| Error::Engine { message: format!("no thread to read the store: {error}"), code: 0 })?;
        let mut done = 0;
        for (table, rows) in told {
            done += rows as u64;
            let table = tables()?[table].name;
            let shown = done.min(total);
            progress(MigrationProgress { phase: MigrationPhase::Comparing, table, done: shown, total });
        }
        reading.join().unwrap_or_else(|_| Err(Error::Invalid("reading the store panicked".into())))
    })
}
