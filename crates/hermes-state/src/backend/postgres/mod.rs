//! The PostgreSQL backend: one schema of a server, shared by the processes of many machines.

mod bulk;
mod connect;
mod doctor;
mod engine;
mod errors;
mod maintenance;
mod numbers;
mod placeholders;
mod readers;
mod schema;
mod search;
#[cfg(test)]
mod server;
mod session;
mod status;
pub(crate) mod store;
mod tls;
mod transaction;
mod upkeep;
pub(crate) mod url;
mod values;
mod watch;
