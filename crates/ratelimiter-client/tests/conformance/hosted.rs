//! A server in the test's own process.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter_client::clock::FakeClock;
use ratelimiter_client::memory::MemoryOptions;
use ratelimiter_client::{HttpLimiter, HttpOptions, MemoryLimiter};
use ratelimiter_conformance::Capabilities;
use ratelimiterd::Server;
use ratelimiterd::config::{Config, ListenAddr};
use tempfile::TempDir;

/// A server with the memory backend, which can be restarted on the same limits file.
pub(crate) struct Hosted {
    clock: Arc<FakeClock>,
    folder: TempDir,
    /// `None` only while it restarts.
    running: RefCell<Option<(Server, MemoryLimiter)>>,
    options: HttpOptions,
}

impl Hosted {
    pub(crate) async fn start(options: HttpOptions) -> Self {
        let hosted = Self {
            clock: Arc::default(),
            folder: tempfile::tempdir().unwrap(),
            running: RefCell::new(None),
            options,
        };
        hosted.run().await;
        hosted
    }

    async fn run(&self) {
        let memory = MemoryLimiter::with_options(MemoryOptions::for_tests(self.clock.clone()));
        let mut config = Config::default();
        config.server.listen_addr = ListenAddr::free_port();
        config.registry.path = self.folder.path().join("limits.json");
        config.server.request_timeout_ms = 60_000;
        let server = Server::bind(&config, memory.clone()).await.unwrap();
        *self.running.borrow_mut() = Some((server, memory));
    }

    pub(crate) fn client(&self) -> HttpLimiter {
        let running = self.running.borrow();
        let (server, _) = running.as_ref().unwrap();
        let url = format!("http://{}", server.local_addr());
        // A busy machine may be slow, and no fact tests that.
        let options = HttpOptions { timeout: Duration::from_secs(60), ..self.options.clone() };
        HttpLimiter::with_options(&url, options).unwrap()
    }

    pub(crate) async fn restart(&self) {
        let (server, _) = self.running.borrow_mut().take().unwrap();
        server.stop().await;
        self.run().await;
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
        // The server's tick does the same, but at a time that the test does not control.
        self.running.borrow().as_ref().unwrap().1.sweep();
    }

    pub(crate) fn capabilities() -> Capabilities {
        Capabilities { keeps_definitions: Ok(()), waits: Ok(()), ..capabilities_in_memory() }
    }
}

pub(crate) fn capabilities_in_memory() -> Capabilities {
    Capabilities {
        expiry_lag: Duration::ZERO,
        reconciled_expiry_lag: Duration::ZERO,
        capacity_max: ratelimiter::CAPACITY_MAX,
        exact_time: Ok(()),
        virtual_time: Ok(()),
        exact_hints: Ok(()),
        names_every_denied_key: Ok(()),
        tells_uncovered: Ok(()),
        knows_leases_by_id: Ok(()),
        forgets_after: Ok(Duration::from_secs(600)),
        remembers_at_most: Err("the bound of a million is not worth reaching here"),
        renews: Ok(()),
        waits: Err("a server lets requests wait, around its backend"),
        templates: Ok(()),
        replaces_limits: Ok(()),
        instances_at_most: Err("the bound of a million is not worth reaching here"),
        new_instances_per_second: Err("a thousand a second is not worth reaching here"),
        keeps_definitions: Err("the state is gone with the process"),
        keeps_leases: Err("the memory backend's leases are gone with the process"),
        second_server: Err("two servers do not share the memory backend"),
    }
}
