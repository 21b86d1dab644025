//! Brings what a store lacks over from another one, and leaves alone what it has.
//!
//! Ids of messages are numbers of their store: two machines have used the same ones for different messages. So a merge
//! keeps whole conversations together and never mixes two: a session that the target does not have comes over with all
//! its messages, which get new ids in their order; of a session that it has nothing is changed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::copy::put;
use super::report::{MigrationPhase, MigrationProgress, MigrationReport, TableReport};
use super::rows::{Checksum, Pages, Row, digest, identity, lookup, row_size};
use super::source::Loose;
use super::tables::{BINDINGS, MESSAGES, META, SESSIONS, Table, USAGE, tables};
use super::trouble::MigrationTrouble;
use super::write::{AddToSession, Marker, PutRows};
use crate::db::SessionDb;
use crate::error::{Error, Result};
use crate::transaction::{TOPIC_BINDINGS, Transaction};
use crate::value::Value;

/// How many keys of rows that stay as they are in the target are told.
const TOLD: usize = 10;

/// How much of a session is written at once.
const PART_BYTES: usize = 1 << 20;

/// The sessions of a store, each with its row, its usage and its messages as checksums: ids of messages are left out,
/// and so are links to parents.
type Sessions = HashMap<String, [Checksum; 3]>;

fn sessions(transaction: &mut dyn Transaction) -> Result<Sessions> {
    let mut all = Sessions::new();
    let loose = Loose::find(transaction)?;
    for number in [SESSIONS, MESSAGES, USAGE] {
        let table = &tables()?[number];
        let (owner, without) = match number {
            SESSIONS => (0, table.place("parent_session_id")),
            MESSAGES => (table.place("session_id").unwrap_or_default(), Some(0)),
            _ => (0, None),
        };
        let mut pages = Pages::of(table);
        loop {
            let rows = pages.next(transaction)?;
            if rows.is_empty() {
                break;
            }
            for row in rows {
                if let Some(row) = loose.mend(number, row)? {
                    all.entry(name(&row[owner])).or_default()[number].add(digest(&row, without));
                }
            }
        }
    }
    Ok(all)
}

/// A session's id as a name: bytes are ids too.
fn name(id: &Value) -> String {
    match id {
        Value::Text(text) => text.clone(),
        other => format!("\u{10FFFF}{:?}", identity(std::slice::from_ref(other))),
    }
}

/// What the reading thread says of the source.
enum Told {
    /// A session that is to come over begins, with its usage.
    Session { row: Row, usage: Vec<Row> },
    /// Messages of it, in their order.
    Messages(Vec<Row>),
    /// It ends.
    End,
    /// Rows of a table without messages.
    Rows { table: usize, rows: Vec<Row> },
    /// Everything of the source as checksums.
    Whole(Box<Sessions>),
}

/// Counts what a merge would do.
pub(super) fn plan(from: &SessionDb, to: &SessionDb, report: &mut MigrationReport) -> Result<()> {
    let (theirs, ours) = (from.read_at_length(sessions)?, to.read_at_length(sessions)?);
    for table in &mut report.tables {
        table.copied = 0;
    }
    for (id, sums) in &theirs {
        count(report, id, sums, ours.get(id));
    }
    for number in META..tables()?.len() {
        let table = &tables()?[number];
        let rows = from.read_at_length(move |transaction| {
            let loose = Loose::find(transaction)?;
            let (mut rows, mut pages) = (Vec::new(), Pages::of(table));
            loop {
                let page = pages.next(transaction)?;
                if page.is_empty() {
                    return Ok(rows);
                }
                for row in page {
                    rows.extend(loose.mend(number, row)?.map(|row| Known::of(table, &row)));
                }
            }
        })?;
        missing(to, number, rows, &mut report.tables[number])?;
    }
    Ok(())
}

/// Notes how a session fares.
fn count(report: &mut MigrationReport, id: &str, theirs: &[Checksum; 3], ours: Option<&[Checksum; 3]>) {
    for number in [SESSIONS, MESSAGES, USAGE] {
        let (rows, told) = (theirs[number].rows, &mut report.tables[number]);
        match ours {
            None => {
                told.copied += rows;
                told.renumbered += if number == MESSAGES { rows } else { 0 };
            }
            Some(ours) if ours[number] == theirs[number] => told.same += rows,
            Some(_) => {
                told.kept += rows;
                if told.kept_keys.len() < TOLD {
                    told.kept_keys.push(id.to_owned());
                }
            }
        }
    }
}

/// What is known of a row of the source.
struct Known {
    key: Vec<Value>,
    /// The key for people.
    text: String,
    digest: u128,
    /// The session that a topic is bound to, which may be bound to one only.
    bound: Value,
}

impl Known {
    fn of(table: &Table, row: &[Value]) -> Self {
        let bound = table.place("session_id").filter(|_| table.name == TOPIC_BINDINGS);
        Self {
            key: table.key_of(row),
            text: table.key_text(row),
            digest: digest(row, None),
            bound: bound.map(|place| row[place].clone()).unwrap_or_default(),
        }
    }
}

