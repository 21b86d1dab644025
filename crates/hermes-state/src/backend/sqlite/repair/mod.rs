//! Repairs a damaged file, never in place: what helps is found on a copy, which takes the file's place only when it is
//! well, and only when nobody has the file open. Until then the damaged file stays byte for byte as it was.

pub(super) mod check;
pub(super) mod exclusive;
mod probe;
mod salvage;
mod strategy;
#[cfg(test)]
mod tests;
pub(super) mod work;

use std::path::Path;

use super::connection::Location;
use super::errors::{cannot_open, classify};
use super::identity::{FileIdentity, sidecar};
use super::readers::on_crew;
use super::store::{absolute, refuse_truncated, resolved};
use crate::backend::sqlite::schema;
use crate::error::{Error, Result};
use crate::repair::{CheckDepth, Health, RepairOptions, RepairReport, RepairStrategy, RepairedTable};

use exclusive::Exclusive;
use work::Work;

/// Looks at the file without changing anything.
pub(crate) fn look(path: &Path, depth: CheckDepth) -> Result<Health> {
    let path = existing(path)?;
    on_crew(move || check::look(&Location::File(path), depth))
}

/// What is wrong with the file: whether it can be read, searched, and written, which is tried and undone. A file that is
/// busy, or that may only be read, is judged by what can be read.
pub(crate) fn ailment(path: &Path) -> Result<Option<String>> {
    let path = existing(path)?;
    on_crew(move || probe::ailment(&Location::File(path)))
}

/// Repairs the file if something is wrong with it.
pub(crate) fn repair(path: &Path, options: &RepairOptions) -> Result<RepairReport> {
    let (path, options) = (existing(path)?, options.clone());
    on_crew(move || run(&path, &options))
}

pub(super) fn existing(path: &Path) -> Result<std::path::PathBuf> {
    let path = resolved(absolute(path)?);
    refuse_truncated(&path)?;
    match std::fs::metadata(&path) {
        Ok(found) if found.is_file() => Ok(path),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::CannotOpen { path, reason: "it does not exist".to_owned() })
        }
        _ => Err(cannot_open(path)),
    }
}

fn run(path: &Path, options: &RepairOptions) -> Result<RepairReport> {
    match &options.into {
        Some(target) => run_into(path, target, options),
        None => run_in_place(path, options),
    }
}

fn report(path: &Path, strategy: RepairStrategy) -> RepairReport {
    RepairReport { path: path.to_owned(), strategy, backup: None, into: None, tables: Vec::new(), notes: Vec::new() }
}

/// What is to be mended.
enum Reason {
    /// Something keeps the file from being read, searched or written.
    Ailment(String),
    /// Nothing does, but something is missing.
    Gap(String),
}

fn reason(location: &Location, options: &RepairOptions) -> Result<Option<Reason>> {
    match probe::ailment(location)? {
        None if options.thorough => Ok(probe::gap(location)?.map(Reason::Gap)),
        found => Ok(found.map(Reason::Ailment)),
    }
}

/// Repairs a copy of a file that nobody else can open meanwhile, and puts it in its place.
fn run_in_place(path: &Path, options: &RepairOptions) -> Result<RepairReport> {
    let (reason, damaged) = loop {
        let judged = identity(path);
        let Some(reason) = reason(&Location::File(path.to_owned()), options)? else {
            return Ok(report(path, RepairStrategy::AlreadyHealthy));
        };
        // From here to the end nobody else can open the file.
        let damaged = Exclusive::take(path)?;
        // Somebody else may have repaired it meanwhile.
        if damaged.identity() == judged {
            break (reason, damaged);
        }
    };
    refuse_newer(path, damaged.schema_version())?;
    work::remove_leftovers(path);
    let copy = Work::begin(path, "copy")?;
    damaged.copy_to(copy.path())?;
    let (repaired, found) = mend(path, path, copy, reason, options)?;
    let backup = damaged.replace_by(repaired, options, loses(&found.tables))?;
    Ok(RepairReport { backup, ..found })
}

/// Repairs a copy of a file as it is at this moment, others at work on it or not, and leaves it at the target.
fn run_into(path: &Path, target: &Path, options: &RepairOptions) -> Result<RepairReport> {
    let target = resolved(absolute(target)?);
    let refuse = || Error::Invalid(format!("{} is there already; name a file that is not", target.display()));
    if FileIdentity::of(&target).is_some() || FileIdentity::of(&sidecar(&target, "-wal")).is_some() {
        return Err(refuse());
    }
    let source = Location::File(path.to_owned());
    // Not by trying to write: the source is only looked at.
    let problems = check::look(&source, CheckDepth::Full)?.problems;
    let gap = if options.thorough && problems.is_empty() { probe::gap(&source)? } else { None };
    let reason = match gap {
        Some(gap) => Reason::Gap(gap),
        None if problems.is_empty() => return Ok(report(path, RepairStrategy::AlreadyHealthy)),
        None => Reason::Ailment(problems.into_iter().take(3).collect::<Vec<_>>().join("; ")),
    };
    work::remove_leftovers_of_the_dead(&target);
    let copy = Work::begin(&target, "copy")?;
    refuse_newer(path, work::copy_as_it_is(&source, copy.path())?)?;
    let (repaired, found) = mend(path, &target, copy, reason, options)?;
    repaired.finish(path)?;
    repaired.become_new(&target, refuse)?;
    Ok(RepairReport { into: Some(target), ..found })
}

