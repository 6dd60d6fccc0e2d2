//! Latency histogram with a precision of 0.1 %.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

/// Significant decimal digits of each latency.
const DIGITS: u8 = 3;

/// The latencies of many requests.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new(DIGITS).expect("a histogram keeps 0 to 5 digits"))
    }
}

#[expect(clippy::missing_panics_doc, reason = "a histogram that grows takes every value")]
impl Latencies {
    /// Adds the latency of one request.
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.record(nanos).expect("the histogram grows with its values");
    }

    /// Adds all latencies of `other`.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the histogram grows with its values");
    }

    /// Number of recorded requests.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Zero if nothing was recorded.
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }
}

impl fmt::Display for Latencies {
    /// `p50 35 µs  p95 64 µs  p99 73 µs`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p95, p99] = [50.0, 95.0, 99.0].map(|percent| micros(self.percentile(percent)));
        write!(f, "p50 {p50}  p95 {p95}  p99 {p99}")
    }
}

/// A latency in the unit that suits it.
pub(crate) fn micros(latency: Duration) -> String {
    match latency.as_nanos() {
        nanos if nanos < 10_000 => format!("{:.2} µs", latency.as_secs_f64() * 1e6),
        nanos if nanos < 10_000_000 => format!("{:.0} µs", latency.as_secs_f64() * 1e6),
        _ => format!("{:.1} ms", latency.as_secs_f64() * 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_within_a_thousandth_of_the_exact_value() {
        let (mut latencies, mut more) = (Latencies::default(), Latencies::default());
        for micros in 1..=100 {
            let part = if micros % 2 == 0 { &mut latencies } else { &mut more };
            part.record(Duration::from_micros(micros));
        }
        latencies.add(&more);
        assert_eq!(latencies.count(), 100);
        for percent in [1_u32, 50, 95, 99, 100] {
            let nanos = latencies.percentile(f64::from(percent)).as_nanos();
            let exact = u128::from(percent) * 1_000;
            assert!((exact..=exact * 1_001 / 1_000).contains(&nanos), "{percent} {nanos}");
        }
        assert_eq!(latencies.to_string(), "p50 50 µs  p95 95 µs  p99 99 µs");
        latencies.record(Duration::MAX);
        assert_eq!(Latencies::default().percentile(50.0), Duration::ZERO);
    }
}
