//! Searching on a server: the words of messages as `tsvector`, and what is asked of them.

pub(super) mod compile;
mod find;
pub(super) mod index;

pub(super) use find::TsQuery;
