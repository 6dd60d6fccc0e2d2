//! What the runner's tasks share.

use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard};

use coordination::CancellationToken;
use ratelimiter::clock::Clock;
use ratelimiter::{Actuals, CompleteRequest, JobId, LeaseId, Limiter};
use tokio::sync::Notify;

use super::counters::{Counts, JobCounters};
use super::model_gates::ModelGates;
use super::settings::RunnerSettings;
use crate::completing::Completing;
use crate::llm::{LlmRequirements, TokenEstimator};
use crate::tokio_clock::TokioClock;

/// What the runner's tasks share.
pub(super) struct RunnerContext<O, L, H> {
    pub(super) outbox: O,
    pub(super) limiter: L,
    pub(super) handler: H,
    pub(super) settings: RunnerSettings,
    pub(super) estimator: Box<dyn TokenEstimator + Send + Sync>,
    pub(super) counters: JobCounters,
    pub(super) gates: Mutex<ModelGates>,
    pub(super) clock: TokioClock,
    /// How often it looked for work.
    pub(super) looks: AtomicUsize,
    /// Something happened that may let jobs go ahead.
    pub(super) changed: Notify,
    /// No new calls.
    pub(super) shutdown: CancellationToken,
    /// The time to shut down is over.
    pub(super) stop: CancellationToken,
}

impl<O, L, H> RunnerContext<O, L, H> {
    pub(super) fn gates(&self) -> MutexGuard<'_, ModelGates> {
        self.gates.lock().expect("nobody panics with the gates in hand")
    }

    pub(super) fn counts(&self) -> &Counts {
        self.counters.counts()
    }

    pub(super) fn note_lost(&self) {
        tracing::warn!("claim lost, another runner has the job");
        self.counts().claims_lost.add(1);
    }
}

impl<O, L: Limiter, H> RunnerContext<O, L, H> {
    /// Completes a lease; the models that got room back may go on.
    pub(super) async fn complete(
        &self,
        requirements: &LlmRequirements,
        job: Option<&JobId>,
        lease: LeaseId,
        actuals: Actuals,
    ) {
        let complete_for = self.settings.complete_for;
        let completing = Completing { limiter: &self.limiter, stop: &self.stop, complete_for };
        let request = CompleteRequest { lease, job: job.cloned(), actuals };
        match completing.complete(request, requirements, || ()).await {
            Some(freed) => {
                if self.gates().released(self.clock.now(), &freed) {
                    self.changed.notify_one();
                }
            }
            None => self.counts().completes_given_up.add(1),
        }
    }
}
