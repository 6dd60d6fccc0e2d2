//! State that the tasks of a runner share.

use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard};

use coordination::CancellationToken;
use ratelimiter::clock::Clock;
use ratelimiter::{Actuals, CompleteRequest, JobId, LeaseId, Limiter};
use tokio::sync::Notify;

use super::counters::{Counts, JobCounters};
use super::model_gates::ModelGates;
use super::settings::RunnerSettings;
use crate::completer::Completer;
use crate::llm::{LlmRequirements, TokenEstimator};
use crate::tokio_clock::TokioClock;

pub(super) struct RunnerContext<O, L, H> {
    pub(super) outbox: O,
    pub(super) limiter: L,
    pub(super) handler: H,
    pub(super) settings: RunnerSettings,
    pub(super) estimator: Box<dyn TokenEstimator + Send + Sync>,
    pub(super) counters: JobCounters,
    pub(super) gates: Mutex<ModelGates>,
    pub(super) clock: TokioClock,
    /// Rounds of claims so far.
    pub(super) claim_rounds: AtomicUsize,
    /// Jobs whose requests wait at the limiter.
    pub(super) waiting: AtomicUsize,
    /// Signals that more jobs may be claimed.
    pub(super) changed: Notify,
    /// Cancelled to stop new calls.
    pub(super) shutdown: CancellationToken,
    /// Cancelled when the time to shut down is over.
    pub(super) stop: CancellationToken,
}

impl<O, L, H> RunnerContext<O, L, H> {
    pub(super) fn gates(&self) -> MutexGuard<'_, ModelGates> {
        self.gates.lock().expect("no panic with the lock held")
    }

    pub(super) fn counts(&self) -> &Counts {
        self.counters.counts()
    }

    pub(super) fn record_claim_lost(&self) {
        tracing::warn!("claim lost, another runner has the job");
        self.counts().claims_lost.add(1);
    }
}

impl<O, L: Limiter, H> RunnerContext<O, L, H> {
    /// Completes a lease; the models that got room back may be claimed again.
    pub(super) async fn complete(
        &self,
        requirements: &LlmRequirements,
        job: Option<&JobId>,
        lease: LeaseId,
        actuals: Actuals,
    ) {
        let complete_for = self.settings.complete_for;
        let completer = Completer { limiter: &self.limiter, stop: &self.stop, complete_for };
        let request = CompleteRequest { lease, job: job.cloned(), actuals };
        match completer.complete(request, requirements, || ()).await {
            Some(freed) => {
                if self.gates().released(self.clock.now(), &freed) {
                    self.changed.notify_one();
                }
            }
            None => self.counts().completes_given_up.add(1),
        }
    }
}
