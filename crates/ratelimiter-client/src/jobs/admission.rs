//! Admission of claimed jobs: turns, and reserving until there is an answer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coordination::{MessageId, Outbox, Topic};
use ratelimiter::admission::no_answer_pause;
use ratelimiter::clock::{Clock, Timestamp};
use ratelimiter::{
    Decision, Denial, DenialReason, JobId, LeaseId, LimitKey, Limiter, ReserveError,
    ReserveRequest, Wait,
};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::claim::{Settlement, fail, postpone};
use super::context::RunnerContext;
use super::handler::JobHandler;
use super::job::LlmJob;
use crate::completer::jittered;
use crate::llm::LlmRequirements;
use crate::scheduler::{JobView, Permit};
use crate::wait_at_limiter::wait_after;

/// How long a job waits that cannot be allowed until an operator fixes something.
const POSTPONED_FOR: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct ClaimedJob {
    pub(super) id: MessageId,
    pub(super) topic: Topic,
    pub(super) job: LlmJob,
    pub(super) requirements: LlmRequirements,
    pub(super) job_id: Option<JobId>,
    /// The number of the next attempt, from 1.
    pub(super) attempt: u32,
    /// Failed attempts so far.
    pub(super) failures: u32,
    pub(super) claimed_at: Instant,
}

/// A job's turn to ask. The jobs of one model ask in the order of their creation, each when the one before has its answer.
#[derive(Debug)]
pub(super) struct AdmissionTurn {
    /// Resolves on our turn; `None` means immediately.
    pub(super) ready: Option<oneshot::Receiver<()>>,
    /// Dropped when the next job may ask.
    pub(super) next: oneshot::Sender<()>,
}

/// Counts a job whose request waits at the limiter.
struct WaitingJob<'a>(&'a AtomicUsize);

impl<'a> WaitingJob<'a> {
    /// `None` if `count_max` wait already.
    fn begin(count: &'a AtomicUsize, count_max: usize) -> Option<Self> {
        let more = |count| (count < count_max).then_some(count + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self(count))
    }
}

impl Drop for WaitingJob<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The permit of an allowed call, or how to settle the job without one.
pub(super) type Admitted = Result<Permit, Settlement>;

