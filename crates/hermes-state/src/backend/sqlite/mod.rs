//! The SQLite backend: one file with its sidecars, shared with processes of other releases.
//!
//! Everything that touches a connection runs on the threads of [`lock::crew`]; nothing in this folder logs or calls
//! back into the caller's code, for the reason given there.

pub(crate) mod backup;
mod bulk;
mod connection;
mod deadline;
pub(crate) mod doctor;
mod engine;
mod errors;
mod generation;
mod identity;
mod index_state;
mod journal;
pub(crate) mod lock;
mod maintenance;
mod onlooker;
mod own_files;
mod part;
mod readers;
pub(crate) mod repair;
pub(crate) mod schema;
pub(crate) mod search;
mod segments;
pub(crate) mod siblings;
mod soundness;
mod status;
pub(crate) mod store;
mod transaction;
mod upkeep;

pub(crate) use connection::writable;
