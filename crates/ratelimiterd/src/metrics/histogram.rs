//! Histogram of durations with fixed buckets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets in microseconds, from a request served from memory to an LLM call that reasons for ten minutes.
const BOUNDS_MICROS: [u64; 20] = [
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    1_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
    600_000_000,
];

/// Lock-free: recording takes two atomic additions.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// Durations in each bucket, not cumulative; the last bucket is for those above all bounds.
    counts: [AtomicU64; BOUNDS_MICROS.len() + 1],
    sum_nanos: AtomicU64,
}

/// Cumulative counts, as Prometheus expects them.
pub(crate) struct HistogramSnapshot {
    /// The upper bound in seconds, as text, and the number of durations at or below it.
    pub(crate) buckets: Vec<(String, u64)>,
    pub(crate) sum_seconds: f64,
    pub(crate) count: u64,
}

impl Histogram {
    pub(crate) fn record(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.partition_point(|bound| bound * 1_000 < nanos);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> HistogramSnapshot {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(self.counts.len());
        for (at, in_bucket) in self.counts.iter().enumerate() {
            count += in_bucket.load(Ordering::Relaxed);
            let bound = match BOUNDS_MICROS.get(at) {
                Some(&micros) => Duration::from_micros(micros).as_secs_f64().to_string(),
                None => "+Inf".to_owned(),
            };
            buckets.push((bound, count));
        }
        let sum_seconds =
            Duration::from_nanos(self.sum_nanos.load(Ordering::Relaxed)).as_secs_f64();
        HistogramSnapshot { buckets, sum_seconds, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_its_bucket_and_all_above() {
        let histogram = Histogram::default();
        for micros in [50, 51, 5_000_000, 600_000_000, 600_000_001] {
            histogram.record(Duration::from_micros(micros));
        }
        let HistogramSnapshot { buckets, count, sum_seconds } = histogram.snapshot();
        let of = |bound: &str| buckets.iter().find(|(b, _)| b == bound).map(|(_, count)| *count);
        assert_eq!(of("0.00005"), Some(1));
        assert_eq!(of("0.0001"), Some(2));
        assert_eq!(of("1"), Some(2));
        assert_eq!(of("5"), Some(3));
        assert_eq!(of("300"), Some(3));
        assert_eq!(of("600"), Some(4));
        assert_eq!(of("+Inf"), Some(5));
        assert_eq!(count, 5);
        assert!((1_205.0..1_205.001).contains(&sum_seconds), "{sum_seconds}");
    }
}
