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
