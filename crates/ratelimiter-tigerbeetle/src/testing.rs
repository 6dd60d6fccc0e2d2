//! A real TigerBeetle for tests, of this crate and of those above it.
//!
//! [`TestCluster`] formats and starts servers of its own and takes them down again, whatever
//! happens. [`Suite`] runs tests against them and says how many really ran: without a server binary
//! they count as ignored, loudly, and never as passed.

mod binary;
mod cluster;
mod expiry;
mod replica;
mod suite;

pub use binary::{BINARY_VARIABLE, find_binary};
pub use cluster::{Mode, TestCluster};
pub use expiry::outlast;
pub use suite::{Fixture, REQUIRED_VARIABLE, Suite};
