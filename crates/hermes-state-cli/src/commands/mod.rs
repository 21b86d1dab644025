//! The subcommands, one file each: parse, call the store, print.

pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod prune;
pub(crate) mod record;
pub(crate) mod repair;
pub(crate) mod restore;
pub(crate) mod search;
pub(crate) mod show;
pub(crate) mod spool;
pub(crate) mod status;
pub(crate) mod vacuum;
pub(crate) mod who;