/// The sessions of the target that are bound to a topic, of these.
fn bound(to: &SessionDb, rows: &[Known]) -> Result<HashSet<Vec<u8>>> {
    let sessions: Vec<Value> = rows.iter().map(|row| row.bound.clone()).collect();
    to.read(move |transaction| {
        let mut found = HashSet::new();
        if !tables()?[BINDINGS].is_there(transaction)? {
            return Ok(found);
        }
        for session in &sessions {
            let sql = "SELECT 1 FROM telegram_dm_topic_bindings WHERE session_id = ?1";
            if !transaction.scalar(sql, std::slice::from_ref(session))?.is_null() {
                found.insert(identity(std::slice::from_ref(session)));
            }
        }
        Ok(found)
    })
}

/// The keys of those rows that the target lacks; what it has is noted.
fn missing(to: &SessionDb, number: usize, rows: Vec<Known>, told: &mut TableReport) -> Result<HashSet<Vec<u8>>> {
    let table = &tables()?[number];
    let keys: Vec<Vec<Value>> = rows.iter().map(|row| row.key.clone()).collect();
    let bound = if number == BINDINGS { bound(to, &rows)? } else { HashSet::new() };
    let held = to.read(move |transaction| {
        let mut held = HashMap::new();
        lookup(transaction, table, &table.column_list(), &keys, &mut |key, row| {
            held.insert(key, digest(&row, None));
            Ok(())
        })?;
        Ok(held)
    })?;
    let mut missing = HashSet::new();
    for row in rows {
        match held.get(&identity(&row.key)) {
            None if !bound.contains(&identity(std::slice::from_ref(&row.bound))) => {
                told.copied += 1;
                missing.insert(identity(&row.key));
            }
            Some(ours) if *ours == row.digest => told.same += 1,
            _ => {
                told.kept += 1;
                if told.kept_keys.len() < TOLD {
                    told.kept_keys.push(row.text);
                }
            }
        }
    }
    Ok(missing)
}

/// Merges, and then looks whether everything that was to come over is there.
pub(super) fn merge(
    from: &SessionDb,
    to: &SessionDb,
    marker: Marker,
    rows: &[u64],
    report: &mut MigrationReport,
    progress: &mut dyn FnMut(MigrationProgress),
) -> Result<()> {
    report.merged = true;
    report.passes = 1;
    report.tables = tables()?.iter().map(|table| TableReport { table: table.name, ..TableReport::default() }).collect();
    let mut before = to.read_at_length(sessions)?;
    // What an earlier run has begun is as good as not there.
    if let Some((begun, _)) = &marker.session {
        before.remove(begun);
    }
    let known: HashSet<String> = before.keys().cloned().collect();
    let (teller, told) = sync_channel(2);
    let begun = marker.session.clone();
    let theirs = thread::scope(|scope| {
        let reading = thread::Builder::new()
            .name("hermes-merge".into())
            .spawn_scoped(scope, || {
                from.read_at_length(move |transaction| tell(transaction, &known, begun.as_ref(), &teller))
            })
            .map_err(|error| Error::Engine { message: format!("no thread to read the source: {error}"), code: 0 })?;
        let merged = take(to, marker, told, rows.iter().sum(), report, progress);
        let read = reading.join().unwrap_or_else(|_| Err(Error::Invalid("reading the source panicked".into())));
        let theirs = merged?;
        read?;
        theirs.ok_or_else(|| Error::Engine { message: "the source was not read to its end".into(), code: 0 })
    })?;
    let after = to.read_at_length(sessions)?;
    for (id, sums) in theirs.iter() {
        count(report, id, sums, before.get(id));
        if !before.contains_key(id) && after.get(id).is_none_or(|held| held[MESSAGES].rows < sums[MESSAGES].rows) {
            return Err(MigrationTrouble::Unequal { passes: 1, tables: vec!["sessions", "messages"] }.into());
        }
    }
    for (number, table) in report.tables.iter_mut().enumerate().take(USAGE + 1) {
        table.source_rows = theirs.values().map(|sums| sums[number].rows).sum();
        table.target_rows = after.values().map(|sums| sums[number].rows).sum();
    }
    Ok(())
}

