//! A real PostgreSQL for tests, of this crate and of those above it.
//!
//! [`TestSchema`] is a schema of a test's own: in the database that `DATABASE_URL` names, else in a
//! private [`TestCluster`] that all tests of a process share. [`Suite`] runs the tests and says how
//! many really ran: without a server they count as ignored, loudly, and never as passed.

mod binaries;
mod cluster;
mod schema;
mod server;
mod suite;

pub use binaries::find_binaries;
pub use cluster::{Durability, TestCluster};
pub use schema::TestSchema;
pub use server::{URL_VARIABLE, server_url};
pub use suite::{REQUIRED_VARIABLE, Suite};
