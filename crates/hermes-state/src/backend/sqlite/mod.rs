//! The SQLite backend: one file with its sidecars, shared with processes of other releases.
//!
//! Everything that touches a connection runs on the threads of [`lock::crew`]; nothing in this folder logs or calls
//! back into the caller's code, for the reason given there.

mod bulk;
mod connection;
mod engine;
mod errors;
mod identity;
mod journal;
pub(crate) mod lock;
mod readers;
pub(crate) mod schema;
pub(crate) mod search;
pub(crate) mod siblings;
mod status;
pub(crate) mod store;
mod transaction;