/// Reads what the target lacks, as of one moment: parents before their children, then the tables without messages.
fn tell(
    transaction: &mut dyn Transaction,
    known: &HashSet<String>,
    begun: Option<&(String, i64)>,
    listener: &SyncSender<Told>,
) -> Result<()> {
    let say = |told| listener.send(told).map_err(|_| Error::Invalid("nobody listens any more".into()));
    let loose = Loose::find(transaction)?;
    for (id, upto) in new_sessions(transaction, known, begun)? {
        let one =
            |table: usize, column: &str| Pages::of(&tables().expect("read before")[table]).with(column, id.clone());
        if upto.is_none() {
            let mut rows = one(SESSIONS, "id").next(transaction)?;
            let Some(row) = rows.pop() else { continue };
            let (mut usage, mut pages) = (Vec::new(), one(USAGE, "session_id"));
            loop {
                let page = pages.next(transaction)?;
                if page.is_empty() {
                    break;
                }
                usage.extend(page);
            }
            say(Told::Session { row: loose.mend(SESSIONS, row)?.unwrap_or_default(), usage })?;
        }
        let mut pages = one(MESSAGES, "session_id");
        if let Some(upto) = upto {
            pages = pages.after(vec![upto.into()]);
        }
        loop {
            let rows = pages.next(transaction)?;
            if rows.is_empty() {
                break;
            }
            say(Told::Messages(rows))?;
        }
        say(Told::End)?;
    }
    for (number, table) in tables()?.iter().enumerate().skip(META) {
        let mut pages = Pages::of(table);
        loop {
            let page = pages.next(transaction)?;
            if page.is_empty() {
                break;
            }
            let rows = page.into_iter().filter_map(|row| loose.mend(number, row).transpose()).collect::<Result<_>>()?;
            say(Told::Rows { table: number, rows })?;
        }
    }
    say(Told::Whole(Box::new(sessions(transaction)?)))
}

/// The sessions to bring over, parents first; with the one that an earlier run has begun goes how far it came.
fn new_sessions(
    transaction: &mut dyn Transaction,
    known: &HashSet<String>,
    begun: Option<&(String, i64)>,
) -> Result<Vec<(Value, Option<i64>)>> {
    let mut parents: HashMap<String, (Value, Value)> = HashMap::new();
    let mut order = Vec::new();
    transaction.query("SELECT id, parent_session_id FROM sessions ORDER BY started_at, id", &[], &mut |mut row| {
        let parent = row.pop().unwrap_or_default();
        let id = row.pop().unwrap_or_default();
        order.push(name(&id));
        parents.insert(name(&id), (id, parent));
        Ok(())
    })?;
    let mut sorted = Vec::new();
    let mut placed: HashSet<String> = HashSet::new();
    for start in order {
        // Up to the first ancestor that has its place, or to where a circle closes; then down again.
        let (mut line, mut at) = (Vec::new(), Some(start));
        while let Some(id) = at.take() {
            if placed.contains(&id) {
                break;
            }
            if let Some((_, parent)) = parents.get(&id) {
                placed.insert(id.clone());
                at = (!parent.is_null()).then(|| name(parent));
                line.push(id);
            }
        }
        sorted.extend(line.into_iter().rev());
    }
    let wanted = sorted.into_iter().filter_map(|id| {
        let upto = begun.filter(|(begun, _)| *begun == id).map(|(_, upto)| *upto);
        let wanted = upto.is_some() || !known.contains(&id);
        wanted.then(|| parents.remove(&id).map(|(id, _)| (id, upto))).flatten()
    });
    Ok(wanted.collect())
}

/// Writes what the source tells.
fn take(
    to: &SessionDb,
    marker: Marker,
    told: Receiver<Told>,
    total: u64,
    report: &mut MigrationReport,
    progress: &mut dyn FnMut(MigrationProgress),
) -> Result<Option<Box<Sessions>>> {
    let mut part = AddToSession {
        marker: Marker { session: None, ..marker.clone() },
        session: None,
        usage: Vec::new(),
        messages: Vec::new(),
    };
    let mut current = marker.session.map(|(id, _)| id).unwrap_or_default();
    let (mut done, mut whole, mut bytes) = (0, None, 0);
    for told in told {
        match told {
            Told::Session { row, usage } => {
                current = name(&row[0]);
                done += 1 + usage.len() as u64;
                (part.session, part.usage) = (Some(row), usage);
            }
            Told::Messages(rows) => {
                done += rows.len() as u64;
                bytes += rows.iter().map(|row| row_size(row)).sum::<usize>();
                part.messages.extend(rows);
                if bytes >= PART_BYTES {
                    let last = part.messages.last().and_then(|row| row[0].as_i64()).unwrap_or_default();
                    part.marker.session = Some((current.clone(), last));
                    bytes = 0;
                    to.transcript(part.take())?;
                }
            }
            Told::End => {
                part.marker.session = None;
                bytes = 0;
                to.transcript(part.take())?;
            }
            Told::Rows { table, rows } => {
                let known = &tables()?[table];
                done += rows.len() as u64;
                let given = rows.iter().map(|row| Known::of(known, row)).collect();
                let missing = missing(to, table, given, &mut report.tables[table])?;
                report.tables[table].source_rows += rows.len() as u64;
                let mut rows = rows;
                rows.retain(|row| missing.contains(&identity(&known.key_of(row))));
                if !rows.is_empty() {
                    put(to, PutRows { table, rows: Arc::new(rows), fresh: false })?;
                }
            }
            Told::Whole(sessions) => whole = Some(sessions),
        }
        let (phase, table, done) = (MigrationPhase::Copying, "sessions", done.min(total));
        progress(MigrationProgress { phase, table, done, total });
    }
    Ok(whole)
}
