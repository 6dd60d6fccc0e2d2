//! Runs of many seeds, by count or by time.

use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};

use crate::fault::Faults;
use crate::outcome::Violation;
use crate::shrink::shortest;
use crate::world::{Plan, World};

/// What many seeds came to.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Seeds played.
    pub seeds: u64,
    /// Requests made by clients and workers.
    pub requests: u64,
    /// Comparisons with the oracle.
    pub checks: u64,
    /// Faults injected.
    pub faults: Faults,
    /// How long it took.
    pub took: Duration,
    /// The first seed that failed.
    pub failure: Option<Failure>,
}

/// A seed that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What was broken.
    pub violation: Violation,
    /// How many events the plan had, and how many the shortest that fails has.
    pub events: (usize, usize),
    /// The shortest plan and what happens when it is played.
    pub trace: String,
}

/// When to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopCondition {
    /// After so many seeds.
    Seeds(u64),
    /// After so much time.
    Time(Duration),
}

/// Plays seeds from `first` on, until something fails or it is enough.
pub fn run<W: World>(world: &W, first: u64, until: StopCondition) -> Summary {
    let clock = MonotonicClock::new();
    let started = clock.now();
    let mut summary = Summary::default();
    let mut seed = first;
    loop {
        summary.took = clock.now().since(started);
        let is_enough = match until {
            StopCondition::Seeds(seeds) => summary.seeds >= seeds,
            StopCondition::Time(time) => summary.took >= time,
        };
        if is_enough || summary.failure.is_some() {
            return summary;
        }
        let outcome = world.play(&world.plan(seed), false);
        summary.seeds += 1;
        summary.requests += outcome.requests;
        summary.checks += outcome.checks;
        summary.faults.add(&outcome.faults);
        if outcome.violation.is_some() {
            summary.failure = Some(explain(world, seed));
        }
        seed = seed.wrapping_add(1);
    }
}

/// The first seed from `first` on that fails, within `seeds_max`, without explaining it.
pub fn first_failure<W: World>(world: &W, first: u64, seeds_max: u64) -> Option<(u64, Violation)> {
    (first..first + seeds_max).find_map(|seed| {
        let outcome = world.play(&world.plan(seed), false);
        outcome.violation.map(|violation| (seed, violation))
    })
}

/// Plays a failing seed again, as short as it can be made, with a trace.
pub fn explain<W: World>(world: &W, seed: u64) -> Failure {
    let plan = world.plan(seed);
    let short = shortest(world, plan.clone());
    let outcome = world.play(&short, true);
    let violation = outcome.violation.expect("a plan that failed fails again");
    let trace = format!("{short}{}{violation}\n", outcome.trace);
    Failure { seed, violation, events: (plan.events().len(), short.events().len()), trace }
}
