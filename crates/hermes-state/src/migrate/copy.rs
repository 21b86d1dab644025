//! One pass: brings a target that the migration owns to what the source holds at one moment.
//!
//! The same pass starts a migration, resumes one that was killed, and catches up with a source that is in use: what is
//! equal is left alone, and nothing but the target itself has to be remembered.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use super::origin::{Origin, proved};
use super::report::{MigrationPhase, MigrationProblem, MigrationProgress};
use super::rows::{Checksum, Pages, Row, digest, identity, lookup};
use super::source::{Told, tell};
use super::tables::{BINDINGS, MESSAGES, META, SESSIONS, Table, is_of_engine, tables};
use super::trouble::MigrationTrouble;
use super::write::{PutRows, RaiseIds, RemoveRows, SetParents};
use crate::db::SessionDb;
use crate::error::{Error, Result};
use crate::transaction::Transaction;
use crate::value::Value;

/// How many links to parents are set at once.
const LINKS: usize = 1000;

/// What a pass found and did, by table.
#[derive(Default, Clone)]
pub(super) struct Passed {
    pub(super) source: Vec<Checksum>,
    pub(super) copied: Vec<u64>,
    /// The highest id that a message of the source had had when the pass began.
    pub(super) highest: i64,
}

/// What a target holds at the beginning of a pass.
struct Held {
    /// Which tables have no rows.
    empty: Vec<bool>,
    highest: i64,
    last_message: Option<i64>,
}

impl Held {
    fn read(transaction: &mut dyn Transaction) -> Result<Self> {
        let mut empty = Vec::new();
        for table in tables()? {
            let sql = format!("SELECT 1 FROM {} LIMIT 1", table.name);
            empty.push(!table.is_there(transaction)? || transaction.scalar(&sql, &[])?.is_null());
        }
        let last_message = transaction.scalar("SELECT MAX(id) FROM messages", &[])?.as_i64();
        Ok(Self { empty, highest: transaction.highest_message_id()?, last_message })
    }
}

struct Pass<'a> {
    to: &'a SessionDb,
    origin: &'a mut Origin,
    held: Held,
    done: u64,
    total: u64,
    passed: Passed,
    parents: Vec<(Value, Value)>,
    ended: usize,
    progress: &'a mut dyn FnMut(MigrationProgress),
}

/// Runs a pass; `total` is what the progress counts up to.
pub(super) fn pass(
    from: &SessionDb,
    to: &SessionDb,
    origin: &mut Origin,
    total: u64,
    progress: &mut dyn FnMut(MigrationProgress),
) -> Result<Passed> {
    let (teller, told) = sync_channel(2);
    thread::scope(|scope| {
        let reading = thread::Builder::new()
            .name("hermes-migrate".into())
            .spawn_scoped(scope, || from.read_at_length(move |transaction| tell(transaction, &teller)))
            .map_err(|error| Error::Engine { message: format!("no thread to read the source: {error}"), code: 0 })?;
        let copied = copy(to, origin, told, total, progress);
        let read = reading.join().unwrap_or_else(|_| Err(Error::Invalid("reading the source panicked".into())));
        // If copying failed the reading failed for it; if reading failed the copying just came to an early end.
        let passed = copied?;
        read?;
        passed.ok_or_else(|| Error::Engine { message: "the source was not read to its end".into(), code: 0 })
    })
}

fn copy(
    to: &SessionDb,
    origin: &mut Origin,
    told: Receiver<Told>,
    total: u64,
    progress: &mut dyn FnMut(MigrationProgress),
) -> Result<Option<Passed>> {
    let held = to.read(Held::read)?;
    let mut pass =
        Pass { to, origin, held, done: 0, total, passed: Passed::default(), parents: Vec::new(), ended: 0, progress };
    let count = tables()?.len();
    for told in told {
        match told {
            Told::Begin { highest } => pass.begin(highest)?,
            Told::Rows { table, rows } => pass.rows(table, rows)?,
            Told::End { table } => {
                if table == SESSIONS {
                    pass.link()?;
                }
                pass.ended = table + 1;
            }
        }
    }
    Ok((pass.ended == count).then_some(pass.passed))
}

