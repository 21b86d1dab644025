//! Reads: each runs in one read transaction and never waits for a writer.

mod alternation;
pub(crate) mod compression;
pub(crate) mod conversation;
pub(crate) mod delegates;
pub(crate) mod export;
pub(crate) mod gateway;
pub(crate) mod handoff;
pub(crate) mod lineage;
pub(crate) mod listing;
pub(crate) mod lookup;
pub(crate) mod message;
mod needle;
pub(crate) mod page;
pub(crate) mod pattern;
pub(crate) mod prune;
mod recalled_memory;
pub(crate) mod retention;
pub(crate) mod search;
mod search_context;
pub(crate) mod session;
pub(crate) mod title;
pub(crate) mod topic;
pub(crate) mod window;
