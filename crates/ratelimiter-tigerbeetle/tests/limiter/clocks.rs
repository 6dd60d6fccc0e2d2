//! Servers with a wrong clock: the cluster's clock decides expiry.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratelimiter::Backend;
use ratelimiter::clock::{Clock, FakeClock, Timestamp};

use crate::context::{restore_all, run};
use crate::on_model::on_model;

/// A clock that is right until it is told to be ahead: by the first of two times for so many readings, then by
/// the second. So moves the estimate of the cluster's time when an answer comes to another caller.
#[derive(Debug)]
struct MovingClock {
    clock: Arc<dyn Clock>,
    ahead: Mutex<[Duration; 2]>,
    readings: AtomicUsize,
}

impl Clock for MovingClock {
    fn now(&self) -> Timestamp {
        let one_less = |left: usize| left.checked_sub(1);
        let left = self.readings.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
        self.clock.now().after(self.ahead.lock().unwrap()[usize::from(left.is_err())])
    }
}

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

/// REN-01: a part lapses, as far as is known, or comes back, while a renew is planned.
#[test]
fn ren_01_a_renew_is_planned_at_one_moment() {
    const BEHIND: Duration = Duration::ZERO;
    const AHEAD: Duration = Duration::from_millis(2);
    run(async {
        for (ahead, amount) in [
            ([BEHIND, AHEAD], 8),
            ([AHEAD, BEHIND], 8),
            ([BEHIND, AHEAD], 12),
            ([AHEAD, BEHIND], 12),
        ] {
            for readings in 0..8 {
                let on = on_model();
                let clock = Arc::new(MovingClock {
                    clock: Arc::clone(&on.clock),
                    ahead: Mutex::default(),
                    readings: AtomicUsize::new(0),
                });
                let limiter = on.limiter_with(|options| options.clock = Arc::clone(&clock) as _);
                limiter.define(on.rolling("tokens", 60, 100)).await.unwrap();
                let lease = on.lease();
                assert!(on.reserve(&limiter, lease, [("tokens", 5)]).await.unwrap().is_allowed());
                on.pass(Duration::from_secs(30)).await;
                assert!(on.renew(&limiter, lease, 1, [("tokens", 15)]).await.unwrap().is_renewed());
                on.pass(Duration::from_millis(29_999)).await;

                *clock.ahead.lock().unwrap() = ahead;
                clock.readings.store(readings, Ordering::SeqCst);
                let renewed = on.renew(&limiter, lease, 2, [("tokens", amount)]).await.unwrap();
                assert!(renewed.is_renewed());
                on.pass(AHEAD).await;
                let used = on.used(&limiter, "tokens").await;
                assert_eq!(used, amount, "{ahead:?}, {readings} readings");
            }
        }
    });
}
