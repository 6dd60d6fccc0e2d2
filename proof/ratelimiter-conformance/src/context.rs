//! The context of a fact: the fixture's limiter, with short names.
//!
//! A name becomes a key with the fixture's prefix, or a lease ID that is generated at its first
//! use, so that facts that share a server do not interfere.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Actuals, Capacity, CompleteRequest, DefineError, DeleteError, HoldTimeout, LeaseId, Limit,
    LimitKey, LimitKind, LimitState, LimitStatus, Page, Requirements, ReserveRequest, Window,
};

use crate::answer::{CompleteCheck, ReserveCheck};
use crate::fixture::Capabilities;
use crate::stderr::print_stderr;
use crate::world::World;

/// How often to check for an event that may be late, and the most checks.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const POLLS_MAX: usize = 1_200;

pub(crate) struct TestContext {
    fact: &'static str,
    world: Box<dyn World>,
    capabilities: Capabilities,
    prefix: String,
    leases: RefCell<HashMap<String, LeaseId>>,
}

/// A lower bound on the lifetime of something that is reserved after this was created.
#[derive(Clone, Copy)]
pub(crate) struct Lifetime {
    seconds: u64,
    /// Not over before this; `None` if time moves only by [`TestContext::pass`].
    until: Option<Timestamp>,
}

impl TestContext {
    pub(crate) fn new(fact: &'static str, world: Box<dyn World>) -> Self {
        let capabilities = world.capabilities();
        let prefix = world.prefix();
        assert!(
            capabilities.expiry_lag < Duration::from_secs(1),
            "facts count whole seconds, so an expiry may not be a second late"
        );
        assert!(prefix.len() <= 64, "a prefix leaves room for the longest names");
        Self { fact, world, capabilities, prefix, leases: RefCell::default() }
    }

    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn key(&self, name: &str) -> LimitKey {
        LimitKey::new(format!("{}{name}", self.prefix)).expect("facts use valid names")
    }

    pub(crate) fn lease(&self, name: &str) -> LeaseId {
        let mut leases = self.leases.borrow_mut();
        *leases.entry(name.to_owned()).or_insert_with(|| self.world.lease())
    }
}

/// Definitions.
impl TestContext {
    pub(crate) fn rolling_limit(&self, name: &str, window_seconds: u64, capacity: u64) -> Limit {
        let window = Window::from_seconds(window_seconds).expect("facts use valid windows");
        self.limit(name, LimitKind::Rolling { window }, capacity)
    }

    pub(crate) fn concurrency_limit(
        &self,
        name: &str,
        timeout_seconds: u64,
        capacity: u64,
    ) -> Limit {
        let timeout = HoldTimeout::from_seconds(timeout_seconds).expect("facts use valid timeouts");
        self.limit(name, LimitKind::Concurrency { timeout }, capacity)
    }

    fn limit(&self, name: &str, kind: LimitKind, capacity: u64) -> Limit {
        let capacity = Capacity::new(capacity).expect("facts use valid capacities");
        Limit::new(self.key(name), kind, capacity)
    }

    /// Defines a rolling limit that takes effect at once.
    pub(crate) async fn rolling(&self, name: &str, window_seconds: u64, capacity: u64) {
        let limit = self.rolling_limit(name, window_seconds, capacity);
        assert_eq!(self.define(limit).await, Ok(LimitStatus::Active), "{name}");
    }

    /// Defines a concurrency limit that takes effect at once.
    pub(crate) async fn concurrency(&self, name: &str, timeout_seconds: u64, capacity: u64) {
        let limit = self.concurrency_limit(name, timeout_seconds, capacity);
        assert_eq!(self.define(limit).await, Ok(LimitStatus::Active), "{name}");
    }

    /// Lowers a limit's capacity below its usage, so that the decrease waits.
    pub(crate) async fn decrease(&self, limit: Limit) {
        let to = limit.capacity;
        let status = self.define(limit).await;
        assert_eq!(status, Ok(LimitStatus::Decreasing { to }));
    }

    pub(crate) async fn define(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        self.world.define(limit).await
    }

    pub(crate) async fn delete(&self, name: &str) -> Result<(), DeleteError> {
        self.world.delete(&self.key(name)).await
    }
}

/// Calls.
impl TestContext {
    pub(crate) fn to_reserve<const N: usize>(
        &self,
        lease: &str,
        needs: [(&str, u64); N],
    ) -> ReserveRequest {
        let pairs = needs.map(|(name, amount)| (self.key(name), amount));
        let requirements = Requirements::of(pairs).expect("facts use valid requirements");
        ReserveRequest::new(self.lease(lease), requirements)
    }

    pub(crate) fn to_complete<const N: usize>(
        &self,
        lease: &str,
        actuals: [(&str, u64); N],
    ) -> CompleteRequest {
        let pairs = actuals.map(|(name, amount)| (self.key(name), amount));
        let actuals = Actuals::of(pairs).expect("facts use valid actuals");
        CompleteRequest::new(self.lease(lease), actuals)
    }

    pub(crate) async fn reserve<const N: usize>(
        &self,
        lease: &str,
        needs: [(&str, u64); N],
    ) -> ReserveCheck {
        let result = self.world.reserve(&self.to_reserve(lease, needs)).await;
        self.reserved(format!("reserve {lease} {needs:?}"), result)
    }

    pub(crate) async fn complete<const N: usize>(
        &self,
        lease: &str,
        actuals: [(&str, u64); N],
    ) -> CompleteCheck {
        let request = self.to_complete(lease, actuals);
        let result = self.world.complete(&request).await;
        self.completed(format!("complete {lease} {actuals:?}"), result)
    }

