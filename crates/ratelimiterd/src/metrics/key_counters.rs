//! Counters per key, for a bounded number of keys.

use std::collections::HashMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ratelimiter::LimitKey;

/// One counter for each of the first `keys_max` keys, and one for all others, so that a caller who invents keys cannot
/// exhaust our memory or that of the system that collects the metrics.
#[derive(Debug)]
pub(super) struct KeyCounters {
    keys_max: usize,
    by_key: RwLock<HashMap<LimitKey, AtomicU64>>,
    others: AtomicU64,
}

impl KeyCounters {
    pub(super) fn new(keys_max: usize) -> Self {
        Self { keys_max, by_key: RwLock::default(), others: AtomicU64::new(0) }
    }

    pub(super) fn count(&self, key: &LimitKey) {
        let by_key = self.by_key.read().expect("counting does not panic");
        if let Some(counter) = by_key.get(key) {
            counter.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let is_full = by_key.len() >= self.keys_max;
        drop(by_key);
        if is_full {
            self.count_other();
            return;
        }
        let mut by_key = self.by_key.write().expect("counting does not panic");
        if by_key.len() >= self.keys_max && !by_key.contains_key(key) {
            self.count_other();
            return;
        }
        by_key.entry(key.clone()).or_default().fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a key that has no counter of its own.
    pub(super) fn count_other(&self) {
        self.others.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts sorted by key; last the count of all other keys, if it is not 0.
    pub(super) fn counts(&self) -> Vec<(Option<LimitKey>, u64)> {
        let by_key = self.by_key.read().expect("counting does not panic");
        let count = |(key, counter): (&LimitKey, &AtomicU64)| {
            (Some(key.clone()), counter.load(Ordering::Relaxed))
        };
        let mut counts: Vec<_> = by_key.iter().map(count).collect();
        drop(by_key);
        counts.sort();
        let others = self.others.load(Ordering::Relaxed);
        if others > 0 {
            counts.push((None, others));
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_beyond_the_bound_are_counted_together() {
        let counters = KeyCounters::new(2);
        for key in ["b", "a", "b", "c", "d", "a"] {
            counters.count(&LimitKey::new(key).unwrap());
        }
        let shown: Vec<_> = counters
            .counts()
            .into_iter()
            .map(|(key, count)| {
                format!("{}={count}", key.map_or(String::new(), |key| key.to_string()))
            })
            .collect();
        assert_eq!(shown, ["a=2", "b=2", "=2"]);
    }
}
