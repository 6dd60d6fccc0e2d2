//! A limiter, and accounts beside it that the threads keep.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use fastrand::Rng;
use ratelimiter::clock::{Clock, FakeClock, Timestamp};
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, Capacity, CompleteRequest, Decision, HoldTimeout, LeaseId, Limit, LimitKey, LimitKind,
    MemoryLimiter, Requirements, ReserveRequest, Window,
};

pub(crate) const CAPACITY: u64 = 60;
pub(crate) const WINDOW_SECONDS: u64 = 2;
/// Longer than all of the test's time, so that holds end by Complete alone.
const TIMEOUT_SECONDS: u64 = 86_400;

/// The limits: two that are always reserved together with equal amounts, and others.
pub(crate) const PAIR: [&str; 2] = ["pair:left", "pair:right"];
pub(crate) const ROLLING: [&str; 2] = ["rolling:a", "rolling:b"];
pub(crate) const HOLDS: [&str; 2] = ["holds:a", "holds:b"];

/// What was granted of one key, as the threads noted it.
#[derive(Debug, Default)]
struct Account {
    live: AtomicU64,
    /// Amounts of a rolling key by the moment at which they return.
    returns: Mutex<HashMap<Timestamp, u64>>,
}

/// A limiter with accounts beside it.
pub(crate) struct World {
    clock: Arc<FakeClock>,
    pub(crate) limiter: MemoryLimiter,
    accounts: HashMap<&'static str, Account>,
    /// Read during a step, written while time moves.
    time: RwLock<()>,
    next_lease: AtomicU64,
    pub(crate) allowed_count: AtomicU64,
    pub(crate) denied_count: AtomicU64,
}

/// A lease that was allowed.
pub(crate) struct Open {
    lease: LeaseId,
    granted: Vec<(&'static str, u64)>,
    expires_at: Timestamp,
}

pub(crate) fn key(name: &str) -> LimitKey {
    LimitKey::new(name).unwrap()
}

fn is_rolling(name: &str) -> bool {
    !HOLDS.contains(&name)
}

impl World {
    pub(crate) fn new(capacity: u64) -> Self {
        let clock = Arc::new(FakeClock::new());
        let limiter = MemoryLimiter::with_options(MemoryOptions::for_tests(clock.clone()));
        let mut accounts = HashMap::new();
        for name in PAIR.into_iter().chain(ROLLING).chain(HOLDS) {
            let window = Window::from_seconds(WINDOW_SECONDS).unwrap();
            let timeout = HoldTimeout::from_seconds(TIMEOUT_SECONDS).unwrap();
            let kind = match is_rolling(name) {
                true => LimitKind::Rolling { window },
                false => LimitKind::Concurrency { timeout },
            };
            limiter
                .define_now(Limit::new(key(name), kind, Capacity::new(capacity).unwrap()))
                .unwrap();
            accounts.insert(name, Account::default());
        }
        Self {
            clock,
            limiter,
            accounts,
            time: RwLock::new(()),
            next_lease: AtomicU64::new(1),
            allowed_count: AtomicU64::new(0),
            denied_count: AtomicU64::new(0),
        }
    }

    /// Reserves; a grant is noted at once, and no note may exceed the capacity.
    pub(crate) fn reserve(&self, needs: &[(&'static str, u64)]) -> Option<Open> {
        let _standing_still = self.time.read().unwrap();
        let lease = LeaseId::from_u128(self.next_lease.fetch_add(1, Ordering::Relaxed).into());
        let pairs = needs.iter().map(|(name, amount)| (key(name), *amount));
        let request = ReserveRequest::new(lease, Requirements::of(pairs).unwrap());
        let Decision::Allowed { reserved_at } = self.limiter.reserve_now(&request).unwrap() else {
            self.denied_count.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.allowed_count.fetch_add(1, Ordering::Relaxed);
        let expires_at = reserved_at.after(Duration::from_secs(WINDOW_SECONDS));
        for (name, amount) in needs {
            let account = &self.accounts[name];
            if is_rolling(name) {
                *account.returns.lock().unwrap().entry(expires_at).or_default() += amount;
            }
            let live = account.live.fetch_add(*amount, Ordering::SeqCst) + amount;
            assert!(live <= CAPACITY, "RES-02: {live} units of {name} are live");
        }
        Some(Open { lease, granted: needs.to_vec(), expires_at })
    }

    /// Completes; what is given back leaves the notes before the limiter hears of it.
    pub(crate) fn complete(&self, open: Open, random: &mut Rng) {
        let _standing_still = self.time.read().unwrap();
        let is_expired = open.expires_at <= self.clock.now();
        let share = random.u64(0..=2);
        let mut actuals = Vec::new();
        for (name, amount) in open.granted {
            let returned = match is_rolling(name) {
                true => {
                    // The same share of each, so that a pair stays equal.
                    let actual = amount * share / 2;
                    actuals.push((key(name), actual));
                    if is_expired { 0 } else { amount - actual }
                }
                false => amount,
            };
            let account = &self.accounts[name];
            if is_rolling(name) && returned > 0 {
                *account.returns.lock().unwrap().get_mut(&open.expires_at).unwrap() -= returned;
            }
            account.live.fetch_sub(returned, Ordering::SeqCst);
        }
        let request = CompleteRequest::new(open.lease, Actuals::of(actuals).unwrap());
        self.limiter.complete_now(&request).unwrap();
    }

    /// Moves time while no step is under way, and strikes out what has expired.
    pub(crate) fn advance(&self, by: Duration) {
        let _alone = self.time.write().unwrap();
        self.clock.advance(by);
        let now = self.clock.now();
        for account in self.accounts.values() {
            account.returns.lock().unwrap().retain(|expires_at, amount| {
                if *expires_at <= now {
                    account.live.fetch_sub(*amount, Ordering::SeqCst);
                }
                *expires_at > now
            });
        }
    }

    /// While nobody does anything: the limiter's figures are the notes.
    pub(crate) fn compare(&self) {
        let _alone = self.time.write().unwrap();
        for (name, account) in &self.accounts {
            let used = self.limiter.state_now(&key(name)).unwrap().usage.used;
            assert_eq!(used, account.live.load(Ordering::SeqCst), "RES-01: {name}");
        }
        let [left, right] = PAIR.map(|name| self.accounts[name].live.load(Ordering::SeqCst));
        assert_eq!(left, right, "RES-01: always reserved together");
    }
}
