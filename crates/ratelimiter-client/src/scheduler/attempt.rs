//! One attempt: reserve, and if it is allowed, run the job and complete.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::admission::{Waiter, WaiterId};
use ratelimiter::clock::{Clock, Timestamp};
use ratelimiter::{
    Decision, Denial, LeaseId, LimitKey, Limiter, ReserveError, ReserveRequest, Unanswered, Wait,
};
use tracing::Instrument;

use super::context::{Phase, SchedulerContext, State};
use super::control::Control;
use super::job::{CallOutcome, Permit};
use super::queued::{JobFacts, QueuedJob};
use super::report::{JobEnd, JobFailure};
use crate::completer::{jittered, shutdown_deadline_passed};
use crate::wait_at_limiter::wait_after;

/// A job that is about to ask.
pub(super) struct PendingAttempt {
    pub(super) waiter: WaiterId,
    pub(super) facts: Arc<JobFacts>,
    pub(super) control: Arc<Control>,
    pub(super) lease: LeaseId,
    /// Whether the lease may have been used before: in an attempt whose outcome is unknown, or in the same one.
    pub(super) is_repeated: bool,
    /// Including this one.
    pub(super) attempts: u32,
    /// Whether it may ask again with a request that waits, if it is denied.
    pub(super) may_wait: bool,
}

/// A busy worker. Dropping it frees it, whatever happened.
struct Worker<L> {
    context: Arc<SchedulerContext<L>>,
    task: WorkerTask,
}

enum WorkerTask {
    Asking(WaiterId),
    /// Its job was allowed.
    Running,
    /// The admission has counted it as free.
    Idle,
}

/// What to do with a job after its answer.
enum NextStep {
    Continue,
    Cancel,
    HandBack,
}

pub(super) async fn run<L: Limiter + 'static>(
    context: Arc<SchedulerContext<L>>,
    attempt: PendingAttempt,
) {
    let PendingAttempt { facts, lease, attempts, .. } = &attempt;
    let span = tracing::debug_span!(
        "attempt",
        provider = facts.requirements.provider(),
        model = facts.requirements.model(),
        tenant = facts.requirements.tenant(),
        job_id = facts.id.as_ref().map(ratelimiter::JobId::as_str),
        %lease,
        attempts,
    );
    let worker = Worker { context, task: WorkerTask::Asking(attempt.waiter) };
    worker.attempt(attempt).instrument(span).await;
}

