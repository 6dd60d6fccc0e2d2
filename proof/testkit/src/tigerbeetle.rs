//! Real TigerBeetle servers for tests.
//!
//! [`TestCluster`] formats and starts servers of its own and takes them down again, whatever
//! happens. A [`suite`] runs tests against them and says how many really ran: without a server binary
//! they count as ignored, loudly, and never as passed.

mod binary;
mod cluster;
mod expiry;
mod replica;

use std::sync::OnceLock;

pub use binary::{BINARY_VARIABLE, find_binary};
pub use cluster::TestCluster;
pub use expiry::outlast;
pub use replica::Mode;

/// What the tests of a suite share.
#[derive(Debug, Default)]
pub struct Fixture {
    development: OnceLock<TestCluster>,
}

impl Fixture {
    /// The one development server that tests share which do not harm it. Started when it is first
    /// asked for.
    pub fn development(&self) -> &TestCluster {
        self.development.get_or_init(|| TestCluster::start(Mode::Development))
    }
}

/// A suite without tests. Tests run one after another by default: a server takes 1.5 GB and a core.
pub fn suite(name: &'static str) -> crate::Suite<Fixture> {
    let missing = "no server binary; set TIGERBEETLE_BIN or put `tigerbeetle` on the PATH";
    let missing = find_binary().is_none().then_some(missing);
    crate::Suite::new("TIGERBEETLE", name, missing, Fixture::default()).threads(1)
}
