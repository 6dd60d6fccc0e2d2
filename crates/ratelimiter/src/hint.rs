//! Retry hints of denials.

use std::time::Duration;

use crate::limit::LimitKind;

/// Constants from which retry hints are computed.
#[derive(Debug, Clone, PartialEq)]
pub struct HintPolicy {
    /// Backoff of concurrency limits.
    pub concurrency: Backoff,
    /// Backoff of rolling limits. A tenth of the window replaces the base if it is longer.
    pub rolling: Backoff,
    /// The fixed hint while a limit is paused or decreasing.
    pub decreasing: Duration,
}

/// A delay that grows with each consecutive denial.
#[derive(Debug, Clone, PartialEq)]
pub struct Backoff {
    /// The delay after the first denial.
    pub base: Duration,
    /// Multiplies the delay at each further denial; at least 1.
    pub factor: f64,
    /// The longest delay, before jitter.
    pub max: Duration,
    /// Upper bound of the random delay that is added, so that callers do not all retry at once.
    pub jitter: Duration,
}

impl Default for HintPolicy {
    fn default() -> Self {
        Self {
            concurrency: Backoff {
                base: Duration::from_millis(50),
                factor: 2.0,
                max: Duration::from_millis(2_000),
                jitter: Duration::from_millis(25),
            },
            rolling: Backoff {
                base: Duration::from_millis(100),
                factor: 1.5,
                max: Duration::from_millis(5_000),
                jitter: Duration::from_millis(50),
            },
            decreasing: Duration::from_millis(10_000),
        }
    }
}

impl HintPolicy {
    /// The delay after the `streak`th consecutive denial on a limit of this kind. `random` is in 0..1 and scales the
    /// jitter.
    pub fn delay(&self, kind: LimitKind, streak: u32, random: f64) -> Duration {
        match kind {
            LimitKind::Rolling { window } => {
                let tenth = Duration::from_secs(window.seconds().into()) / 10;
                self.rolling.delay(self.rolling.base.max(tenth), streak, random)
            }
            LimitKind::Concurrency { timeout } => {
                let delay = self.concurrency.delay(self.concurrency.base, streak, random);
                delay.min(Duration::from_secs(timeout.seconds().into()))
            }
            // A tenth of every period is longer than the longest delay.
            LimitKind::Calendar { .. } => self.rolling.delay(self.rolling.max, streak, random),
        }
    }
}

impl Backoff {
    fn delay(&self, base: Duration, streak: u32, random: f64) -> Duration {
        let exponent = i32::try_from(streak.saturating_sub(1)).unwrap_or(i32::MAX);
        let grown = base.as_secs_f64() * self.factor.powi(exponent);
        // `min` also bounds an infinite delay and replaces NaN.
        let delay = grown.min(self.max.as_secs_f64());
        Duration::from_secs_f64(delay + self.jitter.as_secs_f64() * random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{HoldTimeout, Window};

    fn rolling(seconds: u64) -> LimitKind {
        LimitKind::Rolling { window: Window::from_seconds(seconds).unwrap() }
    }

    fn concurrency(seconds: u64) -> LimitKind {
        LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(seconds).unwrap() }
    }

    fn delays_ms(kind: LimitKind, random: f64) -> Vec<u128> {
        let policy = HintPolicy::default();
        (1..=8).map(|streak| policy.delay(kind, streak, random).as_millis()).collect()
    }

    /// HINT-03
    #[test]
    fn hint_03_a_concurrency_delay_doubles_from_50_ms_up_to_2_s() {
        assert_eq!(delays_ms(concurrency(300), 0.0), [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(delays_ms(concurrency(300), 1.0)[0], 75, "up to 25 ms of jitter");
    }

    /// HINT-03
    #[test]
    fn hint_03_a_concurrency_delay_is_never_beyond_the_timeout() {
        assert_eq!(delays_ms(concurrency(1), 1.0), [75, 125, 225, 425, 825, 1000, 1000, 1000]);
    }

    /// HINT-03
    #[test]
    fn hint_03_a_rolling_delay_grows_by_half_from_a_tenth_of_the_window_up_to_5_s() {
        assert_eq!(delays_ms(rolling(1), 0.0), [100, 150, 225, 337, 506, 759, 1139, 1708]);
        assert_eq!(delays_ms(rolling(10), 0.0)[..4], [1000, 1500, 2250, 3375]);
        assert_eq!(delays_ms(rolling(86_400), 0.0)[0], 5000);
        assert_eq!(delays_ms(rolling(86_400), 1.0)[0], 5050, "up to 50 ms of jitter");
    }

    #[test]
    fn an_endless_streak_stays_at_the_longest_delay() {
        let policy = HintPolicy::default();
        assert_eq!(policy.delay(rolling(60), u32::MAX, 0.0), Duration::from_secs(5));
    }
}
