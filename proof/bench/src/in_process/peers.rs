//! The crates that others would take, each doing four checks for a call.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::SystemTime;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use limitador::limit::{Context, Limit, Namespace};
use nonzero_ext::nonzero;
use throttlecrab::{AdaptiveStore, RateLimiter as ThrottleCrabLimiter};

use crate::workload::{LIMITS_PER_CALL, keys, models};

/// More than a run can use.
const ROOM: i64 = 1_000_000_000;
const DAY_SECONDS: u64 = 86_400;
/// As with ours, the third of a call's limits is the one without room.
const FULL: usize = 2;

/// A limiter that decides about calls to models.
pub(crate) trait Peer: Sync {
    /// A call to the model that is `n`th in everybody's order; whether it is allowed.
    fn ask(&self, n: usize) -> bool;
}

/// Whether there is room for the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Plenty,
    /// The third limit of every model is used up.
    None,
}

/// `governor`: four checks of a keyed limiter.
pub(crate) struct Governor {
    roomy: DefaultKeyedRateLimiter<String>,
    full: DefaultKeyedRateLimiter<String>,
    keys: Vec<[String; LIMITS_PER_CALL]>,
    room: Room,
}

/// `throttlecrab`: four checks. It needs `&mut`, so threads take turns at a lock.
pub(crate) struct ThrottleCrab {
    limiter: Mutex<ThrottleCrabLimiter<AdaptiveStore>>,
    keys: Vec<[String; LIMITS_PER_CALL]>,
    room: Room,
}

/// `limitador` with its memory storage: one check of a namespace with four limits, all of them or none, as with ours.
pub(crate) struct Limitador {
    limiter: limitador::RateLimiter,
    context: Context<'static>,
    namespaces: Vec<Namespace>,
}

fn texts(model_count: usize) -> Vec<[String; LIMITS_PER_CALL]> {
    models(model_count).into_iter().map(|m| keys(m).map(|key| key.to_string())).collect()
}

impl Governor {
    pub(crate) fn new(model_count: usize, room: Room) -> Self {
        let roomy = RateLimiter::keyed(Quota::per_second(nonzero!(u32::MAX)));
        let full = RateLimiter::keyed(Quota::per_hour(nonzero!(1_u32)));
        let peer = Self { roomy, full, keys: texts(model_count), room };
        // The first time a key is seen is not what is measured, and takes what a full limit had.
        for n in 0..model_count {
            black_box(peer.ask(n));
        }
        peer
    }
}

/// A `governor` that has seen the keys of so many models, and nothing else.
pub(crate) fn governor_of_keys(model_count: usize) -> DefaultKeyedRateLimiter<String> {
    let limiter = RateLimiter::keyed(Quota::per_second(nonzero!(u32::MAX)));
    for key in models(model_count).into_iter().flat_map(keys) {
        black_box(limiter.check_key(&key.to_string())).expect("there is room");
    }
    limiter
}

impl Peer for Governor {
    fn ask(&self, n: usize) -> bool {
        self.keys[n % self.keys.len()].iter().enumerate().all(|(at, key)| {
            let is_full = at == FULL && self.room == Room::None;
            let limiter = if is_full { &self.full } else { &self.roomy };
            limiter.check_key(key).is_ok()
        })
    }
}

impl ThrottleCrab {
    pub(crate) fn new(model_count: usize, room: Room) -> Self {
        let store = AdaptiveStore::with_capacity(model_count * LIMITS_PER_CALL);
        let limiter = Mutex::new(ThrottleCrabLimiter::new(store));
        let peer = Self { limiter, keys: texts(model_count), room };
        // A full limit has a burst of two; with a burst of one, this crate forgets a key at once.
        for n in 0..3 * model_count {
            black_box(peer.ask(n));
        }
        peer
    }
}

impl Peer for ThrottleCrab {
    #[expect(clippy::disallowed_methods, reason = "this crate wants to be told the machine's time")]
    fn ask(&self, n: usize) -> bool {
        let mut limiter = self.limiter.lock().expect("nobody panics with it");
        let now = SystemTime::now();
        self.keys[n % self.keys.len()].iter().enumerate().all(|(at, key)| {
            let is_full = at == FULL && self.room == Room::None;
            let (burst, per_hour) = if is_full { (2, 1) } else { (ROOM, ROOM) };
            let answer = limiter.rate_limit(key, burst, per_hour, 3_600, 1, now);
            answer.expect("the numbers are in range").0
        })
    }
}

impl Limitador {
    pub(crate) fn new(model_count: usize, room: Room) -> Self {
        let limiter = limitador::RateLimiter::new(1);
        let mut namespaces = Vec::with_capacity(model_count);
        for model in models(model_count) {
            let name = format!("gpt-{model}");
            for (at, key) in keys(model).into_iter().enumerate() {
                let is_full = at == FULL && room == Room::None;
                let max = if is_full { 0 } else { u64::MAX >> 1 };
                // The four limits of a model differ in their windows, as they must to be four for this crate.
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
    fn ask(&self, n: usize) -> bool {
        let namespace = &self.namespaces[n % self.namespaces.len()];
        let answer = self.limiter.check_rate_limited_and_update(namespace, &self.context, 1);
        !answer.expect("memory answers").limited
    }
}
