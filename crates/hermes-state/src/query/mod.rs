//! Reads: each runs in one read transaction and never waits for a writer.

mod alternation;
pub(crate) mod conversation;
pub(crate) mod lineage;
pub(crate) mod message;
mod recalled_memory;
pub(crate) mod search;
mod search_context;
pub(crate) mod session;
