//! Redis or Valkey servers for tests.
//!
//! [`TestRedis`] starts its own server and always stops it. A [`suite`] runs tests against such servers and reports how
//! many really ran: without a server binary they count as ignored, with a message, and never as passed.

mod binary;
mod certificates;
mod cluster;
mod replication;
mod resp;
mod sentinel;
mod server;

use std::sync::OnceLock;

pub use binary::{BINARY_VARIABLE, find_binary};
pub use certificates::Certificates;
pub use cluster::{SlotMove, TestCluster};
pub use resp::packed;
pub use sentinel::{SERVICE, TestSentinel};
pub use server::{Persistence, TestRedis};

/// State shared by the tests of a suite.
#[derive(Debug, Default)]
pub struct Fixture {
    shared: OnceLock<TestRedis>,
}

impl Fixture {
    /// The server without persistence shared by the tests that do not disturb it. Started at the first use.
    pub fn shared(&self) -> &TestRedis {
        self.shared.get_or_init(|| TestRedis::start(Persistence::None))
    }
}

/// An empty suite.
pub fn suite(name: &'static str) -> crate::Suite<Fixture> {
    crate::Suite::new("REDIS", name, missing(), Fixture::default())
}

/// Why tests that need the server cannot run, if they cannot.
pub fn missing() -> Option<&'static str> {
    let missing = "no server binary; `apt-get install redis-server`, set REDIS_SERVER_BIN, \
                   or put `redis-server` or `valkey-server` on the PATH";
    find_binary().is_none().then_some(missing)
}
