//! Coordination under simulation: workers that claim, finish, give back and crash, on any provider.
//!
//! A provider's calls are atomic, so every schedule of workers is an order of calls: a plan is that order, and what is
//! lost on the way. The provider comes as the conformance suite's `Fixture`, so another one is plugged in by its type.

mod desk;
mod oracle;
mod plan;
mod play;

use std::fmt;
use std::marker::PhantomData;

use coordination_conformance::{Fixture, MemoryFixture};

use self::plan::WorkPlan;
use crate::flaw::Flaw;
use crate::outcome::Outcome;
use crate::run::World;

/// Outbox, inbox, timers, job runs and leases of one provider, with a deliberate bug or without.
pub struct CoordinationWorld<F = MemoryFixture> {
    /// The bug.
    pub flaw: Option<Flaw>,
    fixture: PhantomData<fn() -> F>,
}

impl<F> CoordinationWorld<F> {
    /// A world with this bug.
    pub const fn new(flaw: Option<Flaw>) -> Self {
        Self { flaw, fixture: PhantomData }
    }
}

impl<F: Fixture> World for CoordinationWorld<F> {
    type Plan = WorkPlan;
    const NAME: &'static str = "coordination";

    fn plan(&self, seed: u64) -> WorkPlan {
        WorkPlan::random(seed)
    }

    fn play(&self, plan: &WorkPlan, traced: bool) -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime on this thread needs nothing");
        runtime.block_on(play::play::<F>(plan, self.flaw, traced))
    }
}

impl<F> fmt::Debug for CoordinationWorld<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoordinationWorld").field("flaw", &self.flaw).finish()
    }
}
