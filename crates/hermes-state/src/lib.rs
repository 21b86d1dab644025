//! The session store that every AI agent on a machine can share.
#![allow(dead_code, unused_imports)]
mod backend;
mod error;
mod transaction;
mod value;
pub use backend::sqlite::lock::{LockKind, require_lock_kind};
pub use error::{Error, Holder, Result};
pub use transaction::Transaction;
pub use value::{Columns, Record, Value};