impl<L: Limiter + 'static> Worker<L> {
    async fn attempt(mut self, mut attempt: PendingAttempt) {
        let mut wait = None;
        loop {
            let answer = self.ask(&attempt, wait.take()).await;
            match answer {
                Ok(Decision::Allowed { reserved_at, shadow_denied }) => {
                    return self.allowed(attempt, reserved_at, shadow_denied).await;
                }
                Ok(Decision::Denied(denial)) => {
                    let Some((asks_again, waits)) = self.denied(&attempt, &denial) else { return };
                    (self, wait) = (asks_again, Some(waits));
                    attempt.lease = LeaseId::generate(self.context.clock.now());
                    attempt.attempts += 1;
                    // A request that waits may be repeated, and the server may have ended its lease in between.
                    (attempt.is_repeated, attempt.may_wait) = (true, false);
                }
                Err(ReserveError::Unanswered(unanswered)) => {
                    return self.unanswered(attempt, unanswered).await;
                }
                Err(ReserveError::LeaseEnded | ReserveError::LeaseConflict)
                    if attempt.is_repeated =>
                {
                    return self.lease_unusable(&attempt);
                }
                Err(
                    error @ (ReserveError::LeaseEnded
                    | ReserveError::LeaseConflict
                    | ReserveError::UnknownKey { .. }
                    | ReserveError::AmountExceedsCapacity { .. }
                    | ReserveError::InvalidRequest { .. }
                    | ReserveError::Refused(_)),
                ) => return self.refused(&attempt, error),
            }
        }
    }

    async fn ask(
        &self,
        attempt: &PendingAttempt,
        wait: Option<Wait>,
    ) -> Result<Decision, ReserveError> {
        let context = &self.context;
        context.observer.reserve_started(&attempt.view(context.clock.now()));
        let cancelled = attempt.control.token();
        let is_waiting = wait.is_some();
        let request = ReserveRequest {
            lease: attempt.lease,
            job: attempt.facts.id.clone(),
            requirements: attempt.facts.requirements.as_requirements().clone(),
            wait,
        };
        tokio::select! {
            biased;
            answer = context.limiter.reserve(&request) => answer,
            () = context.stop.cancelled() => Err(shutdown_deadline_passed().into()),
            // It may take long, and nobody needs its answer.
            () = context.closing.cancelled(), if is_waiting => Err(no_longer_waits().into()),
            () = cancelled.cancelled(), if is_waiting => Err(no_longer_waits().into()),
        }
    }

    async fn allowed(
        mut self,
        attempt: PendingAttempt,
        reserved_at: Timestamp,
        shadow_denied: Vec<LimitKey>,
    ) {
        let context = self.context.clone();
        let now = context.clock.now();
        let (next, waiter) = {
            let mut state = context.lock();
            state.counters.allowed += 1;
            let waiter = state.admission.allowed(attempt.waiter);
            (next(&state, &attempt), waiter)
        };
        self.task = WorkerTask::Running;
        let PendingAttempt { facts, control, lease, .. } = &attempt;
        if !matches!(next, NextStep::Continue) {
            context.complete(facts, *lease, facts.requirements.unused(), || ()).await;
            context.end_unrun(attempt.waiter, waiter, &next);
            return;
        }
        let Waiter { work: mut queued, .. } = waiter;
        queued.queue_permit = None;
        context.changed.notify_one();
        let view = attempt.view(now);
        tracing::debug!(waited = ?view.waited, ?shadow_denied, "reserve allowed");
        if !shadow_denied.is_empty() {
            context.observer.shadow_denied(&view, &shadow_denied);
        }
        context.observer.allowed(&view);
        let (cancel, stop) = (control.token(), context.stop.clone());
        let cancelled = async move {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = stop.cancelled() => {}
            }
        };
        let permit = Permit::new(*lease, reserved_at);
        let ran = queued.work.run(permit, Box::pin(cancelled)).await;
        let CallOutcome { tokens, end, report } = ran;
        let report = || {
            context.record_end(&view, end);
            report(view.attempts, view.waited);
        };
        let actuals = facts.requirements.known_actuals(tokens);
        context.complete(facts, *lease, actuals, report).await;
    }

    /// Returns the worker if the job asks again at once, with a request that waits.
    fn denied(mut self, attempt: &PendingAttempt, denial: &Denial) -> Option<(Self, Wait)> {
        let context = self.context.clone();
        let now = context.clock.now();
        let wait = jittered(denial.retry_after, context.jitter);
        tracing::debug!(keys = ?denial.keys(), ?wait, "reserve denied");
        context.observer.denied(&attempt.view(now), denial);
        let mut state = context.lock();
        state.counters.denied += 1;
        match next(&state, attempt) {
            NextStep::Continue => {
                let tenant = attempt.facts.requirements.tenant();
                let waits = wait_after(denial, &context.limiter, tenant);
                if let Some(waits) = waits.filter(|_| attempt.may_wait)
                    && state.admission.wait_at_limiter(now, attempt.waiter, denial.keys())
                {
                    state.counters.attempts += 1;
                    return Some((self, waits));
                }
                state.admission.denied(now, attempt.waiter, denial.keys(), wait);
                self.task = WorkerTask::Idle;
            }
            next @ (NextStep::Cancel | NextStep::HandBack) => {
                drop(state);
                self.leave(attempt, &next);
            }
        }
        None
    }

    async fn unanswered(mut self, attempt: PendingAttempt, unanswered: Unanswered) {
        let context = self.context.clone();
        let now = context.clock.now();
        tracing::debug!(%unanswered, "no answer to reserve");
        context.observer.unknown(&attempt.view(now), &unanswered);
        let (next, waiter) = {
            let mut state = context.lock();
            state.counters.unanswered += 1;
            let next = next(&state, &attempt);
            if matches!(next, NextStep::Continue) {
                let Unanswered { retry_after, .. } = unanswered;
                let jitter = fastrand::f64();
                state.admission.unanswered(now, attempt.waiter, attempt.lease, retry_after, jitter);
                self.task = WorkerTask::Idle;
                return;
            }
            // Others may ask where it waited, however long its complete takes.
            (next, state.admission.withdraw(attempt.waiter))
        };
        self.task = WorkerTask::Running;
        context.changed.notify_one();
        // It may have been allowed.
        let PendingAttempt { facts, lease, .. } = &attempt;
        context.complete(facts, *lease, facts.requirements.unused(), || ()).await;
        context.end_unrun(attempt.waiter, waiter, &next);
    }

    /// A job without a lease fails or is handed back.
    fn leave(mut self, attempt: &PendingAttempt, next: &NextStep) {
        let waiter = self.context.lock().admission.give_up(attempt.waiter);
        self.task = WorkerTask::Idle;
        self.context.end_unrun(attempt.waiter, waiter, next);
    }

    fn lease_unusable(mut self, attempt: &PendingAttempt) {
        let context = self.context.clone();
        let mut state = context.lock();
        match next(&state, attempt) {
            NextStep::Continue => {
                state.admission.lease_unusable(attempt.waiter);
                self.task = WorkerTask::Idle;
            }
            next @ (NextStep::Cancel | NextStep::HandBack) => {
                drop(state);
                self.leave(attempt, &next);
            }
        }
    }

    fn refused(mut self, attempt: &PendingAttempt, error: ReserveError) {
        tracing::warn!(%error, "job failed permanently");
        let Waiter { work, attempts, .. } = self.context.lock().admission.refused(attempt.waiter);
        self.task = WorkerTask::Idle;
        self.context.fail(work, attempts, JobFailure::Refused(error), JobEnd::Refused);
    }
}

