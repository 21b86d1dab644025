//! The command as its users meet it: real processes on temporary stores.

mod backup;
mod doctor;
mod documented;
mod errors;
mod export;
mod health;
mod look;
mod migrate;
mod prune;
mod record;
mod server;
mod spool;
mod untouched;
mod upkeep;
mod watch;
mod world;
