//! Reads of single sessions, and what is shown of each beside its row.

use std::collections::HashSet;
use std::sync::OnceLock;

use super::lineage;
use crate::blank;
use crate::error::Result;
use crate::session::Session;
use crate::statement::{Statement, tuples};
use crate::transaction::Transaction;
use crate::value::{Record, Value};
use crate::{SCHEMA_SQL, parse_schema_columns};

/// Columns that compact rows leave out.
pub const COMPACT_EXCLUDED: [&str; 1] = ["system_prompt"];

/// One session by its id.
pub(crate) fn get(transaction: &mut dyn Transaction, id: &Value) -> Result<Option<Session>> {
    Ok(transaction.first("SELECT * FROM sessions WHERE id = ?1", std::slice::from_ref(id))?.map(Session::new))
}

/// Those of some ids that are sessions', in their order.
pub(crate) fn existing(transaction: &mut dyn Transaction, ids: &[String]) -> Result<Vec<String>> {
    let mut existing = Vec::new();
    for some in ids.chunks(EXISTING) {
        let mut statement = Statement::default();
        let listed = statement.bind_all(some);
        statement.push(&format!("SELECT id FROM sessions WHERE id IN ({listed})"));
        let rows = transaction.records(&statement.sql, &statement.parameters)?;
        let found: HashSet<&str> = rows.iter().filter_map(|row| row.text("id")).collect();
        existing.extend(some.iter().filter(|id| found.contains(id.as_str())).cloned());
    }
    Ok(existing)
}

/// How many ids are asked for at once.
const EXISTING: usize = 500;

/// A session that works in a folder and lacks the repository that this is in.
pub(crate) struct Rootless {
    pub(crate) id: Value,
    pub(crate) cwd: Value,
    pub(crate) root: Value,
}

/// Both engines take more than twice as many parameters.
const ROOTS: usize = 5_000;

/// Sessions without a repository that work in one of these folders, each with the one that is given for it. Folders have no
/// index: one statement for many makes an engine look at the sessions once, not once for each.
pub(crate) fn rootless(transaction: &mut dyn Transaction, roots: &[(Value, Value)]) -> Result<Vec<Rootless>> {
    let mut found = Vec::new();
    for part in roots.chunks(ROOTS) {
        let sql = format!(
            "WITH pairs (cwd, root) AS (VALUES {}) SELECT s.id, s.cwd, p.root FROM sessions s JOIN pairs p ON p.cwd = s.cwd \
             WHERE s.git_repo_root IS NULL OR s.git_repo_root = ''",
            tuples(part.len(), 2)
        );
        let parameters: Vec<Value> = part.iter().flat_map(|(cwd, root)| [cwd.clone(), root.clone()]).collect();
        transaction.query(&sql, &parameters, &mut |row| {
            let mut values = row.into_iter();
            if let (Some(id), Some(cwd), Some(root)) = (values.next(), values.next(), values.next()) {
                found.push(Rootless { id, cwd, root });
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// How many characters of a message its preview is made of, and how many of those it shows at most.
const PREVIEW_TAKEN: usize = 63;
const PREVIEW_SHOWN: usize = 60;

/// The columns of a rich row of session `s`: its own, then its last activity and the text its preview is made of. Compact
/// rows have the declared columns in their order, as far as the table has them.
pub(crate) fn rich_columns(transaction: &mut dyn Transaction, compact: bool) -> Result<String> {
    let own = if compact {
        let columns = transaction.query("SELECT * FROM sessions LIMIT 0", &[], &mut |_| Ok(()))?;
        compact_columns()?
            .iter()
            .filter(|column| columns.iter().any(|there| **there == **column))
            .map(|column| format!("s.{column}"))
            .collect::<Vec<_>>()
            .join(", ")
    } else {
        "s.*".to_owned()
    };
    // What is no character of its own in a store can take the room of four.
    Ok(format!(
        "{own}, {} AS last_active, (SELECT SUBSTR(m.content, 1, {}) FROM messages m WHERE m.session_id = s.id \
         AND m.role = 'user' AND m.content IS NOT NULL ORDER BY m.timestamp, m.id LIMIT 1) AS preview",
        lineage::last_active("s"),
        4 * PREVIEW_TAKEN
    ))
}

fn compact_columns() -> Result<&'static [String]> {
    static COLUMNS: OnceLock<Vec<String>> = OnceLock::new();
    if let Some(columns) = COLUMNS.get() {
        return Ok(columns);
    }
    let tables = parse_schema_columns(SCHEMA_SQL)?;
    let sessions = tables.into_iter().find(|(table, _)| table == "sessions").map(|(_, columns)| columns);
    let names = sessions.unwrap_or_default().into_iter().map(|(name, _)| name);
    Ok(COLUMNS.get_or_init(|| names.filter(|name| !COMPACT_EXCLUDED.contains(&name.as_str())).collect()))
}

/// The beginning of a message in one line: cut to 63 characters, blanks at the ends removed, then to 60 with dots.
pub(crate) fn preview(text: &str) -> String {
    let cut: String = text
        .chars()
        .take_while(|character| *character != '\0')
        .take(PREVIEW_TAKEN)
        .map(|character| if matches!(character, '\n' | '\r') { ' ' } else { character })
        .collect();
    let trimmed = blank::trim(&cut);
    if trimmed.chars().count() > PREVIEW_SHOWN {
        trimmed.chars().take(PREVIEW_SHOWN).chain("...".chars()).collect()
    } else {
        trimmed.to_owned()
    }
}

/// A rich row as it is handed out.
pub(crate) fn finish(record: Record) -> Record {
    let text = record.text("preview").map(preview).unwrap_or_default();
    record.with("preview", text.into())
}

/// One rich row by its id.
pub(crate) fn rich(transaction: &mut dyn Transaction, id: &str, compact: bool) -> Result<Option<Record>> {
    let sql = format!("SELECT {} FROM sessions s WHERE s.id = ?1", rich_columns(transaction, compact)?);
    Ok(transaction.first(&sql, &[id.into()])?.map(finish))
}
