//! Other rate limiters; each checks four limits per call.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::SystemTime;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use limitador::limit::{Context, Limit, Namespace};
use nonzero_ext::nonzero;
use throttlecrab::{AdaptiveStore, RateLimiter as ThrottleCrabLimiter};

use crate::workload::{LIMITS_PER_CALL, keys, models};

/// More than a run can use.
const LARGE: i64 = 1_000_000_000;
const DAY_SECONDS: u64 = 86_400;
/// As with ours, the third limit of a call is the one that denies.
const FULL: usize = 2;

pub(crate) const GOVERNOR: &str = "governor, 4 keyed checks";
pub(crate) const THROTTLECRAB: &str = "throttlecrab, 4 checks";
pub(crate) const LIMITADOR: &str = "limitador in memory, 4 counters";

/// Another rate limiter.
pub(crate) trait Peer: Sync {
    /// Checks a call to the `n`th model in the order of [`models`].
    fn allows(&self, n: usize) -> bool;
}

/// The answer to every call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    /// By the third limit of every model.
    Denied,
}

/// All of them, with the same limits.
pub(crate) struct Peers {
    governor: Governor,
    throttlecrab: ThrottleCrab,
    limitador: Limitador,
}

impl Peers {
    pub(crate) fn new(model_count: usize, verdict: Verdict) -> Self {
        Self {
            governor: Governor::new(model_count, verdict),
            throttlecrab: ThrottleCrab::new(model_count, verdict),
            limitador: Limitador::new(model_count, verdict),
        }
    }

    pub(crate) fn named(&self) -> [(&'static str, &dyn Peer); 3] {
        [
            (GOVERNOR, &self.governor),
            (THROTTLECRAB, &self.throttlecrab),
            (LIMITADOR, &self.limitador),
        ]
    }
}

/// `governor`: four checks of a keyed limiter.
pub(crate) struct Governor {
    large: DefaultKeyedRateLimiter<String>,
    full: DefaultKeyedRateLimiter<String>,
    keys: Vec<[String; LIMITS_PER_CALL]>,
    verdict: Verdict,
}

/// `throttlecrab`: four checks. It needs `&mut`, so threads share a lock.
struct ThrottleCrab {
    limiter: Mutex<ThrottleCrabLimiter<AdaptiveStore>>,
    keys: Vec<[String; LIMITS_PER_CALL]>,
    verdict: Verdict,
}

/// `limitador` with its memory storage: one check of a namespace with four limits, all of them or none, as with ours.
struct Limitador {
    limiter: limitador::RateLimiter,
    context: Context<'static>,
    namespaces: Vec<Namespace>,
}

fn texts(model_count: usize) -> Vec<[String; LIMITS_PER_CALL]> {
    models(model_count).into_iter().map(|m| keys(m).map(|key| key.to_string())).collect()
}

impl Governor {
    pub(crate) fn new(model_count: usize, verdict: Verdict) -> Self {
        let large = RateLimiter::keyed(Quota::per_second(nonzero!(u32::MAX)));
        let full = RateLimiter::keyed(Quota::per_hour(nonzero!(1_u32)));
        let peer = Self { large, full, keys: texts(model_count), verdict };
        // Creates the keys, which is not measured, and fills the full limit.
        for n in 0..model_count {
            black_box(peer.allows(n));
        }
        peer
    }
}

/// A `governor` with the keys of the models, and nothing else.
pub(crate) fn governor_of_keys(model_count: usize) -> DefaultKeyedRateLimiter<String> {
    let limiter = RateLimiter::keyed(Quota::per_second(nonzero!(u32::MAX)));
    for key in models(model_count).into_iter().flat_map(keys) {
        black_box(limiter.check_key(&key.to_string())).expect("it never denies");
    }
    limiter
}

impl Peer for Governor {
    fn allows(&self, n: usize) -> bool {
        self.keys[n % self.keys.len()].iter().enumerate().all(|(at, key)| {
            let is_full = at == FULL && self.verdict == Verdict::Denied;
            let limiter = if is_full { &self.full } else { &self.large };
            limiter.check_key(key).is_ok()
        })
    }
}

impl ThrottleCrab {
    fn new(model_count: usize, verdict: Verdict) -> Self {
        let store = AdaptiveStore::with_capacity(model_count * LIMITS_PER_CALL);
        let limiter = Mutex::new(ThrottleCrabLimiter::new(store));
        let peer = Self { limiter, keys: texts(model_count), verdict };
        // The full limit has a burst of two; with a burst of one, this crate forgets a key at once.
        for n in 0..3 * model_count {
            black_box(peer.allows(n));
        }
        peer
    }
}

impl Peer for ThrottleCrab {
    #[expect(clippy::disallowed_methods, reason = "this crate takes the system time")]
    fn allows(&self, n: usize) -> bool {
        let mut limiter = self.limiter.lock().expect("not poisoned");
        let now = SystemTime::now();
        self.keys[n % self.keys.len()].iter().enumerate().all(|(at, key)| {
            let is_full = at == FULL && self.verdict == Verdict::Denied;
            let (burst, per_hour) = if is_full { (2, 1) } else { (LARGE, LARGE) };
            let answer = limiter.rate_limit(key, burst, per_hour, 3_600, 1, now);
            answer.expect("the numbers are in range").0
        })
    }
}

impl Limitador {
    fn new(model_count: usize, verdict: Verdict) -> Self {
        let limiter = limitador::RateLimiter::new(1);
        let mut namespaces = Vec::with_capacity(model_count);
        for model in models(model_count) {
            let name = format!("gpt-{model}");
            for (at, key) in keys(model).into_iter().enumerate() {
                let is_full = at == FULL && verdict == Verdict::Denied;
                let max = if is_full { 0 } else { u64::MAX >> 1 };
                // This crate identifies limits by their windows, so those of a model differ.
                let seconds = DAY_SECONDS + at as u64;
                let (id, none, all) = (key.to_string(), std::iter::empty(), std::iter::empty());
                let limit = Limit::with_id(id, name.as_str(), max, seconds, none, all);
                limiter.add_limit(limit);
            }
            namespaces.push(Namespace::from(name.as_str()));
        }
        Self { limiter, context: Context::default(), namespaces }
    }
}

impl Peer for Limitador {
    fn allows(&self, n: usize) -> bool {
        let namespace = &self.namespaces[n % self.namespaces.len()];
        let answer = self.limiter.check_rate_limited_and_update(namespace, &self.context, 1);
        !answer.expect("memory answers").limited
    }
}
