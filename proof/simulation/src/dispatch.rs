//! The real dispatchers under simulation: messages whose handlers finish, fail or kill their process, while the process is
//! stopped and killed by others too. Time is tokio's, paused.

mod flawed_outbox;
mod ledger;
mod plan;
mod play;

use self::plan::DispatchPlan;
use crate::flaw::Flaw;
use crate::outcome::Outcome;
use crate::run::World;

/// An outbox and an inbox dispatcher in one process, with a deliberate bug or without.
#[derive(Debug, Default)]
pub struct DispatchWorld {
    /// The bug.
    pub flaw: Option<Flaw>,
}

impl World for DispatchWorld {
    type Plan = DispatchPlan;
    const NAME: &'static str = "dispatch";

    fn plan(&self, seed: u64) -> DispatchPlan {
        DispatchPlan::random(seed)
    }

    fn play(&self, plan: &DispatchPlan, traced: bool) -> Outcome {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime on this thread needs nothing");
        // The dispatchers draw their jitter from the thread's generator.
        fastrand::seed(0);
        runtime.block_on(play::play(plan, self.flaw, traced))
    }
}
