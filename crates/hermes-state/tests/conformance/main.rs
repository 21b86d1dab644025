//! What the contract promises of every operation, on each engine, on files of older releases, and beside a stranger who writes.
//! What the contract promises of sessions, messages, replay, search and gateways, on each engine.

mod client_keys;
mod compaction;
mod compression;
mod conversation;
mod deletion;
mod export;
mod gateway;
mod handoff;
mod import;
mod index;
mod leases;
mod lineage;
mod listing;
mod lookup;
mod maintenance;
mod messages;
mod pruning;
mod retention;
mod rewind;
mod search;
mod sessions;
mod titles;
mod topics;
mod usage;
mod windows;
mod world;
