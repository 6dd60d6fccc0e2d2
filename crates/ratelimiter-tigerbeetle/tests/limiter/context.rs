//! Several limiters on one ledger, with control over time.

use std::future::Future;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ratelimiter::clock::{Clock, FakeClock, MonotonicClock};
use ratelimiter::{
    Actuals, Backend, Capacity, CompleteError, CompleteRequest, Decision, HoldTimeout, LeaseId,
    Limit, LimitKey, LimitKind, LimitState, Limiter, NewAmounts, Page, RegisteredLimit, RenewError,
    RenewNumber, RenewRequest, Renewal, Requirements, ReserveError, ReserveRequest, ResetSchedule,
    ResetTime, Window,
};
use ratelimiter_tigerbeetle::ledger::Ledger;
use ratelimiter_tigerbeetle::limiter::{LimiterOptions, TigerBeetleLimiter};
use testkit::tigerbeetle::outlast;

/// How often a server calls `tick`.
const TICK_EVERY: Duration = Duration::from_millis(250);

/// A cluster and the limiters on it.
pub struct TestContext<L: Ledger> {
    pub ledger: L,
    pub clock: Arc<dyn Clock>,
    /// The clock that tests move; `None` in real time.
    pub fake_clock: Option<Arc<FakeClock>>,
    /// Prefix of this context's keys, so that contexts can share a cluster.
    prefix: String,
    /// Limiters that are still in use.
    limiters: Mutex<Vec<Weak<TigerBeetleLimiter<L>>>>,
}

impl<L: Ledger + Clone> TestContext<L> {
    /// A context in real time, or on a fake clock.
    pub fn new(ledger: L, fake_clock: Option<Arc<FakeClock>>) -> Self {
        let clock: Arc<dyn Clock> = match &fake_clock {
            Some(fake_clock) => Arc::clone(fake_clock) as Arc<dyn Clock>,
            None => Arc::new(MonotonicClock::new()),
        };
        let prefix = format!("context:{}:", LeaseId::generate(clock.now()));
        Self { ledger, clock, fake_clock, prefix, limiters: Mutex::default() }
    }

    /// A limiter without limits, which ticks as time passes.
    pub fn limiter(&self) -> Arc<TigerBeetleLimiter<L>> {
        self.limiter_with(|_| {})
    }

    /// A limiter without a lease cache.
    pub fn uncached_limiter(&self) -> Arc<TigerBeetleLimiter<L>> {
        self.limiter_with(|options| options.leases_cached_max = 0)
    }

    pub fn limiter_with(
        &self,
        change: impl FnOnce(&mut LimiterOptions),
    ) -> Arc<TigerBeetleLimiter<L>> {
        let mut options =
            LimiterOptions { clock: Arc::clone(&self.clock), ..LimiterOptions::default() };
        change(&mut options);
        let limiter = Arc::new(TigerBeetleLimiter::new(self.ledger.clone(), options));
        self.limiters.lock().unwrap().push(Arc::downgrade(&limiter));
        if self.fake_clock.is_none() {
            tick_while_alive(&limiter);
        }
        limiter
    }

    /// A limiter that starts with the definitions of another, as if read from its limits file.
    pub async fn successor(&self, of: &TigerBeetleLimiter<L>) -> Arc<TigerBeetleLimiter<L>> {
        let limiter = self.limiter();
        restore_all(&limiter, of).await;
        limiter
    }

    /// Lets time pass while limiters tick as on a server.
    pub async fn pass(&self, by: Duration) {
        let Some(clock) = &self.fake_clock else {
            outlast(&self.ledger, by).await;
            // Background ticks may be late on a busy machine.
            return self.tick().await;
        };
        let mut left = by;
        while !left.is_zero() {
            let step = left.min(TICK_EVERY);
            clock.advance(step);
            self.tick().await;
            left -= step;
        }
    }

    async fn tick(&self) {
        let limiters = self.limiters.lock().unwrap().clone();
        for limiter in limiters.iter().filter_map(Weak::upgrade) {
            limiter.tick().await;
        }
    }

    pub fn key(&self, name: &str) -> LimitKey {
        LimitKey::new(format!("{}{name}", self.prefix)).unwrap()
    }

