//! The command as its users meet it: real processes on temporary stores.

mod documented;
mod errors;
mod look;
mod migrate;
mod record;
mod server;
mod watch;
mod world;
