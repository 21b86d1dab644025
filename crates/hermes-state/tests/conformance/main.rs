//! What the contract promises of sessions, messages, replay and search, on each engine.

mod conversation;
mod messages;
mod search;
mod sessions;
mod world;
