//! Full-text search on PostgreSQL: the index of words, and expressions as conditions on it.

pub(crate) mod compile;
pub(crate) mod index;
#[cfg(test)]
mod tests;
