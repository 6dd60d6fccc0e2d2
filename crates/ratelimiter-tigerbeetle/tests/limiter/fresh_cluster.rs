//! `TB-15`: the documented move to a new cluster.
//!
//! What is still reserved on the old cluster is kept free on the new one.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::FakeClock;
use ratelimiter::{Backend, Capacity, Limit, LimitStatus};
use ratelimiter_tigerbeetle::limiter::TigerBeetleLimiter;
use tigerbeetle_model::ModelLedger;

use crate::context::{TestContext, run};

const WINDOW_SECONDS: u64 = 60;
const TIMEOUT_SECONDS: u64 = 30;
const TOKENS: u64 = 1_000;
const SLOTS: u64 = 20;

/// A cluster with a limiter on it.
struct Cluster {
    context: TestContext<Arc<ModelLedger>>,
    limiter: Arc<TigerBeetleLimiter<Arc<ModelLedger>>>,
}

impl Cluster {
    fn new(clock: &Arc<FakeClock>) -> Self {
        let ledger = Arc::new(ModelLedger::new(Arc::clone(clock)));
        let context = TestContext::new(ledger, Some(Arc::clone(clock)));
        let limiter = context.limiter();
        Self { context, limiter }
    }

    fn limits(&self, tokens: u64, slots: u64) -> [Limit; 2] {
        let tokens = self.context.rolling("tokens", WINDOW_SECONDS, tokens);
        [tokens, self.context.concurrency("slots", TIMEOUT_SECONDS, slots)]
    }

    async fn define(&self, tokens: u64, slots: u64) {
        for limit in self.limits(tokens, slots) {
            self.limiter.define(limit).await.unwrap();
        }
    }

    async fn used(&self) -> (u64, u64) {
        let tokens = self.context.used(&self.limiter, "tokens").await;
        (tokens, self.context.used(&self.limiter, "slots").await)
    }

    /// Starts calls for a while and completes some; returns how many were allowed.
    async fn work(&self, other: &Self, random: &mut fastrand::Rng, seconds: u64) -> u64 {
        let mut allowed = 0;
        for _ in 0..seconds * 4 {
            self.context.pass(Duration::from_millis(250)).await;
            other.limiter.tick().await;
            let lease = self.context.lease();
            let needs = [("tokens", random.u64(1..40)), ("slots", 1)];
            let Ok(decision) = self.context.reserve(&self.limiter, lease, needs).await else {
                continue;
            };
            if decision.is_allowed() {
                allowed += 1;
                if random.bool() {
                    self.context.complete(&self.limiter, lease, []).await.unwrap();
                }
            }
            let ((a, b), (c, d)) = (self.used().await, other.used().await);
            assert!(a + c <= TOKENS, "{a} + {c} tokens are reserved on both clusters together");
            assert!(b + d <= SLOTS, "{b} + {d} slots are held on both clusters together");
        }
        allowed
    }
}

/// TB-15
#[test]
fn tb_15_a_move_to_a_fresh_cluster_admits_no_more_than_the_capacity() {
    for seed in 0..5 {
        run(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            let clock = Arc::new(FakeClock::new());
            let (old, new) = (Cluster::new(&clock), Cluster::new(&clock));
            new.define(0, 0).await;
            old.define(TOKENS, SLOTS).await;
            assert!(old.work(&new, &mut random, 45).await > 0);

            // Nothing more is admitted on the old cluster, so what is reserved there only falls.
            old.define(0, 0).await;
            let (tokens, slots) = old.used().await;
            assert!(tokens > 0 && slots > 0, "something is reserved");
            new.define(TOKENS - tokens, SLOTS - slots).await;
            new.work(&old, &mut random, WINDOW_SECONDS).await;

            // The longest window has passed: the old cluster is empty, and the new one gets all.
            assert_eq!(old.used().await, (0, 0));
            new.define(TOKENS, SLOTS).await;
            assert!(new.work(&old, &mut random, 60).await > 0);
            let state = new.context.state(&new.limiter, "tokens").await;
            assert_eq!(state.limit.capacity, Capacity::new(TOKENS).unwrap());
            assert_eq!(state.status, LimitStatus::Active);
        });
    }
}

/// TB-15: the test can fail. A new cluster that starts with the whole capacity admits too much.
#[test]
#[should_panic(expected = "on both clusters together")]
fn tb_15_a_move_with_the_whole_capacity_admits_too_much() {
    run(async {
        let mut random = fastrand::Rng::with_seed(1);
        let clock = Arc::new(FakeClock::new());
        let (old, new) = (Cluster::new(&clock), Cluster::new(&clock));
        new.define(0, 0).await;
        old.define(TOKENS, SLOTS).await;
        old.work(&new, &mut random, 45).await;
        old.define(0, 0).await;
        new.define(TOKENS, SLOTS).await;
        new.work(&old, &mut random, WINDOW_SECONDS).await;
    });
}
