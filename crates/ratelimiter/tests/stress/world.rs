//! A limiter, and the accounts that the threads keep of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use fastrand::Rng;
use ratelimiter::clock::{Clock, FakeClock, Timestamp};
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, Capacity, CompleteRequest, Decision, DenialReason, HoldTimeout, LeaseId, Limit,
    LimitKey, LimitKind, MemoryLimiter, Requirements, ReserveError, ReserveRequest, Window,
};

pub(crate) const CAPACITY: u64 = 60;
pub(crate) const WINDOW_SECONDS: u64 = 2;
/// Longer than the whole test, so that only Complete ends holds.
const TIMEOUT_SECONDS: u64 = 86_400;
/// More than the leases of the test. A shard then has some thousands of them, in many chunks.
const REMEMBER_MAX: usize = 2_000_000;

/// The limits: two that are always reserved together with equal amounts, and others.
pub(crate) const PAIR: [&str; 2] = ["pair:left", "pair:right"];
pub(crate) const ROLLING: [&str; 2] = ["rolling:a", "rolling:b"];
pub(crate) const HOLDS: [&str; 2] = ["holds:a", "holds:b"];
/// The limits of a model, which are one group. They are redefined all the time, with a lower capacity and the full one.
pub(crate) const MODEL: [&str; 3] =
    ["global:llm:p:model:rpm", "global:llm:p:model:tpm", "global:llm:p:model:concurrency"];
/// Two limits of another model, whose third limit comes and goes.
pub(crate) const BESIDE: [&str; 2] =
    ["global:llm:p:changing:rpm", "global:llm:p:changing:concurrency"];
/// Limits that come and go: one of a group that stays, and all of a group that goes with them. They have no accounts.
pub(crate) const FLEETING: [&str; 4] = [
    "global:llm:p:changing:tpm",
    "global:llm:p:fleeting:rpm",
    "global:llm:p:fleeting:tpm",
    "global:llm:p:fleeting:concurrency",
];
/// One ended lease in this many is requested again.
const ASKED_AGAIN_ONE_IN: u8 = 16;

/// The grants of one key, as the threads recorded them.
#[derive(Debug, Default)]
struct Account {
    live: AtomicU64,
    /// Amounts of a rolling key by the moment at which they expire.
    returns: Mutex<HashMap<Timestamp, u64>>,
}

/// A limiter and its accounts.
pub(crate) struct World {
    clock: Arc<FakeClock>,
    pub(crate) limiter: MemoryLimiter,
    accounts: HashMap<&'static str, Account>,
    /// Read during a step, written while time moves.
    time: RwLock<()>,
    capacity: u64,
    /// Some of the leases that were completed.
    over: Mutex<Vec<ReserveRequest>>,
    next_lease: AtomicU64,
    pub(crate) allowed_count: AtomicU64,
    pub(crate) denied_count: AtomicU64,
    pub(crate) unknown_count: AtomicU64,
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
    !HOLDS.contains(&name) && !name.ends_with(":concurrency")
}

fn limit(name: &str, capacity: u64) -> Limit {
    let window = Window::from_seconds(WINDOW_SECONDS).unwrap();
    let timeout = HoldTimeout::from_seconds(TIMEOUT_SECONDS).unwrap();
    let kind = match is_rolling(name) {
        true => LimitKind::Rolling { window },
        false => LimitKind::Concurrency { timeout },
    };
    Limit::new(key(name), kind, Capacity::new(capacity).unwrap())
}

