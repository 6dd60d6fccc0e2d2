//! Keys with equal hashes: their texts tell them apart, and nothing else changes.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::reserve::AT_ONCE;
use super::{MemoryLimiter, MemoryOptions};
use crate::clock::FakeClock;
use crate::decision::Decision;
use crate::error::{CompleteError, DeleteError, ReserveError};
use crate::key::LimitKey;
use crate::lease::LeaseId;
use crate::limit::{Capacity, HoldTimeout, Limit, LimitKind, Window};
use crate::registry::Page;
use crate::request::{
    Actuals, CompleteRequest, NewAmounts, RenewNumber, RenewRequest, Requirements, ReserveRequest,
};

/// Rolling limits first, then concurrency limits.
const NAMES: [&str; 5] =
    ["tenant:a:search", "tenant:b:search", "global:llm:p:m:tpm", "calls", "other:calls"];
const ROLLING: usize = 3;
const STEPS: u32 = 20_000;

fn limiter() -> MemoryLimiter {
    MemoryLimiter::with_options(MemoryOptions::for_tests(FakeClock::new()))
}

fn rolling(key: LimitKey, capacity: u64) -> Limit {
    let kind = LimitKind::Rolling { window: Window::from_seconds(60).unwrap() };
    Limit::new(key, kind, Capacity::new(capacity).unwrap())
}

fn reserve(lease: u128, key: &LimitKey, amount: u64) -> ReserveRequest {
    let requirements = Requirements::of([(key.clone(), amount)]).unwrap();
    ReserveRequest::new(LeaseId::from_u128(lease), requirements)
}

fn used(limiter: &MemoryLimiter, key: &LimitKey) -> Option<u64> {
    limiter.state_now(key).map(|state| state.usage.used)
}

#[test]
fn two_keys_with_one_hash_are_two_limits() {
    let limiter = limiter();
    let [a, b] = ["tenant:a:search", "tenant:b:search"].map(LimitKey::colliding);
    limiter.define_now(rolling(a.clone(), 10)).unwrap();
    let unknown = Err(ReserveError::UnknownKey { key: b.clone() });
    assert_eq!(limiter.reserve_now(&reserve(1, &b, 1)), unknown);
    assert_eq!(used(&limiter, &b), None);
    assert_eq!(limiter.delete_now(&b), Err(DeleteError::UnknownKey { key: b.clone() }));

    limiter.define_now(rolling(b.clone(), 5)).unwrap();
    assert!(limiter.reserve_now(&reserve(2, &a, 10)).unwrap().is_allowed());
    assert_eq!((used(&limiter, &a), used(&limiter, &b)), (Some(10), Some(0)));
    assert!(limiter.reserve_now(&reserve(3, &b, 5)).unwrap().is_allowed());
    assert_eq!((used(&limiter, &a), used(&limiter, &b)), (Some(10), Some(5)));

    limiter.delete_now(&b).unwrap();
    assert_eq!((used(&limiter, &a), used(&limiter, &b)), (Some(10), None));
}

/// RES-04
#[test]
fn res_04_a_lease_that_asks_for_a_key_with_the_same_hash_asks_for_something_else() {
    let limiter = limiter();
    let [a, b] = ["a", "b"].map(LimitKey::colliding);
    for key in [&a, &b] {
        limiter.define_now(rolling(key.clone(), 10)).unwrap();
    }
    assert!(limiter.reserve_now(&reserve(1, &a, 1)).unwrap().is_allowed());
    assert!(limiter.reserve_now(&reserve(1, &a, 1)).unwrap().is_allowed());
    assert_eq!(limiter.reserve_now(&reserve(1, &b, 1)), Err(ReserveError::LeaseConflict));
}

/// COM-06
#[test]
fn com_06_an_actual_for_a_key_with_the_same_hash_is_refused() {
    let limiter = limiter();
    let [a, b] = ["a", "b"].map(LimitKey::colliding);
    for key in [&a, &b] {
        limiter.define_now(rolling(key.clone(), 10)).unwrap();
    }
    assert!(limiter.reserve_now(&reserve(1, &a, 8)).unwrap().is_allowed());
    let complete = |key: &LimitKey| {
        let actuals = Actuals::of([(key.clone(), 3)]).unwrap();
        limiter.complete_now(&CompleteRequest::new(LeaseId::from_u128(1), actuals))
    };
    assert_eq!(complete(&b), Err(CompleteError::InvalidActual { key: b.clone() }));
    assert_eq!(used(&limiter, &a), Some(8));
    assert_eq!(complete(&a), Ok(()));
    assert_eq!(used(&limiter, &a), Some(3));
}

