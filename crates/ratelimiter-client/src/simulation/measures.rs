//! How calls fared.

use std::time::Duration;

use tokio::time::Instant;

/// How the calls to one provider fared.
#[derive(Debug, Clone)]
pub struct Measures {
    begun: Instant,
    /// Calls that were admitted.
    pub calls: u64,
    /// Calls that were refused with a 429.
    pub refused: u64,
    /// The tokens of each call that ended, with the time since the beginning.
    used: Vec<(Duration, u64)>,
}

/// How long jobs waited to be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waits {
    /// Of how many jobs.
    pub count: usize,
    /// On average.
    pub mean: Duration,
    /// Half of them waited no longer.
    pub p50: Duration,
    /// All but one in a hundred waited no longer.
    pub p99: Duration,
    /// Nobody waited longer.
    pub max: Duration,
}

impl Measures {
    pub(super) const fn new(begun: Instant) -> Self {
        Self { begun, calls: 0, refused: 0, used: Vec::new() }
    }

    pub(super) fn add(&mut self, at: Instant, tokens: u64) {
        self.used.push((at.duration_since(self.begun), tokens));
    }

    /// All tokens that were used.
    pub fn tokens(&self) -> u64 {
        self.used.iter().map(|(_, tokens)| tokens).sum()
    }

    /// When the last call ended.
    pub fn lasted(&self) -> Duration {
        self.used.last().map_or(Duration::ZERO, |(at, _)| *at)
    }

    /// Which part of a capacity of `tokens_max` per `window` was used from `from` to `to`, both counted from the beginning.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn utilisation(
        &self,
        tokens_max: u64,
        window: Duration,
        from: Duration,
        to: Duration,
    ) -> f64 {
        let within = |at: &Duration| (from..to).contains(at);
        let used: u64 = self.used.iter().filter(|(at, _)| within(at)).map(|(_, used)| used).sum();
        let windows = to.saturating_sub(from).as_secs_f64() / window.as_secs_f64();
        used as f64 / (tokens_max as f64 * windows)
    }
}

impl Waits {
    /// Sums up waiting times.
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
    fn utilisation_counts_what_ended_within_the_time() {
        let begun = Instant::now();
        let mut measures = Measures::new(begun);
        let seconds = Duration::from_secs;
        for (at, tokens) in [(10, 50), (70, 40), (100, 30), (120, 99)] {
            measures.add(begun + seconds(at), tokens);
        }
        let used = measures.utilisation(100, seconds(60), seconds(60), seconds(120));
        assert!((used - 0.7).abs() < 1e-9, "{used}");
        assert_eq!((measures.tokens(), measures.lasted()), (219, seconds(120)));
    }

    #[test]
    fn waits_are_summed_up() {
        let waits = Waits::of((1..=200).map(Duration::from_secs).collect());
        let seconds = [waits.p50, waits.p99, waits.max].map(|wait| wait.as_secs());
        assert_eq!(seconds, [101, 199, 200]);
        assert_eq!(waits.mean, Duration::from_millis(100_500));
        assert_eq!(Waits::of(vec![]), Waits::default());
    }
}