impl<O: Outbox + Clone, L: Limiter + 'static, H: JobHandler> RunnerContext<O, L, H> {
    /// Waits for the job's turn and asks until there is an answer or the runner stops.
    pub(super) async fn admit(&self, job: &ClaimedJob, turn: AdmissionTurn) -> Admitted {
        if let Some(ready) = turn.ready {
            // An error means that the job before it is gone, which also ends its turn.
            drop(ready.await);
        }
        self.try_admit(job, turn.next).await
    }

    /// `next` ends with the turn: when there is an answer, or before the job waits at the limiter. Those behind it then find their
    /// model closed.
    async fn try_admit(&self, job: &ClaimedJob, next: oneshot::Sender<()>) -> Admitted {
        let mut next = Some(next);
        if self.shutdown.is_cancelled() || !self.gates().may_ask(self.clock.now(), &job.topic) {
            self.counts().given_back.add(1);
            return Err(postpone(Duration::ZERO, ""));
        }
        let budget = job.requirements.daily_tokens();
        let wait = budget.and_then(|key| self.gates().tenant_wait(self.clock.now(), key));
        if let Some(wait) = wait {
            self.counts().put_off.add(1);
            return Err(postpone(jittered(wait, self.settings.jitter), ""));
        }
        let mut lease = LeaseId::generate(self.clock.now());
        let mut unanswered_count = 0;
        let mut waiting: Option<(Wait, WaitingJob<'_>)> = None;
        loop {
            let wait = waiting.as_ref().map(|(wait, _)| wait.clone());
            match self.ask(job, lease, wait).await {
                Some(Ok(Decision::Allowed { reserved_at, shadow_denied })) => {
                    return self.allowed(job, lease, reserved_at, &shadow_denied).await;
                }
                Some(Ok(Decision::Denied(denial))) => {
                    let settled = self.denied(job, lease, &denial);
                    // It waits once; then others have their turn.
                    waiting = if waiting.is_none() { self.wait_after(job, &denial) } else { None };
                    if waiting.is_none() {
                        return settled;
                    }
                    drop(next.take());
                    lease = LeaseId::generate(self.clock.now());
                    unanswered_count = 0;
                }
                Some(Err(ReserveError::Unanswered(unanswered))) => {
                    tracing::debug!(%unanswered, "no answer to reserve");
                    self.counts().unanswered.add(1);
                    self.settings.observer.unknown(&job.view(Some(lease)), &unanswered);
                    unanswered_count += 1;
                    let jitter = fastrand::f64();
                    let pause = no_answer_pause(unanswered_count, unanswered.retry_after, jitter);
                    tokio::select! {
                        biased;
                        () = self.shutdown.cancelled() => return self.give_up(job, lease).await,
                        () = sleep_until(Instant::now() + pause) => {}
                    }
                }
                None => return self.give_up(job, lease).await,
                // A request whose answer was lost has used the lease. One that waits may have been repeated.
                Some(Err(ReserveError::LeaseEnded | ReserveError::LeaseConflict))
                    if unanswered_count > 0 || waiting.is_some() =>
                {
                    lease = LeaseId::generate(self.clock.now());
                    unanswered_count = 0;
                }
                Some(Err(
                    error @ (ReserveError::AmountExceedsCapacity { .. }
                    | ReserveError::InvalidRequest { .. }),
                )) => return self.refused(&error),
                Some(Err(
                    error @ (ReserveError::UnknownKey { .. }
                    | ReserveError::LeaseEnded
                    | ReserveError::LeaseConflict
                    | ReserveError::Refused(_)),
                )) => return self.postponed(job, &error),
            }
        }
    }

    /// Asks the limiter; `None` if the runner stops before there is an answer.
    async fn ask(
        &self,
        job: &ClaimedJob,
        lease: LeaseId,
        wait: Option<Wait>,
    ) -> Option<Result<Decision, ReserveError>> {
        self.counts().asked.add(1);
        self.settings.observer.reserve_started(&job.view(Some(lease)));
        let is_waiting = wait.is_some();
        let request = ReserveRequest {
            lease,
            job: job.job_id.clone(),
            requirements: job.requirements.as_requirements().clone(),
            wait,
        };
        tokio::select! {
            biased;
            answer = self.limiter.reserve(&request) => Some(answer),
            () = self.stop.cancelled() => None,
            () = self.shutdown.cancelled(), if is_waiting => None,
        }
    }

    async fn allowed(
        &self,
        job: &ClaimedJob,
        lease: LeaseId,
        reserved_at: Timestamp,
        shadow_denied: &[LimitKey],
    ) -> Admitted {
        if self.shutdown.is_cancelled() {
            return self.give_up(job, lease).await;
        }
        self.counts().allowed.add(1);
        self.gates().allowed(job.id, &job.topic, job.requirements.daily_tokens());
        let view = job.view(Some(lease));
        if !shadow_denied.is_empty() {
            self.settings.observer.shadow_denied(&view, shadow_denied);
        }
        self.settings.observer.allowed(&view);
        Ok(Permit::new(lease, reserved_at))
    }

    fn denied(&self, job: &ClaimedJob, lease: LeaseId, denial: &Denial) -> Admitted {
        let wait = jittered(denial.retry_after, self.settings.jitter);
        tracing::debug!(keys = ?denial.keys(), ?wait, "reserve denied");
        self.counts().denied.add(1);
        self.settings.observer.denied(&job.view(Some(lease)), denial);
        let budget = job.requirements.daily_tokens();
        let ClaimedJob { id, topic, .. } = job;
        let wait = self.gates().denied(self.clock.now(), *id, topic, denial.keys(), budget, wait);
        // The runner must wake up when the gate opens.
        self.changed.notify_one();
        match &denial.reason {
            DenialReason::Paused { key } => {
                tracing::info!(%key, ?wait, "job waits, its limit is paused");
                self.counts().paused.add(1);
                Err(postpone(wait, format!("waits: {key} is paused (capacity 0)")))
            }
            DenialReason::NoRoom { .. }
            | DenialReason::Decreasing { .. }
            | DenialReason::TooManyInstances { .. }
            | DenialReason::TooManyWaiters { .. } => Err(postpone(wait, "")),
        }
    }

    /// How the job asks again with a request that waits, if it may. Half of the workers stay free for others.
    fn wait_after(&self, job: &ClaimedJob, denial: &Denial) -> Option<(Wait, WaitingJob<'_>)> {
        let budget = job.requirements.daily_tokens();
        if budget.is_some_and(|budget| denial.keys().contains(budget)) {
            return None;
        }
        let wait = wait_after(denial, &self.limiter, job.requirements.tenant())?;
        let waiting = WaitingJob::begin(&self.waiting, self.settings.workers / 2)?;
        Some((wait, waiting))
    }

    /// The job cannot be allowed until something outside it is fixed: a key, a token, a URL, a client that was shut down. It
    /// waits, and the jobs that may fail in the same way ask one at a time.
    fn postponed(&self, job: &ClaimedJob, error: &ReserveError) -> Admitted {
        let wait = jittered(POSTPONED_FOR, self.settings.jitter);
        tracing::warn!(%error, ?wait, "job postponed");
        self.counts().postponed.add(1);
        let budget = job.requirements.daily_tokens();
        let keys: Vec<LimitKey> = if let ReserveError::UnknownKey { key } = error {
            vec![key.clone()]
        } else {
            let keys =
                job.requirements.as_requirements().iter().map(|requirement| &requirement.key);
            keys.filter(|key| Some(*key) != budget).cloned().collect()
        };
        let wait = self.gates().postponed(self.clock.now(), &job.topic, &keys, budget, wait);
        self.changed.notify_one();
        Err(postpone(wait, format!("postponed: {error}")))
    }

    fn refused(&self, error: &ReserveError) -> Admitted {
        tracing::warn!(%error, "job failed permanently");
        self.counts().refused.add(1);
        Err(fail(format!("the job can never be allowed: {error}")))
    }

    /// The runner stops before the job runs. Its lease may have been allowed, so it is completed.
    async fn give_up(&self, job: &ClaimedJob, lease: LeaseId) -> Admitted {
        let ClaimedJob { requirements, job_id, .. } = job;
        self.complete(requirements, job_id.as_ref(), lease, requirements.unused()).await;
        self.counts().given_back.add(1);
        Err(postpone(Duration::ZERO, ""))
    }
}

impl ClaimedJob {
    pub(super) fn view(&self, lease: Option<LeaseId>) -> JobView<'_> {
        let waited = self.claimed_at.elapsed();
        JobView::new(&self.requirements, self.job_id.as_ref(), lease, self.attempt, waited)
    }
}

/// The turns of `count` jobs of one model.
pub(super) fn admission_turns(count: usize) -> impl Iterator<Item = AdmissionTurn> {
    let mut ready = None;
    (0..count).map(move |_| {
        let (next, waits) = oneshot::channel();
        AdmissionTurn { ready: ready.replace(waits), next }
    })
}
