//! Servers with a wrong clock: the cluster's clock decides expiry.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::Backend;
use ratelimiter::clock::{Clock, FakeClock, Timestamp};

use crate::context::{restore_all, run};
use crate::on_model::on_model;

/// COM-07: found by the simulation. The lease is the second server's first contact with the
/// cluster.
#[test]
fn com_07_a_server_whose_clock_is_wrong_completes_what_another_one_allowed() {
    run(async {
        for (ahead, behind) in [(3_600, 0), (0, 3_600)] {
            let on = on_model();
            let first = on.limiter();
            first.define(on.rolling("tokens", 60, 100)).await.unwrap();
            first.define(on.concurrency("slots", 60, 1)).await.unwrap();
            let now = on.clock.now();
            let wrong = now.unix_nanos() + ahead * 1_000_000_000 - behind * 1_000_000_000;
            let wrong = Arc::new(FakeClock::at(Timestamp::from_unix_nanos(wrong)));
            let second = on.limiter_with(|options| options.clock = wrong);
            restore_all(&second, &first).await;
            let lease = on.lease();
            let needs = [("tokens", 50), ("slots", 1)];
            assert!(on.reserve(&first, lease, needs).await.unwrap().is_allowed());

            assert!(on.reserve(&second, lease, needs).await.unwrap().is_allowed(), "it is live");
            on.complete(&second, lease, [("tokens", 20)]).await.unwrap();
            assert_eq!(on.used(&first, "slots").await, 0);
            assert_eq!(on.used(&first, "tokens").await, 20);
            on.pass(Duration::from_secs(59)).await;
            assert_eq!(on.used(&first, "tokens").await, 20, "for as long as it was reserved");
            on.pass(Duration::from_secs(2)).await;
            assert_eq!(on.used(&first, "tokens").await, 0);
        }
    });
}