impl Pass<'_> {
    fn begin(&mut self, highest: i64) -> Result<()> {
        let count = tables()?.len();
        if self.ended > 0 || self.done > 0 {
            self.held = self.to.read(Held::read)?;
        }
        if self.held.last_message.is_some_and(|last| last > highest) {
            let what = format!("messages up to id {}, while the source never went beyond {highest}", self.held.highest);
            return Err(MigrationTrouble::WrittenByOthers { what }.into());
        }
        (self.done, self.ended) = (0, 0);
        self.parents.clear();
        self.passed = Passed { source: vec![Checksum::default(); count], copied: vec![0; count], highest };
        self.to.transcript(RaiseIds(highest))
    }

    fn rows(&mut self, number: usize, rows: Vec<Row>) -> Result<()> {
        let table = &tables()?[number];
        let parent = (number == SESSIONS).then(|| table.place("parent_session_id")).flatten();
        let count = rows.len() as u64;
        self.origin.see(number, table, &rows);
        for row in &rows {
            self.passed.source[number].add(digest(row, None));
            if let Some(place) = parent
                && !(self.held.empty[SESSIONS] && row[place].is_null())
            {
                self.parents.push((row[0].clone(), row[place].clone()));
            }
        }
        let beyond = |row: &Row| self.held.last_message.is_none_or(|last| row[0].as_i64().is_some_and(|id| id > last));
        let fresh = if number == MESSAGES { rows.first().is_some_and(beyond) } else { self.held.empty[number] };
        let rows = if fresh { rows } else { self.different(number, table, parent, rows)? };
        self.passed.copied[number] += rows.len() as u64;
        if !rows.is_empty() {
            put(self.to, PutRows { table: number, rows: Arc::new(rows), fresh })?;
        }
        self.done += count;
        (self.progress)(MigrationProgress {
            phase: MigrationPhase::Copying,
            table: table.name,
            done: self.done.min(self.total),
            total: self.total,
        });
        Ok(())
    }

    /// Those rows that the target lacks or has otherwise.
    fn different(
        &self,
        number: usize,
        table: &'static Table,
        parent: Option<usize>,
        rows: Vec<Row>,
    ) -> Result<Vec<Row>> {
        let keys: Vec<Vec<Value>> = rows.iter().map(|row| table.key_of(row)).collect();
        let found = self.to.read(move |transaction| {
            let mut found = HashMap::new();
            lookup(transaction, table, &table.column_list(), &keys, &mut |key, row| {
                // A message is told from another one by session and time.
                let origin = (number == MESSAGES).then(|| identity(&origin(table, &row)));
                found.insert(key, (digest(&row, parent), origin));
                Ok(())
            })?;
            Ok(found)
        })?;
        let mut different = Vec::new();
        for row in rows {
            match found.get(&identity(&table.key_of(&row))) {
                Some((same, _)) if *same == digest(&row, parent) => {}
                Some((_, Some(other))) if *other != identity(&origin(table, &row)) => {
                    let what = format!("message {} there is another one than in the source", table.key_text(&row));
                    return Err(MigrationTrouble::WrittenByOthers { what }.into());
                }
                _ => different.push(row),
            }
        }
        Ok(different)
    }

    /// Links sessions to their parents where that is not so yet.
    fn link(&mut self) -> Result<()> {
        let fresh = self.held.empty[SESSIONS];
        for links in std::mem::take(&mut self.parents).chunks(LINKS) {
            let mut links = links.to_vec();
            if !fresh {
                let keys: Vec<Vec<Value>> = links.iter().map(|(id, _)| vec![id.clone()]).collect();
                let found = self.to.read(move |transaction| {
                    let mut found = HashMap::new();
                    lookup(transaction, &tables()?[SESSIONS], "parent_session_id", &keys, &mut |key, row| {
                        found.insert(key, row.into_iter().next().unwrap_or_default());
                        Ok(())
                    })?;
                    Ok(found)
                })?;
                links.retain(|(id, parent)| found.get(&identity(std::slice::from_ref(id))) != Some(parent));
            }
            if !links.is_empty() {
                self.to.transcript(SetParents(links))?;
            }
        }
        Ok(())
    }
}

