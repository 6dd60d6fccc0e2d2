//! Contestants that take turns.
//!
//! A figure stands beside another one of the same run: in every round each contestant has one turn, so that whatever the
//! machine does meanwhile happens to all of them.

use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};

use crate::progress::Progress;
use crate::spread::Spread;

/// Contestants, each with a way to do one turn.
pub(crate) struct Contest<'a, T = f64> {
    contestants: Vec<(String, Turn<'a, T>)>,
}

type Turn<'a, T> = Box<dyn FnMut() -> T + 'a>;

/// What the turns of each contestant measured, round by round.
#[derive(Debug)]
pub(crate) struct Rounds<T = f64> {
    rows: Vec<(String, Vec<T>)>,
}

impl<'a, T> Contest<'a, T> {
    pub(crate) fn new() -> Self {
        Self { contestants: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: impl Into<String>, turn: impl FnMut() -> T + 'a) {
        self.contestants.push((name.into(), Box::new(turn)));
    }

    /// Lets the contestants take turns. The first turn of each warms up and does not count.
    pub(crate) fn run(mut self, rounds: usize, progress: &Progress, what: &str) -> Rounds<T> {
        let mut rows: Vec<_> =
            self.contestants.iter().map(|(name, _)| (name.clone(), Vec::new())).collect();
        for round in 0..=rounds {
            for ((name, turn), (_, measured)) in self.contestants.iter_mut().zip(&mut rows) {
                progress.step(format_args!("{what}: round {round} of {rounds}, {name}"));
                let figure = turn();
                if round > 0 {
                    measured.push(figure);
                }
            }
        }
        Rounds { rows }
    }
}

impl<T> Rounds<T> {
    /// One figure of a contestant, round by round.
    pub(crate) fn figures(&self, name: &str, figure: impl FnMut(&T) -> f64) -> Vec<f64> {
        let row = self.rows.iter().find(|(other, _)| other == name);
        let (_, measured) = row.expect("a contestant of this run");
        measured.iter().map(figure).collect()
    }

    /// One figure of a contestant.
    pub(crate) fn spread(&self, name: &str, figure: impl FnMut(&T) -> f64) -> Spread {
        Spread::of(&self.figures(name, figure))
    }

    /// One figure of a contestant, as so many times that of another.
    pub(crate) fn ratio(
        &self,
        name: &str,
        other: &str,
        mut figure: impl FnMut(&T) -> f64,
    ) -> Spread {
        Spread::ratio(&self.figures(name, &mut figure), &self.figures(other, &mut figure))
    }

    /// The contestants' names, in their order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|(name, _)| name.as_str())
    }
}

/// The figure that a turn of one number has.
pub(crate) fn itself(figure: &f64) -> f64 {
    *figure
}

/// Nanoseconds for each of `count` operations, the number of which `operation` is told.
pub(crate) fn nanos_each(count: usize, mut operation: impl FnMut(usize)) -> f64 {
    nanos_of_all(count, || (0..count).for_each(&mut operation))
}

/// Nanoseconds for each of `count` operations that `work` does.
pub(crate) fn nanos_of_all(count: usize, work: impl FnOnce()) -> f64 {
    let clock = MonotonicClock::new();
    let started_at = clock.now();
    work();
    nanos(clock.now().since(started_at)) / float(count)
}

pub(crate) fn nanos(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e9
}

/// A count as a number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "a figure for people has three digits")]
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contestants_take_turns_and_the_first_round_does_not_count() {
        let turns = std::cell::RefCell::new(Vec::new());
        let mut contest = Contest::new();
        for (name, factor) in [("a", 1.0), ("b", 10.0)] {
            let turns = &turns;
            contest.add(name, move || {
                turns.borrow_mut().push(name);
                factor * float(turns.borrow().len())
            });
        }
        let rounds = contest.run(2, &Progress::silent(), "test");
        assert_eq!(turns.into_inner(), ["a", "b", "a", "b", "a", "b"]);
        assert_eq!(rounds.figures("a", itself), [3.0, 5.0]);
        assert_eq!(rounds.figures("b", itself), [40.0, 60.0]);
        let ratio = rounds.ratio("b", "a", itself);
        assert_eq!(ratio, Spread::of(&[40.0 / 3.0, 60.0 / 5.0]));
        assert_eq!(rounds.names().collect::<Vec<_>>(), ["a", "b"]);
    }
}
