//! Looks at a file without changing anything, and tells how each part of the store is.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ffi};

use super::super::connection::{Location, take_any_schema};
use super::super::errors::{classify, extended_code, message};
use super::super::identity::sidecar;
use super::super::onlooker;
use super::super::search::lost_rows;
use super::super::{deadline, journal, status};
use super::{probe, work};
use crate::error::Result;
use crate::repair::{CheckDepth, Health, Part, PartHealth, PartState};

/// How long a quick check may take.
const QUICK: Duration = Duration::from_secs(10);

/// Up to this length a file is read whole by a quick check, too.
const SMALL: u64 = if cfg!(test) { 4 << 20 } else { 256 << 20 };

/// What is told of a part at most.
const MOST: usize = 100;

const REPAIR: &str =
    "Stop the programs that use the store, then run `hermes-state repair`, which keeps the damaged file.";
const REPAIR_INDEX: &str = "No message is in danger: when no program uses the store, run `hermes-state repair`; until then searches read messages themselves.";
const LOOK_AGAIN: &str = "Run `hermes-state check --full`, which takes as long as it needs.";

/// How the file is.
pub(super) fn look(location: &Location, depth: CheckDepth) -> Result<Health> {
    look_within(location, depth, QUICK)
}

/// As [`look`], a quick check within this time.
fn look_within(location: &Location, depth: CheckDepth, quick: Duration) -> Result<Health> {
    let failed = |error: rusqlite::Error| classify(location.path(), &error);
    let connection = onlooker::open_as_it_is(location).map_err(failed)?;
    let mut looking = Looking::through(&connection);
    match depth {
        CheckDepth::Quick => {
            deadline::until(Instant::now() + quick, || looking.quickly(status::bytes(location.path())))
        }
        CheckDepth::Full => looking.fully(),
    }
    .map_err(failed)?;
    looking.sidecars(location);
    Ok(looking.conclude())
}

/// How all pages are that a connection reads, however long it takes to look; `path` is what errors name.
pub(in crate::backend::sqlite) fn pages(connection: &Connection, path: &Path, depth: CheckDepth) -> Result<Health> {
    let mut looking = Looking::through(connection);
    looking.whole(depth).map_err(|error| classify(path, &error))?;
    Ok(looking.conclude())
}

struct Looking<'a> {
    connection: &'a Connection,
    health: Health,
    parts: BTreeMap<Part, (PartState, Vec<String>, Option<String>)>,
}

impl<'a> Looking<'a> {
    fn through(connection: &'a Connection) -> Self {
        Self { connection, health: Health::default(), parts: BTreeMap::new() }
    }

    /// Notes something about a part; the next step is that of the worst.
    fn note(&mut self, part: Part, state: PartState, finding: impl Into<String>, next_step: &str) {
        let entry = self.parts.entry(part).or_insert((PartState::Well, Vec::new(), None));
        if state > entry.0 || entry.2.is_none() {
            (entry.0, entry.2) = (entry.0.max(state), Some(next_step.to_owned()));
        }
        if entry.1.len() < MOST {
            entry.1.push(finding.into());
        }
    }

    fn quickly(&mut self, bytes: u64) -> rusqlite::Result<()> {
        if bytes <= SMALL {
            return match self.whole(CheckDepth::Quick) {
                Err(error) if is_out_of_time(&error) => {
                    self.unfinished(&[Part::Sessions, Part::Transcript, Part::Index, Part::Others]);
                    Ok(())
                }
                done => done,
            };
        }
        match self.in_order() {
            Err(error) if is_damage(&error) => self.whole(CheckDepth::Quick),
            done => done,
        }
    }

    fn unfinished(&mut self, parts: &[Part]) {
        for part in parts {
            let finding = format!("not all of it was looked at in {} s", QUICK.as_secs());
            self.note(*part, PartState::Unfinished, finding, LOOK_AGAIN);
        }
    }

