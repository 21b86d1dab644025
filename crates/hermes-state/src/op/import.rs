//! Brings sessions in that another store, or this one in earlier days, gave out: all of them or, if anything is wrong
//! with one, none.

mod entry;
mod fields;
mod report;

use std::collections::{HashMap, HashSet};

use super::message::insert;
use super::{Promise, Write};
use crate::error::Result;
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::Value;

pub use entry::ImportEntry;
pub(crate) use entry::{ImportedSession, check};
pub use report::{ImportLimits, ImportOptions, ImportProblem, ImportReport};

/// How many messages are on their way to a server before its answers are read.
const TOGETHER: usize = 64;

/// Writes sessions that have been checked.
pub(crate) struct ImportSessions(pub(crate) Vec<ImportedSession>);

/// What an import makes of the store as it is.
struct Plan<'a> {
    report: ImportReport,
    new: Vec<&'a ImportedSession>,
    /// Children and their parents.
    links: Vec<(&'a str, &'a str)>,
}

impl Write for ImportSessions {
    type Answer = ImportReport;

    /// The plan looks at the store and the rest changes it, both in this transaction.
    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<ImportReport>> {
        let plan = plan(transaction, &self.0)?;
        if plan.report.is_ok() {
            for session in &plan.new {
                add(transaction, session)?;
            }
            for (child, parent) in &plan.links {
                let link = [Value::from(*child), Value::from(*parent)];
                transaction.execute("UPDATE sessions SET parent_session_id = ?2 WHERE id = ?1", &link)?;
            }
        }
        Ok(Promise::Kept(plan.report))
    }
}

/// What an import would report, nothing changed.
pub(crate) fn preview(transaction: &mut dyn Transaction, sessions: &[ImportedSession]) -> Result<ImportReport> {
    Ok(plan(transaction, sessions)?.report)
}

fn plan<'a>(transaction: &mut dyn Transaction, sessions: &'a [ImportedSession]) -> Result<Plan<'a>> {
    let stored = stored(transaction, sessions)?;
    let (skipped, new): (Vec<_>, Vec<_>) = sessions.iter().partition(|session| stored.contains(&session.id));
    let errors = taken_titles(transaction, &new)?;
    if !errors.is_empty() {
        return Ok(Plan { report: ImportReport { errors, ..ImportReport::default() }, new, links: Vec::new() });
    }
    let (links, detached) = links(transaction, &new)?;
    let ids = |sessions: &[&ImportedSession]| sessions.iter().map(|session| session.id.clone()).collect();
    let report = ImportReport {
        imported_ids: ids(&new),
        skipped_ids: ids(&skipped),
        detached_ids: detached,
        errors: Vec::new(),
    };
    Ok(Plan { report, new, links })
}

/// Which of these sessions the store has.
fn stored(transaction: &mut dyn Transaction, sessions: &[ImportedSession]) -> Result<HashSet<String>> {
    let mut stored = HashSet::new();
    for part in sessions.chunks(500) {
        let mut statement = Statement::default();
        let among = statement.bind_all(part.iter().map(|session| &session.id));
        statement.push(&format!("SELECT id FROM sessions WHERE id IN ({among})"));
        transaction.query(&statement.sql, &statement.parameters, &mut |row| {
            stored.extend(row.first().and_then(Value::as_str).map(str::to_owned));
            Ok(())
        })?;
    }
    Ok(stored)
}

/// The sessions whose title another one has, in the store or among those before them.
fn taken_titles(transaction: &mut dyn Transaction, sessions: &[&ImportedSession]) -> Result<Vec<ImportProblem>> {
    let mut holders: HashMap<&str, String> = HashMap::new();
    let mut problems = Vec::new();
    for session in sessions {
        let Some(title) = session.title() else { continue };
        let holder = match holders.get(title) {
            Some(holder) => Some(holder.clone()),
            None => transaction
                .scalar("SELECT id FROM sessions WHERE title = ?1", &[title.into()])?
                .as_str()
                .map(str::to_owned),
        };
        match holder {
            Some(holder) => problems.push(session.problem(format!("title is already in use by session {holder}"))),
            None => drop(holders.insert(title, session.id.clone())),
        }
    }
    Ok(problems)
}

/// The links to parents that can be made, and the children that stay without: those whose parent is nowhere, or would be
/// their own descendant.
#[expect(clippy::type_complexity, reason = "two lists")]
fn links<'a>(
    transaction: &mut dyn Transaction,
    sessions: &[&'a ImportedSession],
) -> Result<(Vec<(&'a str, &'a str)>, Vec<String>)> {
    let imported: HashSet<&str> = sessions.iter().map(|session| session.id.as_str()).collect();
    let mut planned: HashMap<&str, &'a str> =
        sessions.iter().filter_map(|session| Some((session.id.as_str(), session.parent.as_deref()?))).collect();
    let (mut links, mut detached) = (Vec::new(), Vec::new());
    for session in sessions {
        let (child, Some(parent)) = (session.id.as_str(), session.parent.as_deref()) else { continue };
        let mut exists = imported.contains(parent);
        let mut seen = HashSet::from([child.to_owned()]);
        let mut at = parent.to_owned();
        let loops = loop {
            if !seen.insert(at.clone()) {
                break true;
            }
            let above = match planned.get(at.as_str()) {
                Some(above) => Value::from(*above),
                None => {
                    match transaction.first("SELECT parent_session_id FROM sessions WHERE id = ?1", &[(&at).into()])? {
                        Some(row) => {
                            exists |= at == parent;
                            row.values().first().cloned().unwrap_or_default()
                        }
                        None => Value::Null,
                    }
                }
            };
            match above {
                Value::Text(above) if !above.is_empty() => at = above,
                _ => break false,
            }
        };
        if exists && !loops {
            links.push((child, parent));
        } else {
            planned.remove(child);
            detached.push(child.to_owned());
        }
    }
    Ok((links, detached))
}

/// Adds a session that is not there, with its messages and its counters.
fn add(transaction: &mut dyn Transaction, session: &ImportedSession) -> Result<()> {
    let mut messages = session.messages.clone();
    crate::message::timed(&mut messages);
    let count = i64::try_from(messages.len()).unwrap_or(i64::MAX);
    let calls: i64 = messages.iter().map(|message| message.tool_calls.count()).sum();
    let counted =
        [("id", Value::from(&session.id)), ("message_count", count.into()), ("tool_call_count", calls.into())];
    let columns = counted.iter().chain(&session.columns);
    let (names, values): (Vec<&str>, Vec<Value>) = columns.map(|(name, value)| (*name, value.clone())).unzip();
    let placeholders: Vec<String> = (1..=names.len()).map(|number| format!("?{number}")).collect();
    transaction.execute(
        &format!("INSERT INTO sessions ({}) VALUES ({})", names.join(", "), placeholders.join(", ")),
        &values,
    )?;
    let id = Value::from(&session.id);
    for part in messages.chunks(TOGETHER) {
        let sent = part
            .iter()
            .map(|message| insert(transaction, &id, message, message.timestamp, false))
            .collect::<Result<Vec<_>>>()?;
        sent.into_iter().try_for_each(|sent| transaction.receive(sent).map(drop))?;
    }
    Ok(())
}
