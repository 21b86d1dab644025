//! The subcommands, one file each: parse, call the store, print.

pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod record;
pub(crate) mod search;
pub(crate) mod show;
pub(crate) mod status;
