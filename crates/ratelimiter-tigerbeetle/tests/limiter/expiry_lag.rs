//! `TB-14`: reserves are rejected while a cluster releases reservations late.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::FakeClock;
use ratelimiter::{Backend, ReserveError};
use tigerbeetle_model::ModelLedger;

use crate::context::{TestContext, run};

/// TB-14
#[test]
fn tb_14_reserves_are_rejected_while_expiry_lags_and_completes_are_not() {
    run(async {
        let clock = Arc::new(FakeClock::new());
        let late = ModelLedger::new(Arc::clone(&clock)).with_expiry_lag(Duration::from_secs(15));
        let on = TestContext::new(Arc::new(late), Some(clock));
        let limiter = on.limiter_with(|options| options.expiry_lag_max = Duration::from_secs(10));
        limiter.define(on.concurrency("slots", 60, 10)).await.unwrap();
        let lease = on.lease();
        assert!(on.reserve(&limiter, lease, [("slots", 1)]).await.unwrap().is_allowed());
        on.pass(Duration::from_secs(10)).await;
        assert!(on.reserve(&limiter, on.lease(), [("slots", 1)]).await.unwrap().is_allowed());
        on.pass(Duration::from_secs(3)).await;

        let lag = limiter.observations().expiry_lag;
        assert!(lag > Duration::from_secs(10), "{lag:?}");
        let answer = on.reserve(&limiter, on.lease(), [("slots", 1)]).await;
        let Err(ReserveError::Unanswered(unanswered)) = answer else {
            panic!("the cluster has enough to do: {answer:?}");
        };
        assert!(unanswered.reason.contains("late"), "{unanswered}");
        on.complete(&limiter, lease, []).await.unwrap();
        assert_eq!(on.used(&limiter, "slots").await, 1);

        on.pass(Duration::from_secs(5)).await;
        let lag = limiter.observations().expiry_lag;
        assert!(lag < Duration::from_secs(10), "{lag:?}");
        assert!(on.reserve(&limiter, on.lease(), [("slots", 1)]).await.unwrap().is_allowed());
        assert_eq!(limiter.observations().reserves_rejected, 1);
    });
}
