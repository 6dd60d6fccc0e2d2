//! Counters per key, for a bounded number of keys.

use std::collections::HashMap;
use std::sync::RwLock;

use prometheus::{IntCounter, IntCounterVec};
use ratelimiter::LimitKey;

/// One counter for each of the first `keys_max` keys, and one for all others, so that a caller who invents keys cannot
/// exhaust our memory or that of the system that collects the metrics.
#[derive(Debug)]
pub(super) struct KeyCounters {
    keys_max: usize,
    family: IntCounterVec,
    by_key: RwLock<HashMap<LimitKey, IntCounter>>,
}

impl KeyCounters {
    pub(super) fn new(keys_max: usize, family: IntCounterVec) -> Self {
        Self { keys_max, family, by_key: RwLock::default() }
    }

    pub(super) fn count(&self, key: &LimitKey) {
        let by_key = self.by_key.read().expect("counting does not panic");
        if let Some(counter) = by_key.get(key) {
            counter.inc();
            return;
        }
        let is_full = by_key.len() >= self.keys_max;
        drop(by_key);
        if is_full {
            return self.family.with_label_values(&[""]).inc();
        }
        let mut by_key = self.by_key.write().expect("counting does not panic");
        if by_key.len() >= self.keys_max && !by_key.contains_key(key) {
            return self.family.with_label_values(&[""]).inc();
        }
        let counter = || self.family.with_label_values(&[key.as_str()]);
        by_key.entry(key.clone()).or_insert_with(counter).inc();
    }
}