/// REN-01, REN-02: a new amount is of the live reservation, not of one that has lapsed and has the same hash.
#[test]
fn ren_01_a_new_amount_is_not_of_a_lapsed_reservation_with_the_same_hash() {
    let clock = Arc::new(FakeClock::new());
    let limiter = MemoryLimiter::with_options(MemoryOptions::for_tests(clock.clone()));
    let [short, long] = ["short", "long"].map(LimitKey::colliding);
    limiter.define_now(rolling(short.clone(), 10)).unwrap();
    let kind = LimitKind::Rolling { window: Window::from_seconds(120).unwrap() };
    let limit = Limit::new(long.clone(), kind, Capacity::new(10).unwrap());
    limiter.define_now(limit).unwrap();
    let needs = Requirements::of([(short.clone(), 1), (long.clone(), 5)]).unwrap();
    let lease = LeaseId::from_u128(1);
    assert!(limiter.reserve_now(&ReserveRequest::new(lease, needs)).unwrap().is_allowed());
    clock.advance(Duration::from_secs(60));
    let amounts = NewAmounts::of([(long.clone(), 2)]).unwrap();
    let renew = RenewRequest::new(lease, RenewNumber::FIRST, amounts);
    assert!(limiter.renew_now(&renew).unwrap().is_renewed());
    assert_eq!((used(&limiter, &short), used(&limiter, &long)), (Some(0), Some(2)));
}

/// A limiter whose keys are created in one way, and a script that depends only on a seed.
struct Player {
    clock: Arc<FakeClock>,
    limiter: MemoryLimiter,
    keys: [LimitKey; NAMES.len()],
    random: Rng,
    /// The first requirements of each lease, by its ID.
    asked: Vec<Vec<usize>>,
}

impl Player {
    fn new(key: impl Fn(&str) -> LimitKey) -> Self {
        let clock = Arc::new(FakeClock::new());
        let mut options = MemoryOptions::for_tests(clock.clone());
        (options.hints.rolling.jitter, options.hints.concurrency.jitter) = Default::default();
        let limiter = MemoryLimiter::with_options(options);
        Self { clock, limiter, keys: NAMES.map(key), random: Rng::with_seed(8), asked: Vec::new() }
    }

    /// Runs a random operation, and returns its result and the resulting state, with the texts of keys.
    fn step(&mut self) -> String {
        let at = self.random.usize(..NAMES.len());
        let answer = match self.random.u8(..100) {
            0..=5 => {
                let limit = self.limit(at);
                format!("{:?}", self.limiter.define_now(limit))
            }
            6 => format!("{:?}", self.limiter.delete_now(&self.keys[at])),
            7..=15 => {
                self.clock.advance(Duration::from_millis(self.random.u64(..1_000)));
                self.limiter.sweep();
                self.limiter.open_leases().to_string()
            }
            16..=65 => self.reserve(),
            _ => self.complete(),
        };
        format!("{answer}\n{:?}", self.limiter.states_now(&Page::default()))
    }

    fn limit(&mut self, at: usize) -> Limit {
        let seconds = self.random.u64(1..=8);
        let kind = match at < ROLLING {
            true => LimitKind::Rolling { window: Window::from_seconds(seconds).unwrap() },
            false => {
                LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(seconds).unwrap() }
            }
        };
        let capacity = Capacity::new(self.random.u64(..20)).unwrap();
        Limit::new(self.keys[at].clone(), kind, capacity)
    }

    /// A lease of the last few.
    fn lease(&mut self) -> usize {
        self.asked.len().saturating_sub(self.random.usize(..8))
    }

    fn reserve(&mut self) -> String {
        let mut lease = self.lease();
        let mut wanted: Vec<usize> = (0..NAMES.len()).collect();
        self.random.shuffle(&mut wanted);
        wanted.truncate(self.random.usize(1..=NAMES.len()));
        match self.asked.get(lease) {
            Some(asked) if self.random.bool() => wanted.clone_from(asked),
            _ if self.random.u8(..4) == 0 => {}
            _ => lease = self.asked.len(),
        }
        let pairs = wanted.iter().map(|at| (self.keys[*at].clone(), 1 + *at as u64));
        let requirements = Requirements::of(pairs).unwrap();
        if lease == self.asked.len() {
            self.asked.push(wanted);
        }
        let id = LeaseId::from_u128(lease as u128 + 1);
        match self.limiter.reserve_now(&ReserveRequest::new(id, requirements)) {
            // The first key without room is remembered only as a hash.
            Ok(Decision::Denied(denial)) if denial.retry_after == AT_ONCE => "denied again".into(),
            answer => format!("{answer:?}"),
        }
    }

    /// Only with actuals of the lease's requirements: of an expired reservation only a hash is left, which a wrong actual may match.
    fn complete(&mut self) -> String {
        let lease = self.lease();
        let asked = self.asked.get(lease).cloned().unwrap_or_default();
        let mut actuals = Vec::new();
        for at in asked.into_iter().filter(|at| *at < ROLLING) {
            if self.random.bool() {
                actuals.push((self.keys[at].clone(), self.random.u64(..4)));
            }
        }
        let id = LeaseId::from_u128(lease as u128 + 1);
        let request = CompleteRequest::new(id, Actuals::of(actuals).unwrap());
        format!("{:?}", self.limiter.complete_now(&request))
    }
}

#[test]
fn a_limiter_answers_the_same_whether_or_not_all_keys_have_one_hash() {
    let mut ordinary = Player::new(|text| LimitKey::new(text).unwrap());
    let mut colliding = Player::new(LimitKey::colliding);
    for step in 0..STEPS {
        assert_eq!(colliding.step(), ordinary.step(), "step {step}");
    }
}
