//! Writes of titles: no two sessions have the same, and a conversation's moves along to its continuation.

use super::{Promise, Write};
use crate::error::{Error, Result};
use crate::query::{lineage, title as titles};
use crate::transaction::Transaction;
use crate::value::{Record, Value};

/// Gives a session a title that has been cleaned, or takes it away.
pub(crate) struct SetTitle {
    pub(crate) id: Value,
    pub(crate) title: Option<String>,
}

impl Write for SetTitle {
    type Answer = bool;

    fn subject(&self) -> Option<&str> {
        self.id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<bool>> {
        if let Some(wanted) = &self.title
            && let Some(holder) = other_holder(transaction, &self.id, wanted)?
        {
            return Err(Error::TitleInUse {
                title: wanted.clone(),
                holder: holder.text("id").unwrap_or_default().to_owned(),
                holder_source: holder.text("source").unwrap_or_default().to_owned(),
                archived: holder.integer("archived") == Some(1),
            });
        }
        Ok(Promise::Kept(store(transaction, &self.id, self.title.as_deref())?))
    }
}

/// Gives a session that has no title one that has been cleaned, numbered if another session has it.
pub(crate) struct SetTitleIfEmpty {
    pub(crate) id: Value,
    pub(crate) title: Option<String>,
}

impl Write for SetTitleIfEmpty {
    type Answer = bool;

    fn subject(&self) -> Option<&str> {
        self.id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<bool>> {
        let row = transaction.first("SELECT title FROM sessions WHERE id = ?1", std::slice::from_ref(&self.id))?;
        if row.is_none_or(|row| row.get("title").is_some_and(|title| !title.is_null())) {
            return Ok(Promise::Kept(false));
        }
        let title = match &self.title {
            Some(wanted) if other_holder(transaction, &self.id, wanted)?.is_some() => {
                Some(titles::free_in_lineage(transaction, wanted)?)
            }
            wanted => wanted.clone(),
        };
        Ok(Promise::Kept(store(transaction, &self.id, title.as_deref())?))
    }
}

/// Who else has the title and keeps it. A session whose conversation this one goes on with gives it up.
fn other_holder(transaction: &mut dyn Transaction, id: &Value, title: &str) -> Result<Option<Record>> {
    let holder = transaction.first(
        "SELECT id, source, archived FROM sessions WHERE title = ?1 AND id <> ?2 LIMIT 1",
        &[title.into(), id.clone()],
    )?;
    let Some(holder) = holder else { return Ok(None) };
    let holder_id = holder.text("id").unwrap_or_default();
    if !lineage::is_compression_ancestor(transaction, holder_id, id)? {
        return Ok(Some(holder));
    }
    transaction.execute("UPDATE sessions SET title = NULL WHERE id = ?1", &[holder_id.into()])?;
    Ok(None)
}

fn store(transaction: &mut dyn Transaction, id: &Value, title: Option<&str>) -> Result<bool> {
    let changed = transaction.execute("UPDATE sessions SET title = ?2 WHERE id = ?1", &[id.clone(), title.into()])?;
    Ok(changed > 0)
}
