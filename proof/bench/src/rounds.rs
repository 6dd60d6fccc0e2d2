//! Comparisons in rounds: every contestant is measured once per round, so that other load on the machine affects all alike.

use ratelimiter::clock::{Clock, MonotonicClock};

use crate::progress::Progress;
use crate::summary::Summary;
use crate::table::Table;

/// Contestants, each with its measurement.
pub(crate) struct Comparison<'a, T = f64> {
    contestants: Vec<(String, Measure<'a, T>)>,
}

type Measure<'a, T> = Box<dyn FnMut() -> T + 'a>;

/// The measurements of each contestant, round by round.
#[derive(Debug)]
pub(crate) struct Rounds<T = f64> {
    rows: Vec<(String, Vec<T>)>,
}

impl<'a, T> Comparison<'a, T> {
    pub(crate) fn new() -> Self {
        Self { contestants: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: impl Into<String>, measure: impl FnMut() -> T + 'a) {
        self.contestants.push((name.into(), Box::new(measure)));
    }

    /// One more round comes first to warm up; it does not count.
    pub(crate) fn run(mut self, rounds: usize, progress: &Progress, what: &str) -> Rounds<T> {
        let mut rows: Vec<_> =
            self.contestants.iter().map(|(name, _)| (name.clone(), Vec::new())).collect();
        for round in 0..=rounds {
            for ((name, measure), (_, measured)) in self.contestants.iter_mut().zip(&mut rows) {
                progress.step(format_args!("{what}: round {round} of {rounds}, {name}"));
                let measurement = measure();
                if round > 0 {
                    measured.push(measurement);
                }
            }
        }
        Rounds { rows }
    }
}

impl<T> Rounds<T> {
    /// One value of a contestant, round by round.
    pub(crate) fn values(&self, name: &str, value: impl FnMut(&T) -> f64) -> Vec<f64> {
        let row = self.rows.iter().find(|(other, _)| other == name);
        let (_, measured) = row.expect("a contestant of this comparison");
        measured.iter().map(value).collect()
    }

    pub(crate) fn summary(&self, name: &str, value: impl FnMut(&T) -> f64) -> Summary {
        Summary::of(&self.values(name, value))
    }

    /// One value of a contestant divided by that of another.
    pub(crate) fn ratio(
        &self,
        name: &str,
        other: &str,
        mut value: impl FnMut(&T) -> f64,
    ) -> Summary {
        Summary::ratio(&self.values(name, &mut value), &self.values(other, &mut value))
    }

    /// One value of a contestant less that of another.
    pub(crate) fn added(
        &self,
        name: &str,
        other: &str,
        mut value: impl FnMut(&T) -> f64,
    ) -> Summary {
        let (values, others) = (self.values(name, &mut value), self.values(other, &mut value));
        let added: Vec<_> = values.iter().zip(others).map(|(value, other)| value - other).collect();
        Summary::of(&added)
    }

    /// The contestants in their order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|(name, _)| name.as_str())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.names().any(|other| other == name)
    }
}

impl Rounds {
    /// Contestants with their values, and the ratio to one of them.
    pub(crate) fn table(&self, caption: &str, unit: &str, other: &str) -> Table {
        let mut table = Table::new(caption, ["what", unit, &format!("× {other}")]);
        for name in self.names() {
            let (value, ratio) = (self.summary(name, itself), self.ratio(name, other, itself));
            table.row([name.to_owned(), value.to_string(), ratio.to_string()]);
        }
        table
    }
}

/// The value of a measurement that is one number.
pub(crate) fn itself(value: &f64) -> f64 {
    *value
}

/// Nanoseconds per operation; `operation` gets its number.
pub(crate) fn nanos_each(count: usize, mut operation: impl FnMut(usize)) -> f64 {
    nanos_of_all(count, || (0..count).for_each(&mut operation))
}

/// Nanoseconds per operation, for `work` that does `count` operations.
pub(crate) fn nanos_of_all(count: usize, work: impl FnOnce()) -> f64 {
    let clock = MonotonicClock::new();
    let started_at = clock.now();
    work();
    clock.now().since(started_at).as_secs_f64() * 1e9 / float(count)
}

#[expect(clippy::cast_precision_loss, reason = "printed with three digits")]
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contestants_alternate_and_the_first_round_does_not_count() {
        let calls = std::cell::RefCell::new(Vec::new());
        let mut comparison = Comparison::new();
        for (name, factor) in [("a", 1.0), ("b", 10.0)] {
            let calls = &calls;
            comparison.add(name, move || {
                calls.borrow_mut().push(name);
                factor * float(calls.borrow().len())
            });
        }
        let rounds = comparison.run(2, &Progress::new(), "test");
        assert_eq!(calls.into_inner(), ["a", "b", "a", "b", "a", "b"]);
        assert_eq!(rounds.values("a", itself), [3.0, 5.0]);
        assert_eq!(rounds.values("b", itself), [40.0, 60.0]);
        let ratio = rounds.ratio("b", "a", itself);
        assert_eq!(ratio, Summary::of(&[40.0 / 3.0, 60.0 / 5.0]));
        assert_eq!(rounds.added("b", "a", itself), Summary::of(&[37.0, 55.0]));
        assert_eq!(rounds.names().collect::<Vec<_>>(), ["a", "b"]);
        assert!(rounds.has("a") && !rounds.has("c"));
    }
}
