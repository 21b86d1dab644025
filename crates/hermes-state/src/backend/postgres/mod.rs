//! The PostgreSQL backend: one schema of a server, shared by the processes of many machines.

pub(crate) mod search;
