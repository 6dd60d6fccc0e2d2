//! The context of a fact: the fixture's limiter, with short names.
//!
//! A name becomes a key with the fixture's prefix, or a lease ID that is generated at its first
//! use, so that facts that share a server do not interfere.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Duration;

use ratelimiter::clock::{Clock, FakeClock, Timestamp};
use ratelimiter::{
    Decision, LeaseId, LeasePage, LeasePosition, LimitKey, LimitState, OpenLease, Requirements,
    ReserveError, ReserveRequest,
};

use crate::fixture::Capabilities;
use crate::stderr::print_stderr;
use crate::world::World;

/// How often to check for an event that may be late, and the most checks.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const POLLS_MAX: usize = 1_200;

pub(crate) struct TestContext {
    pub(crate) fact: &'static str,
    pub(crate) world: Box<dyn World>,
    pub(crate) capabilities: Capabilities,
    pub(crate) prefix: String,
    leases: RefCell<HashMap<String, LeaseId>>,
    /// When each lease was first allowed.
    pub(crate) allowed_at: HashMap<String, Timestamp>,
    /// When each lease was last renewed, and until when.
    pub(crate) renewed_at: HashMap<String, (Timestamp, Timestamp)>,
    lifetimes: HashMap<String, Lifetime>,
    /// How much time was let pass.
    passed: Cell<Duration>,
}

/// A lower bound on the lifetime of something that is reserved after this was created.
struct Lifetime {
    duration: Duration,
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
        let (leases, allowed_at, renewed_at, lifetimes, passed) = Default::default();
        Self {
            fact,
            world,
            capabilities,
            prefix,
            leases,
            allowed_at,
            renewed_at,
            lifetimes,
            passed,
        }
    }

    pub(crate) fn key(&self, name: &str) -> LimitKey {
        LimitKey::new(format!("{}{name}", self.prefix)).expect("facts use valid names")
    }

    /// The inverse of [`TestContext::key`].
    pub(crate) fn name<'a>(&self, key: &'a LimitKey) -> &'a str {
        key.as_str().strip_prefix(&self.prefix).unwrap_or(key.as_str())
    }

    pub(crate) fn lease(&self, name: &str) -> LeaseId {
        let mut leases = self.leases.borrow_mut();
        *leases.entry(name.to_owned()).or_insert_with(|| self.world.lease())
    }

    /// The inverse of [`TestContext::lease`].
    pub(crate) fn lease_name(&self, lease: LeaseId) -> String {
        let leases = self.leases.borrow();
        let found = leases.iter().find(|(_, known)| **known == lease);
        found.map_or_else(|| lease.to_string(), |(name, _)| name.clone())
    }

    /// Open leases, after a check of what holds for every list of them.
    pub(crate) async fn leases(&self, page: &LeasePage) -> Vec<OpenLease> {
        let leases = self.world.leases(page).await.expect("a working limiter lists its leases");
        let position = |open: &OpenLease| LeasePosition::of(open.reserved_at, open.lease);
        assert!(leases.is_sorted_by_key(position), "the oldest first: {leases:?}");
        assert!(leases.len() <= page.count_max, "a page is bounded");
        for OpenLease { lease, reserved_at, amounts, .. } in &leases {
            assert!(amounts.is_sorted_by(|a, b| a.key < b.key), "sorted by key: {amounts:?}");
            assert!(amounts.iter().all(|held| held.amount > 0 && held.lapses_at > *reserved_at));
            if let Some(allowed_at) = self.allowed_at.get(&self.lease_name(*lease)) {
                assert_eq!(reserved_at.unix_ms(), allowed_at.unix_ms(), "as its reserve said");
            }
        }
        leases
    }

    pub(crate) async fn reserve(
        &self,
        lease: &str,
        pairs: Vec<(LimitKey, u64)>,
    ) -> Result<Decision, ReserveError> {
        let requirements = Requirements::of(pairs).expect("facts use valid requirements");
        self.world.reserve(&ReserveRequest::new(self.lease(lease), requirements)).await
    }

    /// The state of a defined limit.
    pub(crate) async fn state(&self, name: &str) -> LimitState {
        self.state_if_defined(name).await.expect("the limit is defined")
    }

    pub(crate) async fn state_if_defined(&self, name: &str) -> Option<LimitState> {
        let state = self.world.state(&self.key(name)).await;
        state.expect("a working limiter returns its state")
    }

    pub(crate) async fn pass(&self, by: Duration) {
        self.passed.set(self.passed.get() + by);
        self.world.advance(by).await;
    }

    /// Names the lifetime of what is reserved after this call.
    pub(crate) fn begin_lifetime(&mut self, name: &str, duration: Duration) {
        let until = self.world.now().map(|now| now.after(duration));
        self.lifetimes.insert(name.to_owned(), Lifetime { duration, until });
    }

    /// Whether all answers so far arrived within this lifetime. On a real clock a slow machine may
    /// be late; its answers may then be from before the end or after it, and a fact does not check
    /// them.
    pub(crate) fn is_within(&self, lifetime: &str) -> bool {
        let Lifetime { duration, until } = self.lifetimes[lifetime];
        let in_time = until.is_none_or(|until| self.world.now().is_none_or(|now| now < until));
        if !in_time {
            print_stderr(&format!("{}: too late to check a lifetime of {duration:?}", self.fact));
        }
        in_time
    }

    /// When a calendar limit resets, seen from the virtual clock. `FakeClock` begins at the same moment everywhere.
    pub(crate) async fn until_reset(&self, name: &str) -> String {
        let resets_at = self.state(name).await.resets_at;
        let now = FakeClock::new().now().after(self.passed.get());
        match resets_at {
            Some(resets_at) => format!("in {:?}", resets_at.since(now)),
            None => "never".to_owned(),
        }
    }

    /// Lets the second pass within which a possible decrease is applied. On a real clock it waits
    /// longer: a busy machine is late, and the fact is not about that.
    pub(crate) async fn wait_for_decrease(&self, name: &str) {
        self.pass(Duration::from_secs(1) + self.capabilities.expiry_lag).await;
        if self.capabilities.exact_time.is_ok() {
            return;
        }
        for _ in 0..POLLS_MAX {
            if !self.state(name).await.waits() {
                return;
            }
            self.pass(POLL_INTERVAL).await;
        }
    }
}
