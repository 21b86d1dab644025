//! Searching on a server: the words of messages as `tsvector`, and what is asked of them.

mod compile;
mod find;
pub(super) mod index;
#[cfg(test)]
mod tests;

pub(super) use find::TsQuery;
