//! Reads that find sessions: by the beginning of an id, by folder, along a conversation.

use super::{pattern, session};
use crate::columns::SessionColumns;
use crate::error::Result;
use crate::session::{Session, WorkingFolder};
use crate::transaction::Transaction;
use crate::value::{Record, Value};

/// The one id that is this text or, if none is, begins with it.
pub(crate) fn resolve_id(transaction: &mut dyn Transaction, text: &str) -> Result<Option<String>> {
    if text.is_empty() {
        return Ok(None);
    }
    let exact = transaction.scalar("SELECT id FROM sessions WHERE id = ?1", &[text.into()])?;
    if let Value::Text(id) = exact {
        return Ok(Some(id));
    }
    let found = transaction.records(
        "SELECT id FROM sessions WHERE LOWER(id) LIKE ?1 ESCAPE '\\' LIMIT 2",
        &[pattern::beginning_with(text)?.into()],
    )?;
    Ok(match found.as_slice() {
        [only] => only.text("id").map(str::to_owned),
        _ => None,
    })
}

/// One session with its last activity and a preview.
pub(crate) fn rich(transaction: &mut dyn Transaction, id: &str, compact: bool) -> Result<Option<Session>> {
    Ok(session::rich(transaction, id, compact)?.map(Session::new))
}

/// The folders that sessions work in, those of spaces only left out.
pub(crate) fn working_folders(transaction: &mut dyn Transaction, archived: bool) -> Result<Vec<WorkingFolder>> {
    let columns = SessionColumns::read(transaction)?;
    if !columns.has("cwd") {
        return Ok(Vec::new());
    }
    let shown = if archived || !columns.has("archived") { "" } else { " AND archived = 0" };
    let sql = format!(
        "SELECT cwd, COUNT(*) AS sessions, MAX(COALESCE(ended_at, started_at, 0.0)) AS last_active FROM sessions \
         WHERE cwd IS NOT NULL AND TRIM(cwd) <> ''{shown} GROUP BY cwd ORDER BY cwd"
    );
    let folder = |row: &Record| WorkingFolder {
        cwd: row.text("cwd").unwrap_or_default().to_owned(),
        sessions: row.integer("sessions").unwrap_or_default(),
        last_active: row.real("last_active").unwrap_or_default(),
    };
    Ok(transaction.records(&sql, &[])?.iter().map(folder).collect())
}
