//! The PostgreSQL backend: one schema of a server, shared by the processes of many machines.

pub(crate) mod connect;
pub(crate) mod errors;
mod numbers;
pub(crate) mod placeholders;
pub(crate) mod schema;
#[cfg(test)]
mod server;
pub(crate) mod tls;
pub(crate) mod url;
pub(crate) mod values;
