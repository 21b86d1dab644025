//! What the tests of the PostgreSQL backend share: real servers, faulty connections, separate hosts.
//!
//! Linux only, because it looks at processes through `/proc` and makes hosts of network namespaces; elsewhere the crate
//! is empty and the tests that use it do not exist. It knows nothing of the store, so that every crate may use it.
//!
//! What goes wrong in here is a fault of the test or of the machine, and panics with everything that is known about it.
//! Only the absence of a whole facility (no PostgreSQL, no network namespaces) is a value.
#![cfg(target_os = "linux")]

mod account;
mod certificate;
mod deadline;
mod guarded;
mod hosts;
mod installation;
mod process;
mod proxy;
mod random;
mod reservation;
mod server;
mod server_config;
mod shared;
mod system_calls;
mod url;

pub use hosts::Hosts;
pub use installation::Missing;
pub use proxy::CuttingProxy;
pub use server::Server;
pub use server_config::ServerConfig;
pub use shared::{PG_REQUIRED, PG_URL, Shared, Space, server_required, shared};
