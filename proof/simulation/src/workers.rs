//! Simulated coordination workers.
//!
//! Two processes share a memory provider and a memory limiter. Each runs the real outbox and inbox dispatchers, the
//! scheduler worker and the job runner; calls between them and the provider are lost, held back and repeated, and
//! processes are stopped, paused and killed. Time is tokio's, paused.

mod context;
mod flawed;
mod flawed_limiter;
mod handlers;
mod observed;
mod oracle;
mod plan;
mod play;
mod process;
mod settings;

use self::plan::WorkPlan;
use crate::flaw::Flaw;
use crate::outcome::Outcome;
use crate::world::World;

/// All coordination workers, with a deliberate bug or without.
#[derive(Debug, Default)]
pub struct CoordinationWorld {
    /// The bug.
    pub flaw: Option<Flaw>,
}

impl World for CoordinationWorld {
    type Plan = WorkPlan;
    const NAME: &'static str = "coordination";

    fn plan(&self, seed: u64) -> WorkPlan {
        WorkPlan::random(seed)
    }

    fn play(&self, plan: &WorkPlan, traced: bool) -> Outcome {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime on this thread needs nothing");
        // The workers draw owner tokens and jitter from the thread's generator.
        fastrand::seed(0);
        runtime.block_on(play::play(plan, self.flaw, traced))
    }
}