    /// Looks at tables one by one, the most precious first, as far as the time goes.
    fn in_order(&mut self) -> rusqlite::Result<()> {
        let mut tables: Vec<String> = super::tables(self.connection)?.into_iter().map(|(table, _)| table).collect();
        tables.sort_by_key(|table| (part_of(table), table.clone()));
        match probe::search_tables(self.connection) {
            Ok(problems) => problems.into_iter().for_each(|problem| self.damaged_index(problem)),
            Err(error) if is_out_of_time(&error) => self.unfinished(&[Part::Index]),
            Err(error) => return Err(error),
        }
        // What FTS5 makes of its pages takes longer than anything else.
        self.unfinished(&[Part::Index]);
        for table in tables {
            match check_of(self.connection, CheckDepth::Quick, &table) {
                Ok(problems) if problems.is_empty() => {}
                Ok(problems) => self.of_table(&table, problems),
                Err(error) if is_out_of_time(&error) => self.unfinished(&[part_of(&table)]),
                Err(error) if is_damage(&error) => self.of_table(&table, vec![message(&error)]),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn fully(&mut self) -> rusqlite::Result<()> {
        self.whole(CheckDepth::Full)?;
        if self.health.unreadable.is_empty()
            && let Err(error) = self.between_tables()
        {
            match is_damage(&error) {
                true => self.damaged_index(message(&error)),
                false => return Err(error),
            }
        }
        Ok(())
    }

    /// Looks at all pages at once and, if something is wrong, at each table, to see what it costs.
    fn whole(&mut self, depth: CheckDepth) -> rusqlite::Result<()> {
        let found = probe::problems(self.connection, depth).and_then(|mut found| {
            found.extend(probe::search_tables(self.connection)?);
            // What was overwritten with zeros is no error to SQLite: the index just finds nothing.
            let has_lost_rows = |table: &&&str| lost_rows(self.connection, table).unwrap_or(false);
            let lost = probe::SEARCH_TABLES.iter().filter(has_lost_rows);
            found.extend(lost.map(|table| format!("the search index {table} has lost rows")));
            Ok(found)
        });
        let mut rest = match found {
            Ok(found) => found,
            Err(error) if is_damage(&error) => vec![message(&error)],
            Err(error) => return Err(error),
        };
        if rest.is_empty() {
            return Ok(());
        }
        // What cannot be parsed of the schema does not keep the rest of it from being read.
        take_any_schema(self.connection)?;
        let tables = match super::tables(self.connection) {
            Ok(tables) if tables.iter().any(|(table, _)| table == "sessions") => tables,
            _ => {
                self.health.problems = rest;
                self.health.unreadable.push("sqlite_schema".to_owned());
                for part in [Part::Sessions, Part::Transcript] {
                    self.note(part, PartState::Damaged, "the schema cannot be read, and so no table", REPAIR);
                }
                return Ok(());
            }
        };
        for (table, _) in tables {
            let own = match check_of(self.connection, depth, &table) {
                Ok(own) => own,
                Err(error) if is_damage(&error) => vec![message(&error)],
                Err(error) if is_out_of_time(&error) => return Err(error),
                Err(_) => Vec::new(),
            };
            rest.retain(|problem| !own.contains(problem));
            if !own.is_empty() || !is_readable(self.connection, &table) {
                self.of_table(&table, own);
            }
        }
        // Damage to a table may have ended the check before it came to the search indexes.
        for index in probe::SEARCH_TABLES {
            match check_of(self.connection, depth, index) {
                Ok(own) => {
                    rest.retain(|problem| !own.contains(problem));
                    own.into_iter().for_each(|problem| self.damaged_index(problem));
                }
                Err(error) if is_damage(&error) => self.damaged_index(format!("{index}: {}", message(&error))),
                Err(error) if is_out_of_time(&error) => return Err(error),
                Err(_) => {}
            }
        }
        // What no table has is about a search index, an object of the schema or unused pages, unless rows are missing, too.
        let costs_rows = !self.health.unreadable.is_empty();
        for problem in rest {
            if costs_rows && !problem.contains("fts") {
                self.health.problems.push(problem);
            } else {
                self.damaged_index(problem);
            }
        }
        Ok(())
    }

    fn damaged_index(&mut self, problem: String) {
        self.note(Part::Index, PartState::Damaged, problem.clone(), REPAIR_INDEX);
        self.health.problems.push(problem);
    }

    /// Something is wrong with a table, or with an index of it.
    fn of_table(&mut self, table: &str, problems: Vec<String>) {
        if is_readable(self.connection, table) {
            problems.into_iter().for_each(|problem| self.damaged_index(problem));
            return;
        }
        self.health.unreadable.push(table.to_owned());
        let part = part_of(table);
        self.note(part, PartState::Damaged, format!("not every row of {table} could be read"), REPAIR);
        for problem in problems {
            self.note(part, PartState::Damaged, problem.clone(), REPAIR);
            self.health.problems.push(problem);
        }
        if self.health.problems.is_empty() {
            self.health.problems.push(format!("not every row of {table} could be read"));
        }
    }

    /// What one table says of another.
    fn between_tables(&mut self) -> rusqlite::Result<()> {
        let connection = self.connection;
        let gaps = probe::gaps(connection)?;
        for (index, rows) in &gaps.lacking {
            self.damaged_index(probe::lack(index, *rows));
        }
        let mut strays = connection
            .prepare("SELECT \"table\", parent, COUNT(*) FROM pragma_foreign_key_check GROUP BY \"table\", parent")?;
        let strays: Vec<(String, String, i64)> = strays
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<rusqlite::Result<_>>()?;
        for (table, parent, rows) in strays {
            let next = match table.as_str() {
                "messages" => "Run `hermes-state repair`, which gives them sessions with the source `unknown`.",
                _ => "Nothing: what they refer to was deleted, and they are shown without it.",
            };
            let finding = format!("{rows} rows of {table} refer to rows of {parent} that are not there");
            self.note(part_of(&table), PartState::Noted, finding, next);
        }
        let columns = |table: &str, column: &str| {
            let asked = "SELECT COUNT(*) FROM pragma_table_info(?1) WHERE name = ?2";
            connection.query_row(asked, [table, column], |row| row.get::<_, bool>(0))
        };
        if columns("sessions", "message_count")? && columns("messages", "session_id")? {
            let active = if columns("messages", "active")? { " AND m.active = 1" } else { "" };
            let wrong: i64 = connection.query_row(
                &format!(
                    "SELECT COUNT(*) FROM sessions s WHERE s.message_count IS NOT NULL AND s.message_count <> \
                     (SELECT COUNT(*) FROM messages m WHERE m.session_id = s.id{active})"
                ),
                [],
                |row| row.get(0),
            )?;
            if wrong > 0 {
                let finding = format!("{wrong} sessions have another number of messages than they count");
                let next = "Nothing: no message is missing by it, only the number that lists show is another.";
                self.note(Part::Sessions, PartState::Noted, finding, next);
            }
        }
        Ok(())
    }

    /// The files beside the store, by `stat` alone.
    fn sidecars(&mut self, location: &Location) {
        let path = location.path();
        let log = status::bytes(&sidecar(path, "-wal"));
        let journal = status::bytes(&sidecar(path, "-journal"));
        if journal > 0 && journal::mode(self.connection).is_ok_and(|mode| mode == "wal") {
            let finding = format!("a rollback journal of {journal} bytes lies beside a store that has a log");
            self.note(
                Part::Sidecars,
                PartState::Noted,
                finding,
                "Nothing: the next program that opens the store sees to it.",
            );
        }
        if log > 0 && status::users(path).is_empty() {
            let finding = format!("a log of {log} bytes was left by a program that ended without closing the store");
            self.note(
                Part::Sidecars,
                PartState::Noted,
                finding,
                "Nothing: the next program that opens the store merges it.",
            );
        }
        let left = work::leftovers(path);
        if left > 0 {
            let finding = format!("{left} working copies were left by a repair that was killed, or is at work");
            self.note(Part::Sidecars, PartState::Noted, finding, "Run `hermes-state repair`, which removes them.");
        }
    }

    fn conclude(mut self) -> Health {
        self.health.parts = Part::OF_FILES
            .into_iter()
            .map(|part| {
                let (state, findings, next_step) =
                    self.parts.remove(&part).unwrap_or((PartState::Well, Vec::new(), None));
                PartHealth { part, state, findings, next_step }
            })
            .collect();
        self.health
    }
}

fn part_of(table: &str) -> Part {
    match table {
        "sessions" => Part::Sessions,
        "messages" => Part::Transcript,
        _ => Part::Others,
    }
}

fn check_of(connection: &Connection, depth: CheckDepth, table: &str) -> rusqlite::Result<Vec<String>> {
    let pragma = if depth == CheckDepth::Full { "integrity_check" } else { "quick_check" };
    probe::findings(connection, &format!("PRAGMA {pragma}(\"{}\")", table.replace('"', "\"\"")))
}

fn is_damage(error: &rusqlite::Error) -> bool {
    extended_code(error) & 0xff == ffi::SQLITE_CORRUPT
}

fn is_out_of_time(error: &rusqlite::Error) -> bool {
    extended_code(error) & 0xff == ffi::SQLITE_INTERRUPT
}

/// Whether every row of a table can be read from the table itself.
fn is_readable(connection: &Connection, table: &str) -> bool {
    let name = table.replace('"', "\"\"");
    let read = || -> rusqlite::Result<()> {
        let mut statement = connection.prepare(&format!("SELECT * FROM \"{name}\" NOT INDEXED"))?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                row.get_ref(column)?;
            }
        }
        Ok(())
    };
    read().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NewMessage, NewSession, SessionDb};

