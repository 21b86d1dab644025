//! The store's key-value table.

use super::SessionDb;
use crate::error::Result;
use crate::op::meta::{ReplaceMeta, SetMeta};
use crate::query::message as messages;
use crate::value::Value;

impl SessionDb {
    /// The value of a key of the store's key-value table.
    ///
    /// # Errors
    /// Those of every read.
    pub fn meta(&self, key: impl Into<Value>) -> Result<Option<String>> {
        Ok(match self.meta_value(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        })
    }

    /// The value of a key as it is stored, whatever its type; NULL if there is none.
    ///
    /// # Errors
    /// Those of every read.
    pub fn meta_value(&self, key: impl Into<Value>) -> Result<Value> {
        let key = key.into();
        self.read(move |transaction| messages::meta(transaction, &key))
    }

    /// Sets a key of the store's key-value table.
    ///
    /// # Errors
    /// Those of every write.
    pub fn set_meta(&self, key: impl Into<Value>, value: impl Into<Value>) -> Result<()> {
        self.routine(SetMeta { key: key.into(), value: value.into() })
    }

    /// Sets a key if it still holds what the caller has seen of it, and says whether it did: of several processes that
    /// have seen the same, one wins. NULL stands for a key that is not there, on both sides.
    ///
    /// # Errors
    /// Those of every write.
    pub fn replace_meta(&self, key: impl Into<Value>, seen: impl Into<Value>, value: impl Into<Value>) -> Result<bool> {
        self.routine(ReplaceMeta { key: key.into(), seen: seen.into(), value: value.into() })
    }
}
