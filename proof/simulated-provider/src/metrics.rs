//! Metrics of calls and of waiting times.

use std::time::Duration;

use tokio::time::Instant;

/// Metrics of the calls to one provider.
#[derive(Debug, Clone)]
pub struct CallMetrics {
    begun: Instant,
    /// Calls that were admitted.
    pub calls: u64,
    /// Calls that were refused with a 429.
    pub refused: u64,
    /// The tokens of each call that ended, with the time since the start.
    used: Vec<(Duration, u64)>,
}

/// How long jobs waited to be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waits {
    /// The number of jobs.
    pub count: usize,
    /// The average.
    pub mean: Duration,
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

impl CallMetrics {
    pub(super) const fn new(begun: Instant) -> Self {
        Self { begun, calls: 0, refused: 0, used: Vec::new() }
    }

    pub(super) fn add(&mut self, at: Instant, tokens: u64) {
        self.used.push((at.duration_since(self.begun), tokens));
    }

    /// All used tokens.
    pub fn tokens(&self) -> u64 {
        self.used.iter().map(|(_, tokens)| tokens).sum()
    }

    /// When the last call ended.
    pub fn lasted(&self) -> Duration {
        self.used.last().map_or(Duration::ZERO, |(at, _)| *at)
    }

    /// When all tokens but the last `left` had been used.
    pub fn all_but(&self, left: u64) -> Duration {
        let wanted = self.tokens().saturating_sub(left);
        let mut used = 0;
        let reached = self.used.iter().find(|(_, tokens)| {
            used += tokens;
            used >= wanted
        });
        reached.map_or(Duration::ZERO, |(at, _)| *at)
    }

    /// The used part of a capacity of `tokens_max` per `window` from `from` to `to`, both since the start.
    ///
    /// A rolling limit that was filled at once is free at once a window later, so calls come in bursts, and the result would
    /// depend on whether the last burst is just within the time. Therefore this is the mean over all intervals within the time
    /// that are a window shorter: a call in the first or the last window belongs only to some of them. 0 if there is no such
    /// interval.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn utilisation(
        &self,
        tokens_max: u64,
        window: Duration,
        from: Duration,
        to: Duration,
    ) -> f64 {
        let windows = |from: Duration, to: Duration| {
            to.saturating_sub(from).as_secs_f64() / window.as_secs_f64()
        };
        let whole = windows(from, to) - 1.0;
        if whole <= 0.0 {
            return 0.0;
        }
        let share = |at: Duration| windows(from, at).min(windows(at, to)).min(1.0);
        let used: f64 = self.used.iter().map(|(at, tokens)| share(*at) * *tokens as f64).sum();
        used / (tokens_max as f64 * whole)
    }
}

impl Waits {
    /// Summarises waiting times.
    pub fn of(mut waits: Vec<Duration>) -> Self {
        waits.sort_unstable();
        let count = waits.len();
        let Some(max) = waits.last().copied() else {
            return Self::default();
        };
        let sum: Duration = waits.iter().sum();
        let at = |hundredths: usize| waits[(count * hundredths / 100).min(count - 1)];
        let mean = sum / u32::try_from(count).unwrap_or(u32::MAX);
        Self { count, mean, p50: at(50), p99: at(99), max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilisation_does_not_depend_on_where_the_last_burst_falls() {
        let begun = Instant::now();
        let mut metrics = CallMetrics::new(begun);
        let seconds = Duration::from_secs;
        for (at, tokens) in [(10, 50), (70, 40), (100, 30), (120, 99)] {
            metrics.add(begun + seconds(at), tokens);
        }
        let used = metrics.utilisation(100, seconds(60), seconds(0), seconds(120));
        assert!(
            (used - (50.0 / 6.0 + 40.0 * 50.0 / 60.0 + 30.0 / 3.0) / 100.0).abs() < 1e-9,
            "{used}"
        );
        assert_eq!((metrics.tokens(), metrics.lasted()), (219, seconds(120)));
        assert_eq!((metrics.all_but(99), metrics.all_but(100)), (seconds(100), seconds(100)));
        assert_eq!((metrics.all_but(0), metrics.all_but(219)), (seconds(120), seconds(10)));
    }

    #[test]
    fn waits_are_summarised() {
        let waits = Waits::of((1..=200).map(Duration::from_secs).collect());
        let seconds = [waits.p50, waits.p99, waits.max].map(|wait| wait.as_secs());
        assert_eq!(seconds, [101, 199, 200]);
        assert_eq!(waits.mean, Duration::from_millis(100_500));
        assert_eq!(Waits::of(vec![]), Waits::default());
    }
}
