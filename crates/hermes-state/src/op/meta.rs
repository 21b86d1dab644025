//! Writes of the key-value table.

use super::{Promise, Write};
use crate::error::Result;
use crate::transaction::Transaction;
use crate::value::Value;

/// Sets one key, whatever it held.
pub(crate) struct SetMeta {
    pub(crate) key: Value,
    pub(crate) value: Value,
}

impl Write for SetMeta {
    type Answer = ();

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        transaction.execute(
            "INSERT INTO state_meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            &[self.key.clone(), self.value.clone()],
        )?;
        Ok(Promise::Kept(()))
    }
}

/// Sets one key if it holds what the caller has seen; NULL stands for a key that is not there.
pub(crate) struct ReplaceMeta {
    pub(crate) key: Value,
    pub(crate) seen: Value,
    pub(crate) value: Value,
}

impl Write for ReplaceMeta {
    type Answer = bool;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<bool>> {
        let key = std::slice::from_ref(&self.key);
        if transaction.scalar("SELECT value FROM state_meta WHERE key = ?1", key)? != self.seen {
            return Ok(Promise::Kept(false));
        }
        if self.value.is_null() {
            transaction.execute("DELETE FROM state_meta WHERE key = ?1", key)?;
        } else {
            SetMeta { key: self.key.clone(), value: self.value.clone() }.apply(transaction)?;
        }
        Ok(Promise::Kept(true))
    }
}