    /// Completes with an actual of one key, or with none.
    pub(crate) async fn complete_with(
        &self,
        lease: &str,
        name: &str,
        actual: Option<u64>,
    ) -> CompleteCheck {
        match actual {
            Some(actual) => self.complete(lease, [(name, actual)]).await,
            None => self.complete(lease, []).await,
        }
    }

    pub(crate) async fn reserve_batch(&self, requests: &[ReserveRequest]) -> Vec<ReserveCheck> {
        let results = self.world.reserve_batch(requests).await;
        assert_eq!(results.len(), requests.len(), "one answer per request");
        let numbered = results.into_iter().enumerate();
        let reserved = |(at, result)| self.reserved(format!("request {at} of the batch"), result);
        numbered.map(reserved).collect()
    }

    pub(crate) async fn complete_batch(&self, requests: &[CompleteRequest]) -> Vec<CompleteCheck> {
        let results = self.world.complete_batch(requests).await;
        assert_eq!(results.len(), requests.len(), "one answer per request");
        let numbered = results.into_iter().enumerate();
        let completed = |(at, result)| self.completed(format!("request {at} of the batch"), result);
        numbered.map(completed).collect()
    }

    fn reserved(
        &self,
        asked: String,
        result: Result<ratelimiter::Decision, ratelimiter::ReserveError>,
    ) -> ReserveCheck {
        let names_every_key = self.capabilities.names_every_denied_key.is_ok();
        ReserveCheck::new(asked, result, self.prefix.clone(), names_every_key)
    }

    fn completed(
        &self,
        asked: String,
        result: Result<(), ratelimiter::CompleteError>,
    ) -> CompleteCheck {
        CompleteCheck::new(asked, result, self.prefix.clone())
    }
}

/// State.
impl TestContext {
    /// The state of a defined limit.
    pub(crate) async fn state(&self, name: &str) -> LimitState {
        let state = self.state_if_defined(name).await;
        state.expect("the limit is defined")
    }

    pub(crate) async fn state_if_defined(&self, name: &str) -> Option<LimitState> {
        let state = self.world.state(&self.key(name)).await;
        state.expect("a working limiter returns its state")
    }

    pub(crate) async fn states(&self, page: &Page) -> Vec<LimitState> {
        let states = self.world.states(page).await;
        states.expect("a working limiter returns its states")
    }

    pub(crate) async fn used(&self, name: &str) -> u64 {
        self.state(name).await.usage.used
    }

    pub(crate) async fn available(&self, name: &str) -> u64 {
        self.state(name).await.usage.available
    }

    pub(crate) async fn debt(&self, name: &str) -> u128 {
        self.state(name).await.usage.debt
    }

    pub(crate) async fn status(&self, name: &str) -> LimitStatus {
        self.state(name).await.status
    }

    pub(crate) async fn capacity(&self, name: &str) -> u64 {
        self.state(name).await.limit.capacity.get()
    }
}

/// Time and servers.
impl TestContext {
    /// Lets whole seconds pass; expiries at the end of them may not be visible yet.
    pub(crate) async fn pass_seconds(&self, seconds: u64) {
        self.pass(Duration::from_secs(seconds)).await;
    }

    pub(crate) async fn pass(&self, by: Duration) {
        self.world.advance(by).await;
    }

    /// The lifetime of what is reserved after this call.
    pub(crate) fn lifetime_of_seconds(&self, seconds: u64) -> Lifetime {
        Lifetime {
            seconds,
            until: self.world.now().map(|now| now.after(Duration::from_secs(seconds))),
        }
    }

    /// Whether all answers so far arrived within this lifetime. On a real clock a slow machine may
    /// be late; its answers may then be from before the end or after it, and a fact does not check
    /// them.
    pub(crate) fn is_within(&self, lifetime: Lifetime) -> bool {
        let Lifetime { seconds, until } = lifetime;
        let in_time = until.is_none_or(|until| self.world.now().is_none_or(|now| now < until));
        if !in_time {
            print_stderr(&format!("{}: too late to check a lifetime of {seconds} s", self.fact));
        }
        in_time
    }

    /// Lets seconds pass until what lives that long from now has visibly expired.
    pub(crate) async fn outlast_seconds(&self, seconds: u64) {
        self.pass(Duration::from_secs(seconds) + self.capabilities.expiry_lag).await;
    }

    /// As [`TestContext::outlast_seconds`], for a reservation that was reconciled.
    pub(crate) async fn outlast_reconciled_seconds(&self, seconds: u64) {
        let lag = self.capabilities.expiry_lag + self.capabilities.reconciled_expiry_lag;
        self.pass(Duration::from_secs(seconds) + lag).await;
    }

    /// Lets the second pass within which a possible decrease is applied. On a real clock it waits
    /// longer: a busy machine is late, and the fact is not about that.
    pub(crate) async fn wait_for_decrease(&self, name: &str) {
        self.outlast_seconds(1).await;
        if self.capabilities.exact_time.is_ok() {
            return;
        }
        for _ in 0..POLLS_MAX {
            if !self.state(name).await.waits() {
                return;
            }
            self.world.advance(POLL_INTERVAL).await;
        }
    }

    /// Continues with the server's replacement.
    pub(crate) async fn restart(&mut self) {
        self.world.restart().await;
    }

    /// Continues at another server. The first one keeps running.
    pub(crate) async fn move_to_another_server(&mut self) {
        self.world.move_to_another_server().await;
    }
}