    pub fn rolling(&self, name: &str, window_seconds: u64, capacity: u64) -> Limit {
        let window = Window::from_seconds(window_seconds).unwrap();
        let kind = LimitKind::Rolling { window };
        Limit::new(self.key(name), kind, Capacity::new(capacity).unwrap())
    }

    pub fn concurrency(&self, name: &str, timeout_seconds: u64, capacity: u64) -> Limit {
        let timeout = HoldTimeout::from_seconds(timeout_seconds).unwrap();
        let kind = LimitKind::Concurrency { timeout };
        Limit::new(self.key(name), kind, Capacity::new(capacity).unwrap())
    }

    /// A calendar limit that resets once an hour, at this many minutes from now.
    pub fn hourly(&self, name: &str, in_minutes: u64, capacity: u64) -> Limit {
        let minute = (self.clock.now().unix_ms() / 60_000 + in_minutes) % 60;
        let at: ResetTime = format!("00:{minute:02}").parse().unwrap();
        let kind = LimitKind::Calendar { resets: ResetSchedule::Hourly { minute: at.minute() } };
        Limit::new(self.key(name), kind, Capacity::new(capacity).unwrap())
    }

    pub fn lease(&self) -> LeaseId {
        LeaseId::generate(self.clock.now())
    }

    pub async fn reserve<const N: usize>(
        &self,
        at: &impl Limiter,
        lease: LeaseId,
        needs: [(&str, u64); N],
    ) -> Result<Decision, ReserveError> {
        at.reserve(&self.to_reserve(lease, &needs)).await
    }

    pub fn to_reserve(&self, lease: LeaseId, needs: &[(&str, u64)]) -> ReserveRequest {
        let needs = needs.iter().map(|(name, amount)| (self.key(name), *amount));
        ReserveRequest::new(lease, Requirements::of(needs).unwrap())
    }

    pub async fn complete<const N: usize>(
        &self,
        at: &impl Limiter,
        lease: LeaseId,
        actuals: [(&str, u64); N],
    ) -> Result<(), CompleteError> {
        at.complete(&self.to_complete(lease, &actuals)).await
    }

    pub fn to_complete(&self, lease: LeaseId, actuals: &[(&str, u64)]) -> CompleteRequest {
        let actuals = actuals.iter().map(|(name, amount)| (self.key(name), *amount));
        CompleteRequest::new(lease, Actuals::of(actuals).unwrap())
    }

    pub async fn renew<const N: usize>(
        &self,
        at: &impl Limiter,
        lease: LeaseId,
        number: u64,
        amounts: [(&str, u64); N],
    ) -> Result<Renewal, RenewError> {
        at.renew(&self.to_renew(lease, number, &amounts)).await
    }

    pub fn to_renew(&self, lease: LeaseId, number: u64, amounts: &[(&str, u64)]) -> RenewRequest {
        let amounts = amounts.iter().map(|(name, amount)| (self.key(name), *amount));
        let number = RenewNumber::new(number).unwrap();
        RenewRequest::new(lease, number, NewAmounts::of(amounts).unwrap())
    }

    pub async fn state(&self, at: &impl Backend, name: &str) -> LimitState {
        at.state(&self.key(name)).await.unwrap().unwrap()
    }

    pub async fn used(&self, at: &impl Backend, name: &str) -> u64 {
        self.state(at, name).await.usage.used
    }
}

/// Restores at one limiter the definitions of another.
pub async fn restore_all<L: Ledger>(at: &TigerBeetleLimiter<L>, of: &TigerBeetleLimiter<L>) {
    for LimitState { limit, status, .. } in of.states(&Page::default()).await.unwrap() {
        at.restore(RegisteredLimit { limit, status }).await.unwrap();
    }
}

fn tick_while_alive<L: Ledger>(limiter: &Arc<TigerBeetleLimiter<L>>) {
    let limiter = Arc::downgrade(limiter);
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(TICK_EVERY);
        while let Some(limiter) = limiter.upgrade() {
            limiter.tick().await;
            drop(limiter);
            tick.tick().await;
        }
    });
}

/// Runs a scenario on its own runtime, with a timeout.
pub fn run(scenario: impl Future<Output = ()>) {
    testkit::run(async {
        let patience = Duration::from_secs(600);
        tokio::time::timeout(patience, scenario).await.expect("the scenario does not hang");
    });
}
