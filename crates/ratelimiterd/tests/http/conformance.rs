//! The conformance suite, through the client and a real socket.

use std::cell::RefCell;
use std::time::Duration;

use ratelimiter_client::{HttpLimiter, HttpOptions};
use ratelimiter_conformance::{Capabilities, Fixture};

use crate::harness::TestServer;

/// One server per test. `None` only while it restarts.
struct ThroughASocket(RefCell<Option<TestServer>>);

impl ThroughASocket {
    async fn start() -> Self {
        Self(RefCell::new(Some(TestServer::start().await)))
    }

    fn client(&self) -> HttpLimiter {
        let server = self.0.borrow();
        let addr = server.as_ref().unwrap().addr();
        let options = HttpOptions { timeout: Duration::from_secs(60), ..HttpOptions::default() };
        HttpLimiter::with_options(&format!("http://{addr}"), options).unwrap()
    }
}

impl Fixture for ThroughASocket {
    type Limiter = HttpLimiter;

    fn capabilities(&self) -> Capabilities {
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
            waits: Ok(()),
            templates: Ok(()),
            replaces_limits: Ok(()),
            instances_at_most: Err("the bound of a million is not worth reaching here"),
            new_instances_per_second: Err("a thousand a second is not worth reaching here"),
            keeps_definitions: Ok(()),
            keeps_leases: Err("the memory backend's leases are gone with the process"),
            second_server: Err("two servers do not share the memory backend"),
        }
    }

    async fn limiter(&self) -> HttpLimiter {
        self.client()
    }

    async fn advance(&self, by: Duration) {
        let server = self.0.borrow();
        let server = server.as_ref().unwrap();
        server.clock.advance(by);
        // The server's tick would do this at some time during the next step; do it before.
        server.memory.sweep();
    }

    async fn restarted(&self) -> HttpLimiter {
        let server = self.0.borrow_mut().take().unwrap();
        let server = server.restart().await;
        *self.0.borrow_mut() = Some(server);
        self.client()
    }
}

ratelimiter_conformance::conformance! {
    fixture: ThroughASocket::start().await,
    skips: [
        cal_01_a_period_survives_a_restart,
        cal_01_servers_share_a_period,
        shd_02_enforcing_after_a_restart_counts_what_was_admitted,
        res_09_the_oldest_ended_leases_are_forgotten_first,
        tpl_07_there_are_only_so_many_limits,
        tpl_07_there_are_only_so_many_new_limits_in_a_second,
        com_07_complete_after_a_restart_releases_and_reconciles,
        com_05_the_first_complete_stands_at_another_server,
        com_07_complete_at_another_server_releases_and_reconciles,
        ops_01_a_lease_is_released_at_another_server,
        ops_02_a_debt_is_forgiven_at_another_server,
        com_07_leases_are_known_after_a_restart,
    ],
}
