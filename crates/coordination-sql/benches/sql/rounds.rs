//! Contestants in turns, so that other load on the machine affects all of them.

use std::fmt;
use std::time::{Duration, Instant};

/// The durations of one contestant's rounds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times(Vec<Duration>);

/// The median of some numbers, with the tenth and the ninetieth percentile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    low: f64,
    high: f64,
}

impl Times {
    pub(crate) fn push(&mut self, took: Duration) {
        self.0.push(took);
    }

    /// Microseconds for each of `count` things done in a round.
    pub(crate) fn micros_each(&self, count: u32) -> Spread {
        let each = |took: &Duration| took.as_secs_f64() * 1e6 / f64::from(count);
        Spread::of(self.0.iter().map(each).collect())
    }

    /// The ratio to the other's durations, round by round: both turns of a round see the same load.
    pub(crate) fn ratio_to(&self, other: &Times) -> Spread {
        assert_eq!(self.0.len(), other.0.len(), "both had a turn in every round");
        let ratio =
            |(took, other): (&Duration, &Duration)| took.as_secs_f64() / other.as_secs_f64();
        Spread::of(self.0.iter().zip(&other.0).map(ratio).collect())
    }
}

impl Spread {
    fn of(mut numbers: Vec<f64>) -> Spread {
        assert!(!numbers.is_empty(), "something was measured");
        numbers.sort_by(f64::total_cmp);
        let at = |tenths: usize| numbers[(numbers.len() - 1) * tenths / 10];
        Spread { median: at(5), low: at(1), high: at(9) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.median < 10.0 { 2 } else { 0 };
        let Spread { median, low, high } = self;
        write!(f, "{median:.digits$} ({low:.digits$} to {high:.digits$})")
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures the machine's time")]
pub(crate) fn stopwatch() -> Instant {
    Instant::now()
}
