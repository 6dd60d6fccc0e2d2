//! The conformance fixture, on any ledger.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratelimiter::LeaseId;
use ratelimiter::clock::Timestamp;
use ratelimiter_conformance::{Capabilities, Fixture};
use ratelimiter_tigerbeetle::ledger::Ledger;
use ratelimiter_tigerbeetle::limiter::TigerBeetleLimiter;

use crate::context::TestContext;

/// More than any other fact needs.
const INSTANCES_MAX: usize = 12;
const NEW_INSTANCES_MAX: usize = 8;

/// A cluster with one limiter, or several in succession.
pub struct OnLedger<L: Ledger> {
    context: TestContext<L>,
    /// The latest limiter.
    limiter: Mutex<Option<Arc<TigerBeetleLimiter<L>>>>,
}

impl<L: Ledger + Clone> OnLedger<L> {
    pub fn new(context: TestContext<L>) -> Self {
        Self { context, limiter: Mutex::default() }
    }

    async fn successor(&self) -> Arc<TigerBeetleLimiter<L>> {
        let before = self.limiter.lock().unwrap().clone().expect("there was a first one");
        let limiter = self.context.successor(&before).await;
        *self.limiter.lock().unwrap() = Some(Arc::clone(&limiter));
        limiter
    }
}

impl<L: Ledger + Clone> Fixture for OnLedger<L> {
    type Limiter = Arc<TigerBeetleLimiter<L>>;

    fn capabilities(&self) -> Capabilities {
        match self.context.fake_clock {
            Some(_) => {
                Capabilities { virtual_time: Ok(()), ..capabilities(Duration::from_millis(1)) }
            }
            // `outlast` waits for later expiries.
            None => capabilities(Duration::from_millis(100)),
        }
    }

    async fn limiter(&self) -> Self::Limiter {
        let limiter = self.context.limiter_with(|options| {
            options.instances_max = INSTANCES_MAX;
            options.new_instances_per_second_max = NEW_INSTANCES_MAX;
        });
        *self.limiter.lock().unwrap() = Some(Arc::clone(&limiter));
        limiter
    }

    async fn advance(&self, by: Duration) {
        self.context.pass(by).await;
    }

    fn now(&self) -> Option<Timestamp> {
        self.context.fake_clock.is_none().then(|| self.context.clock.now())
    }

    fn lease(&self) -> LeaseId {
        self.context.lease()
    }

    async fn restarted(&self) -> Self::Limiter {
        self.successor().await
    }

    async fn another(&self) -> Self::Limiter {
        self.successor().await
    }
}

/// The limiter's capabilities with this expiry lag.
pub fn capabilities(expiry_lag: Duration) -> Capabilities {
    Capabilities {
        expiry_lag,
        reconciled_expiry_lag: Duration::from_secs(1),
        capacity_max: ratelimiter::CAPACITY_MAX,
        exact_time: Err("the events of one moment are a nanosecond apart"),
        virtual_time: Err("the cluster's time passes by itself"),
        exact_hints: Err("a hint would need a read; every hint is the backoff"),
        names_every_denied_key: Err("only the first event of a chain without room is named"),
        tells_uncovered: Ok(()),
        knows_leases_by_id: Err("a lease is recognised by the keys that it came with"),
        forgets_after: Err("the cluster remembers leases permanently"),
        remembers_at_most: Err("the cluster remembers leases permanently"),
        renews: Ok(()),
        waits: Err("a server lets requests wait, around its backend"),
        templates: Ok(()),
        replaces_limits: Err("an account keeps what is reserved on it, and its period"),
        instances_at_most: Ok(INSTANCES_MAX),
        new_instances_per_second: Ok(NEW_INSTANCES_MAX),
        keeps_definitions: Ok(()),
        keeps_leases: Ok(()),
        second_server: Ok(()),
    }
}
