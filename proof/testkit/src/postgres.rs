//! Real PostgreSQL servers for tests.
//!
//! [`TestSchema`] is a schema of a test's own: in the database that `DATABASE_URL` names, else in a
//! private [`TestCluster`] that all tests of a process share. [`Suite`] runs the tests and says how
//! many really ran: without a server they count as ignored, loudly, and never as passed.

mod binaries;
mod cluster;
mod schema;
mod server;

use std::process::ExitCode;

pub use binaries::find_binaries;
pub use cluster::{Durability, TestCluster};
pub use schema::TestSchema;
use server::given_url;
pub use server::{PrivateCluster, URL_VARIABLE, server_url};

/// The tests of one binary with `harness = false`: a [`Suite`](crate::Suite) that stops the private
/// cluster after its last test.
#[derive(Debug)]
pub struct Suite(crate::Suite<PrivateCluster>);

impl Suite {
    /// A suite without tests, for tests on the server that [`server_url`] has.
    pub fn new(name: &'static str) -> Self {
        let has_server = given_url().is_some() || find_binaries().is_some();
        Self::of(name, (!has_server).then_some("neither DATABASE_URL nor an installed server"))
    }

    /// A suite without tests, for tests that stop and start a [`TestCluster`] of their own. `DATABASE_URL`
    /// is no help to them.
    pub fn with_clusters_of_its_own(name: &'static str) -> Self {
        let missing = find_binaries().is_none().then_some("no installed server to stop and start");
        Self::of(name, missing)
    }

    fn of(name: &'static str, missing: Option<&'static str>) -> Self {
        Self(crate::Suite::new("POSTGRESQL", name, missing, PrivateCluster))
    }

    /// Adds a test, which fails by panicking. Without the server it is ignored.
    #[must_use]
    pub fn test(self, name: impl Into<String>, run: impl FnOnce() + Send + 'static) -> Self {
        Self(self.0.test(name, |_| run()))
    }

    /// Adds a test that needs no server: it always runs, and the count leaves it out.
    #[must_use]
    pub fn test_without_server(
        self,
        name: impl Into<String>,
        run: impl FnOnce() + Send + 'static,
    ) -> Self {
        Self(self.0.test_without_server(name, run))
    }

    /// Runs what the command line asks for, as `cargo test` would.
    pub fn run(self) -> ExitCode {
        self.0.run()
    }
}
