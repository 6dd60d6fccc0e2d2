//! The HTTP limiter over unencrypted HTTP/2. The server's tests cover HTTP/1.1.

use std::time::Duration;

use ratelimiter_client::{Cleartext, HttpLimiter, HttpOptions};
use ratelimiter_conformance::{Capabilities, Fixture};

use crate::hosted::Hosted;

struct OverHttp2(Hosted);

impl OverHttp2 {
    async fn start() -> Self {
        let options = HttpOptions { cleartext: Cleartext::Http2, ..HttpOptions::default() };
        Self(Hosted::start(options).await)
    }
}

impl Fixture for OverHttp2 {
    type Limiter = HttpLimiter;

    fn capabilities(&self) -> Capabilities {
        Hosted::capabilities()
    }

    async fn limiter(&self) -> HttpLimiter {
        self.0.client()
    }

    async fn advance(&self, by: Duration) {
        self.0.advance(by);
    }

    async fn restarted(&self) -> HttpLimiter {
        self.0.restart().await;
        self.0.client()
    }
}

ratelimiter_conformance::conformance! {
    fixture: OverHttp2::start().await,
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