fn reserve_request(lease: LeaseId, needs: &[(&'static str, u64)]) -> ReserveRequest {
    let pairs = needs.iter().map(|(name, amount)| (key(name), *amount));
    ReserveRequest::new(lease, Requirements::of(pairs).unwrap())
}

fn is_repeated(random: &mut Rng) -> bool {
    random.u8(..ASKED_AGAIN_ONE_IN) == 0
}

impl World {
    pub(crate) fn new(capacity: u64) -> Self {
        let clock = Arc::new(FakeClock::new());
        let mut options = MemoryOptions::for_tests(clock.clone());
        // However fast time goes, an ended lease stays known.
        (options.remember_for, options.remember_max) = (Duration::MAX, REMEMBER_MAX);
        let limiter = MemoryLimiter::with_options(options);
        let mut accounts = HashMap::new();
        for name in PAIR.into_iter().chain(ROLLING).chain(HOLDS).chain(MODEL).chain(BESIDE) {
            limiter.define_now(limit(name, capacity)).unwrap();
            accounts.insert(name, Account::default());
        }
        Self {
            clock,
            limiter,
            accounts,
            time: RwLock::new(()),
            capacity,
            over: Mutex::default(),
            next_lease: AtomicU64::new(1),
            allowed_count: AtomicU64::new(0),
            denied_count: AtomicU64::new(0),
            unknown_count: AtomicU64::new(0),
        }
    }

    /// An unused lease ID. IDs are in random order, so that the search for known leases is exercised.
    fn new_lease(&self) -> LeaseId {
        let n = self.next_lease.fetch_add(1, Ordering::Relaxed);
        LeaseId::from_u128(n.wrapping_mul(0x9e37_79b9_7f4a_7c15).into())
    }

    /// Defines or deletes one of the limits that may change at any time.
    pub(crate) fn change_a_limit(&self, random: &mut Rng) {
        match random.usize(..MODEL.len() + FLEETING.len()) {
            at if at < MODEL.len() => {
                let capacity = self.capacity / random.u64(1..=2);
                self.limiter.define_now(limit(MODEL[at], capacity)).unwrap();
            }
            at if random.bool() => {
                let name = FLEETING[at - MODEL.len()];
                self.limiter.define_now(limit(name, self.capacity)).unwrap();
            }
            at => {
                // It may be gone already.
                drop(self.limiter.delete_now(&key(FLEETING[at - MODEL.len()])));
            }
        }
    }

    /// Undoes all changes of limits: all are as at the start, and those that come and go are deleted.
    pub(crate) fn end_changes(&self) {
        for name in MODEL {
            self.limiter.define_now(limit(name, self.capacity)).unwrap();
        }
        for name in FLEETING {
            drop(self.limiter.delete_now(&key(name)));
        }
    }

    /// Reserves; a grant is recorded at once, and no account may exceed the capacity.
    pub(crate) fn reserve(&self, needs: &[(&'static str, u64)], random: &mut Rng) -> Option<Open> {
        let _standing_still = self.time.read().unwrap();
        let lease = self.new_lease();
        let request = reserve_request(lease, needs);
        let reserved_at = match self.limiter.reserve_now(&request) {
            Ok(Decision::Allowed { reserved_at, .. }) => reserved_at,
            Ok(Decision::Denied(denial)) => {
                self.denied_count.fetch_add(1, Ordering::Relaxed);
                if matches!(denial.reason, DenialReason::NoRoom { .. }) && is_repeated(random) {
                    self.reserve_again(&request, |answer| {
                        matches!(
                            answer,
                            Ok(Decision::Denied(_)) | Err(ReserveError::UnknownKey { .. })
                        )
                    });
                }
                return None;
            }
            Err(ReserveError::UnknownKey { key }) if FLEETING.contains(&key.as_str()) => {
                self.unknown_count.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            Err(error) => panic!("{needs:?}: {error}"),
        };
        self.allowed_count.fetch_add(1, Ordering::Relaxed);
        let expires_at = reserved_at.after(Duration::from_secs(WINDOW_SECONDS));
        for (name, amount) in needs {
            let Some(account) = self.accounts.get(name) else { continue };
            if is_rolling(name) {
                *account.returns.lock().unwrap().entry(expires_at).or_default() += amount;
            }
            let live = account.live.fetch_add(*amount, Ordering::SeqCst) + amount;
            assert!(live <= CAPACITY, "RES-02: {live} units of {name} are live");
        }
        Some(Open { lease, granted: needs.to_vec(), expires_at })
    }

    /// Completes; released units leave the accounts before the limiter is called.
    pub(crate) fn complete(&self, open: Open, random: &mut Rng) {
        let _standing_still = self.time.read().unwrap();
        let is_expired = open.expires_at <= self.clock.now();
        let share = random.u64(0..=2);
        let mut actuals = Vec::new();
        let again = reserve_request(open.lease, &open.granted);
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
            let Some(account) = self.accounts.get(name) else { continue };
            if is_rolling(name) && returned > 0 {
                *account.returns.lock().unwrap().get_mut(&open.expires_at).unwrap() -= returned;
            }
            account.live.fetch_sub(returned, Ordering::SeqCst);
        }
        let request = CompleteRequest::new(open.lease, Actuals::of(actuals).unwrap());
        self.limiter.complete_now(&request).unwrap();
        if is_repeated(random) {
            // This lease, or one that ended long ago.
            let again = {
                let mut over = self.over.lock().unwrap();
                over.push(again);
                over[random.usize(..over.len())].clone()
            };
            self.reserve_again(&again, |answer| {
                matches!(answer, Err(ReserveError::LeaseEnded | ReserveError::UnknownKey { .. }))
            });
        }
    }

    /// RES-05, RES-09: an ended lease is never allowed again. One of its keys may be deleted by now.
    fn reserve_again(
        &self,
        request: &ReserveRequest,
        is_right: impl Fn(&Result<Decision, ReserveError>) -> bool,
    ) {
        let answer = self.limiter.reserve_now(request);
        assert!(is_right(&answer), "RES-09: an ended lease, reserved again: {answer:?}");
    }

    /// Moves time while no step is in progress, and removes what has expired from the accounts.
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

    /// While all threads are idle: the limiter's usage equals the accounts.
    pub(crate) fn compare(&self) {
        let _alone = self.time.write().unwrap();
        for (name, account) in &self.accounts {
            let used = self.limiter.state_now(&key(name)).unwrap().usage.used;
            assert_eq!(used, account.live.load(Ordering::SeqCst), "RES-01: {name}");
        }
        for name in FLEETING {
            let state = self.limiter.state_now(&key(name));
            let used = state.map_or(0, |state| state.usage.used);
            assert!(used <= self.capacity, "RES-02: {used} units of {name} are live");
        }
        let [left, right] = PAIR.map(|name| self.accounts[name].live.load(Ordering::SeqCst));
        assert_eq!(left, right, "RES-01: always reserved together");
    }
}