/// Finds what helps on the copy, and says what it took and left. `beside` is the file beside which more copies may lie.
fn mend(
    path: &Path,
    beside: &Path,
    copy: Work,
    reason: Reason,
    options: &RepairOptions,
) -> Result<(Work, RepairReport)> {
    let before = strategy::count(copy.path())?;
    let (mut notes, ailing) = match reason {
        Reason::Ailment(ailment) => (vec![ailment], true),
        Reason::Gap(gap) => (vec![gap], false),
    };
    let mut made = 0;
    for strategy in strategy::ON_A_COPY {
        // Into a file that is not well nothing is written but by what makes it well.
        if strategy == RepairStrategy::AdoptOrphans && ailing {
            continue;
        }
        let mut ailment = match strategy::apply(strategy, copy.path()) {
            Ok(()) => probe::ailment(copy.location())?,
            Err(error @ (Error::Full { .. } | Error::Busy { .. })) => return Err(error.with_path(path)),
            Err(error) => Some(error.to_string()),
        };
        if ailment.is_none() && options.thorough {
            made += strategy::adopt_orphans(copy.path()).map_err(|error| error.with_path(path))?;
            ailment = probe::gap(copy.location())?;
        }
        match ailment {
            None => {
                let tables = strategy::compare(&before, strategy::count(copy.path())?, made);
                return Ok((copy, RepairReport { tables, notes, ..report(path, strategy) }));
            }
            Some(ailment) => notes.push(format!("{} did not help: {ailment}", strategy.name())),
        }
    }
    let fresh = Work::begin(beside, "fresh")?;
    let tables = salvage::salvage(copy.path(), fresh.path()).map_err(|error| error.with_path(path))?;
    drop(copy);
    if let Some(ailment) = probe::ailment(fresh.location())? {
        notes.push(format!("{} did not help: {ailment}", RepairStrategy::SalvageRows.name()));
        return Err(beyond_repair(path, &notes));
    }
    if !tables.iter().any(|table| table.name == "sessions") {
        notes.push("its table of sessions cannot be found".to_owned());
        return Err(beyond_repair(path, &notes));
    }
    Ok((fresh, RepairReport { tables, notes, ..report(path, RepairStrategy::SalvageRows) }))
}

fn loses(tables: &[RepairedTable]) -> bool {
    tables.iter().any(|table| table.lost > 0 || table.incomplete || table.mended > 0)
}

fn beyond_repair(path: &Path, notes: &[String]) -> Error {
    let message = format!("it could not be repaired and is as it was; {}", notes.join("; "));
    Error::Corrupt { path: path.to_owned(), message, part: None, code: rusqlite::ffi::SQLITE_CORRUPT }
}

/// A file of a newer release may hold what this one does not know how to keep.
fn refuse_newer(path: &Path, version: Option<i64>) -> Result<()> {
    match version {
        Some(found) if found > schema::SCHEMA_VERSION => {
            Err(Error::TooNew { path: path.to_owned(), found, supported: schema::SCHEMA_VERSION })
        }
        _ => Ok(()),
    }
}

impl Error {
    /// The same trouble with a working copy, told of the store that it is a copy of.
    fn with_path(self, store: &Path) -> Self {
        match self {
            Error::Full { .. } => Error::Full { path: store.to_owned() },
            other => other,
        }
    }
}

/// A connection on a copy that nobody else knows of, with its schema read as far as it can be.
fn open_copy(path: &Path) -> Result<rusqlite::Connection> {
    let failed = |error: rusqlite::Error| classify(path, &error);
    let connection = super::connection::open_existing(&Location::File(path.to_owned())).map_err(failed)?;
    super::connection::take_any_schema(&connection).map_err(failed)?;
    // The default of this build holds the copy that VACUUM makes in memory.
    connection.pragma_update(None, "temp_store", "FILE").map_err(failed)?;
    Ok(connection)
}

/// The names of the tables as far as the schema can be read, without those that FTS5 keeps for the search indexes.
fn tables(connection: &rusqlite::Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let mut statement = connection.prepare(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
         AND name NOT LIKE 'messages\\_fts%' ESCAPE '\\' AND name NOT LIKE 'fts\\_v22\\_trash%' ESCAPE '\\' \
         AND sql NOT LIKE 'CREATE VIRTUAL%' GROUP BY name",
    )?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Which file it is, to see whether it is still the same.
fn identity(path: &Path) -> Option<FileIdentity> {
    FileIdentity::of(path)
}
