//! TigerBeetle servers for tests.
//!
//! [`TestCluster`] formats and starts its own servers and always stops them. A [`suite`] runs tests
//! against them and reports how many really ran: without a server binary they count as ignored,
//! with a message, and never as passed.

mod binary;
mod cluster;
mod expiry;
mod replica;

use std::sync::OnceLock;

pub use binary::{BINARY_VARIABLE, find_binary};
pub use cluster::TestCluster;
pub use expiry::outlast;
pub use replica::Mode;

/// State shared by the tests of a suite.
#[derive(Debug, Default)]
pub struct Fixture {
    development: OnceLock<TestCluster>,
}

impl Fixture {
    /// The development server shared by the tests that do not disturb it. Started at the first use.
    pub fn development(&self) -> &TestCluster {
        self.development.get_or_init(|| TestCluster::start(Mode::Development))
    }
}

/// An empty suite. Tests run one at a time by default: a server takes 1.5 GB and a core.
pub fn suite(name: &'static str) -> crate::Suite<Fixture> {
    crate::Suite::new("TIGERBEETLE", name, missing(), Fixture::default()).threads(1)
}

/// Why tests that need the server cannot run, if they cannot.
pub fn missing() -> Option<&'static str> {
    let missing = "no server binary; set TIGERBEETLE_BIN or put `tigerbeetle` on the PATH";
    find_binary().is_none().then_some(missing)
}
