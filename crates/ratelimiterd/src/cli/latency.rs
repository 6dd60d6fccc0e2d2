//! Latency histogram with a precision of 1 %.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Significant decimal digits of each latency.
const DIGITS: u8 = 2;

#[derive(Debug, Clone)]
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(super) fn new() -> Self {
        Self(Histogram::new(DIGITS).expect("a histogram keeps 0 to 5 digits"))
    }

    pub(super) fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.record(nanos).expect("the histogram grows with its values");
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the histogram grows with its values");
    }

    /// Zero if nothing was recorded.
    pub(super) fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_within_one_percent_of_the_exact_value() {
        let (mut latencies, mut more) = (Latencies::new(), Latencies::new());
        for micros in 1..=100 {
            let part = if micros % 2 == 0 { &mut latencies } else { &mut more };
            part.record(Duration::from_micros(micros));
        }
        latencies.add(&more);
        for percent in [1_u32, 50, 95, 99, 100] {
            let nanos = latencies.percentile(f64::from(percent)).as_nanos();
            let exact = u128::from(percent) * 1_000;
            assert!((exact..=exact * 101 / 100).contains(&nanos), "{percent} {nanos}");
        }
        latencies.record(Duration::MAX);
        assert_eq!(Latencies::new().percentile(50.0), Duration::ZERO);
    }
}
