//! Simulated limiters: clients, servers that crash, one oracle for all backends.

mod calendar;
mod client;
mod cluster;
mod context;
mod flawed_ledger;
mod flawed_memory;
mod flawed_server;
mod host;
pub(crate) mod memory;
mod oracle;
mod plan;
mod server;
pub(crate) mod tigerbeetle;
mod virtual_disk;
