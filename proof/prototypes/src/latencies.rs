//! How long many requests took.

use std::fmt;
use std::time::Duration;

/// The times of many requests, sorted.
#[derive(Debug, Clone)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// Sorts the times.
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// So many hundredths of the requests took no longer; zero without requests.
    pub fn percentile(&self, hundredths: usize) -> Duration {
        let Self(times) = self;
        let at = (times.len() * hundredths / 100).min(times.len().saturating_sub(1));
        times.get(at).copied().unwrap_or_default()
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |hundredths| self.percentile(hundredths).as_secs_f64() * 1_000.0;
        write!(f, "p50 {:.2} ms, p95 {:.2} ms, p99 {:.2} ms", ms(50), ms(95), ms(99))
    }
}