fn origin(table: &Table, row: &[Value]) -> Vec<Value> {
    ["session_id", "timestamp"].iter().filter_map(|name| Some(row[table.place(name)?].clone())).collect()
}

/// Writes rows; if that fails, finds out which row it is about.
pub(super) fn put(to: &SessionDb, rows: PutRows) -> Result<()> {
    match to.transcript(rows.clone()) {
        Err(Error::Constraint { .. } | Error::Engine { .. }) => {}
        outcome => return outcome,
    }
    let table = &tables()?[rows.table];
    for row in rows.rows.iter() {
        let one = PutRows { rows: Arc::new(vec![row.clone()]), ..rows.clone() };
        match to.transcript(one) {
            Err(error @ (Error::Constraint { .. } | Error::Engine { .. })) => {
                let (key, reason) = (Some(table.key_text(row)), error.to_string());
                let problem = MigrationProblem { table: table.name, key, column: None, reason };
                return Err(MigrationTrouble::Refused(problem).into());
            }
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Removes what the source no longer has. If somebody else may have put any of it there, nothing is removed.
pub(super) fn remove_extras(from: &SessionDb, to: &SessionDb, origin: &Origin) -> Result<Vec<u64>> {
    let mut gone = Vec::new();
    for number in 0..tables()?.len() {
        gone.push(extras(from, to, number)?);
    }
    let (begun, sessions, bindings) = (origin.begun, gone[SESSIONS].clone(), gone[BINDINGS].clone());
    let proved = to.read(move |transaction| proved(transaction, begun, &sessions, &bindings))?;
    for (number, table) in tables()?.iter().enumerate() {
        if let Some(key) = origin.stranger(number, &gone[number], &proved) {
            let mut row = vec![Value::Null; table.columns.len()];
            table.key.iter().zip(key).for_each(|(place, value)| row[*place] = value.clone());
            let key = table.key_text(&row);
            let what = format!("the source has no {key} in {}, or has removed it since an earlier run", table.name);
            return Err(MigrationTrouble::WrittenByOthers { what }.into());
        }
    }
    // Sessions last: the others refer to them.
    for number in (1..gone.len()).chain([SESSIONS]) {
        for keys in gone[number].chunks(LINKS) {
            to.transcript(RemoveRows { table: number, keys: keys.to_vec() })?;
        }
    }
    Ok(gone.iter().map(|keys| keys.len() as u64).collect())
}

/// The keys that the target has in a table and the source has not.
fn extras(from: &SessionDb, to: &SessionDb, number: usize) -> Result<Vec<Vec<Value>>> {
    let table = &tables()?[number];
    let (mut gone, mut after) = (Vec::new(), None::<Vec<Value>>);
    loop {
        let from_here = after.clone();
        let (keys, position) = to.read(move |transaction| {
            let mut pages = Pages::of(table);
            if let Some(after) = &from_here {
                pages = pages.after(after.clone());
            }
            let rows = pages.next(transaction)?;
            let keys = rows.iter().filter(|row| number != META || !is_of_engine(row)).map(|row| table.key_of(row));
            Ok((keys.collect::<Vec<_>>(), pages.position().map(<[Value]>::to_vec).filter(|_| !rows.is_empty())))
        })?;
        let Some(position) = position else { return Ok(gone) };
        after = Some(position);
        let asked = keys.clone();
        let known = from.read(move |transaction| {
            let mut known = std::collections::HashSet::new();
            lookup(transaction, table, "1", &asked, &mut |key, _| {
                known.insert(key);
                Ok(())
            })?;
            Ok(known)
        })?;
        gone.extend(keys.into_iter().filter(|key| !known.contains(&identity(key))));
    }
}
