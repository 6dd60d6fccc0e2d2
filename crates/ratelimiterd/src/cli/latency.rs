//! Counting latencies in little memory, to within a sixteenth.

use std::time::Duration;

/// How many parts each doubling is divided into.
const PARTS: u64 = 16;
/// As many parts for each of the 64 bits.
const BUCKETS: usize = 64 * 16;

/// Latencies in buckets that grow with what they hold.
#[derive(Debug, Clone)]
pub(super) struct Latencies {
    counts: Vec<u64>,
    count: u64,
}

impl Latencies {
    pub(super) fn new() -> Self {
        Self { counts: vec![0; BUCKETS], count: 0 }
    }

    pub(super) fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket_of(nanos)] += 1;
        self.count += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
    }

    /// The latency that this part of all, in percent, did not exceed.
    pub(super) fn percentile(&self, percent: u64) -> Duration {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(upper_bound(bucket));
            }
        }
        Duration::ZERO
    }
}

/// Values below [`PARTS`] have a bucket each; above, the highest bits choose.
fn bucket_of(nanos: u64) -> usize {
    if nanos < PARTS {
        return usize::try_from(nanos).expect("below 16");
    }
    let doubling = u64::from(nanos.ilog2()) - u64::from(PARTS.ilog2());
    let part = (nanos >> doubling) - PARTS;
    usize::try_from((doubling + 1) * PARTS + part).expect("below 1024")
}

/// The largest value of a bucket.
fn upper_bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PARTS {
        return bucket;
    }
    let (doubling, part) = (bucket / PARTS - 1, bucket % PARTS);
    ((PARTS + part) << doubling) + ((1 << doubling) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_found_again_to_within_a_sixteenth() {
        for nanos in [0, 1, 15, 16, 17, 31, 32, 1_000, 123_456, 5_000_000_000, u64::MAX / 2] {
            let bound = upper_bound(bucket_of(nanos));
            assert!(bound >= nanos && bound - nanos <= nanos / 16, "{nanos} {bound}");
        }
        assert!(bucket_of(u64::MAX) < BUCKETS);
    }

    #[test]
    fn a_percentile_is_what_so_many_did_not_exceed() {
        let mut latencies = Latencies::new();
        for nanos in 1..=100 {
            latencies.record(Duration::from_micros(nanos));
        }
        for percent in [1, 50, 95, 99, 100] {
            let micros = latencies.percentile(percent).as_nanos() / 1_000;
            assert!(
                (u128::from(percent)..=u128::from(percent) * 17 / 16).contains(&micros),
                "{percent} {micros}"
            );
        }
        assert_eq!(Latencies::new().percentile(50), Duration::ZERO);
    }
}
