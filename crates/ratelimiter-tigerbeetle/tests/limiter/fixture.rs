//! The limiter as the conformance suite takes it, on any ledger.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratelimiter::LeaseId;
use ratelimiter::clock::Timestamp;
use ratelimiter_conformance::{Fixture, Powers};
use ratelimiter_tigerbeetle::ledger::Ledger;
use ratelimiter_tigerbeetle::limiter::TigerBeetleLimiter;

use crate::scene::Scene;

/// A cluster with one limiter on it, or several, one after another.
pub struct OnLedger<L: Ledger> {
    scene: Scene<L>,
    /// The one that was given out last.
    limiter: Mutex<Option<Arc<TigerBeetleLimiter<L>>>>,
}

impl<L: Ledger + Clone> OnLedger<L> {
    pub fn new(scene: Scene<L>) -> Self {
        Self { scene, limiter: Mutex::default() }
    }

    async fn successor(&self) -> Arc<TigerBeetleLimiter<L>> {
        let before = self.limiter.lock().unwrap().clone().expect("there was a first one");
        let limiter = self.scene.successor(&before).await;
        *self.limiter.lock().unwrap() = Some(Arc::clone(&limiter));
        limiter
    }
}

impl<L: Ledger + Clone> Fixture for OnLedger<L> {
    type Limiter = Arc<TigerBeetleLimiter<L>>;

    fn powers(&self) -> Powers {
        match self.scene.hand {
            Some(_) => powers(Duration::from_millis(1)),
            // What is later is waited for.
            None => powers(Duration::from_millis(100)),
        }
    }

    async fn limiter(&self) -> Self::Limiter {
        let limiter = self.scene.limiter();
        *self.limiter.lock().unwrap() = Some(Arc::clone(&limiter));
        limiter
    }

    async fn advance(&self, by: Duration) {
        self.scene.pass(by).await;
    }

    fn now(&self) -> Option<Timestamp> {
        self.scene.hand.is_none().then(|| self.scene.clock.now())
    }

    fn lease(&self) -> LeaseId {
        self.scene.lease()
    }

    async fn restarted(&self) -> Self::Limiter {
        self.successor().await
    }

    async fn another(&self) -> Self::Limiter {
        self.successor().await
    }
}

/// What the limiter can show where an expiry is seen so late.
pub fn powers(expiry_lag: Duration) -> Powers {
    Powers {
        expiry_lag,
        reconciled_expiry_lag: Duration::from_secs(1),
        exact_time: Err("the events of one moment are a nanosecond apart"),
        exact_hints: Err("a hint would need a read; every hint is the backoff"),
        names_every_denied_key: Err("only the first event of a chain without room is named"),
        tells_uncovered: Ok(()),
        knows_leases_by_id: Err("a lease is recognised by the keys that it came with"),
        forgets_after: Err("the cluster knows a lease for ever"),
        remembers_at_most: Err("the cluster knows a lease for ever"),
        keeps_definitions: Ok(()),
        keeps_leases: Ok(()),
        second_server: Ok(()),
    }
}
