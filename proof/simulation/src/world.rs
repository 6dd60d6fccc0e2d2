//! Traits of what can be simulated: worlds, plans, events.

use std::fmt;

use crate::outcome::Outcome;

/// Something that can be simulated.
pub trait World {
    /// What a seed makes, and what is played.
    type Plan: Plan;

    /// What the command calls it.
    const NAME: &'static str;

    /// The plan of a seed.
    fn plan(&self, seed: u64) -> Self::Plan;

    /// Plays a plan, with a trace or without. The same plan has the same outcome, always.
    fn play(&self, plan: &Self::Plan, traced: bool) -> Outcome;
}

/// A plan: events, and what they happen in.
pub trait Plan: Clone + fmt::Display {
    /// What happens.
    type Event: Event;

    /// In the order of their moments.
    fn events(&self) -> &[Self::Event];

    /// The same with other events.
    #[must_use]
    fn with_events(&self, events: Vec<Self::Event>) -> Self;
}

/// One thing that happens.
pub trait Event: Clone {
    /// Who does it; all events of one can be dropped together.
    fn actor(&self) -> usize;

    /// The same with a fault less, or a part less; empty if it is as simple as can be.
    fn simpler_variants(&self) -> Vec<Self>;
}