fn no_longer_waits() -> Unanswered {
    Unanswered { reason: "the job waits no longer".to_owned(), retry_after: Duration::ZERO }
}

fn next(state: &State, attempt: &PendingAttempt) -> NextStep {
    if attempt.control.is_cancelled() {
        return NextStep::Cancel;
    }
    match state.phase {
        Phase::Open | Phase::Orphaned => NextStep::Continue,
        Phase::ShutDown => NextStep::HandBack,
    }
}

impl<L> SchedulerContext<L> {
    /// Fails a job that did not run, or hands it back.
    fn end_unrun(&self, id: WaiterId, waiter: Waiter<QueuedJob>, next: &NextStep) {
        let Waiter { work, attempts, .. } = waiter;
        match next {
            NextStep::HandBack => self.lock().hand_back(id, work, attempts),
            NextStep::Cancel | NextStep::Continue => {
                self.fail(work, attempts, JobFailure::Cancelled, JobEnd::Cancelled);
            }
        }
    }
}

impl PendingAttempt {
    fn view(&self, now: Timestamp) -> super::observer::JobView<'_> {
        self.facts.view(Some(self.lease), self.attempts, now)
    }
}

impl<L> Drop for Worker<L> {
    fn drop(&mut self) {
        let abandoned = match self.task {
            WorkerTask::Idle => None,
            WorkerTask::Running => {
                self.context.lock().admission.ended();
                None
            }
            // The limiter or the observer panicked, or the runtime was dropped.
            WorkerTask::Asking(waiter) => Some(self.context.lock().admission.give_up(waiter)),
        };
        self.context.changed.notify_one();
        if let Some(Waiter { work, attempts, .. }) = abandoned {
            let message = "the limiter or the observer panicked".to_owned();
            self.context.fail(work, attempts, JobFailure::Panicked { message }, JobEnd::Panicked);
        }
    }
}