    #[test]
    fn of_a_large_file_a_quick_check_tells_what_it_had_no_time_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state.db");
        let db = SessionDb::open(&path).expect("opens");
        db.create_session(NewSession::new("s", "cli")).expect("creates");
        let texts = (0..3000).map(|number| format!("marker{number} {}", "filler words ".repeat(80)));
        db.append_messages("s", texts.map(|text| NewMessage::new("user", text)).collect()).expect("appends");
        db.close().expect("closes");
        assert!(status::bytes(&path) > SMALL);
        let state = |health: &Health, part| health.parts.iter().find(|found| found.part == part).expect("told").state;
        let location = Location::File(path.clone());
        let enough = look_within(&location, CheckDepth::Quick, Duration::from_secs(600)).expect("looks");
        assert_eq!(state(&enough, Part::Transcript), PartState::Well, "{enough:?}");
        let hurried = look_within(&location, CheckDepth::Quick, Duration::ZERO).expect("looks");
        assert_eq!(state(&hurried, Part::Transcript), PartState::Unfinished, "{hurried:?}");
        assert!(hurried.is_well(), "{hurried:?}");
        let next = hurried.parts.iter().find_map(|part| part.next_step.clone()).expect("a next step");
        assert!(next.contains("check --full"), "{next}");
        let full = look_within(&location, CheckDepth::Full, Duration::ZERO).expect("looks");
        assert_eq!(state(&full, Part::Transcript), PartState::Well, "{full:?}");
    }
}
