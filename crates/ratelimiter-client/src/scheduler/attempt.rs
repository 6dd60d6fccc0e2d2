//! One attempt: reserve, and if that is allowed run the job and complete.

use std::sync::Arc;

use ratelimiter::admission::{Waiter, WaiterId};
use ratelimiter::clock::{Clock, Timestamp};
use ratelimiter::{Decision, Denial, LeaseId, Limiter, ReserveError, ReserveRequest, Unanswered};
use tracing::Instrument;

use super::context::{Phase, SchedulerContext, State};
use super::control::Control;
use super::job::{Permit, Ran};
use super::queued::JobFacts;
use super::report::{JobEnd, JobFailure};
use crate::completing::{jittered, time_is_over};

/// A job that asks.
pub(super) struct Asking {
    pub(super) waiter: WaiterId,
    pub(super) facts: Arc<JobFacts>,
    pub(super) control: Arc<Control>,
    pub(super) lease: LeaseId,
    /// Whether the lease was used before, and nobody knows what became of it.
    pub(super) is_repeated: bool,
    /// This one included.
    pub(super) attempts: u32,
}

/// A worker that is busy. Whatever happens, it is free again in the end.
struct Worker<L> {
    context: Arc<SchedulerContext<L>>,
    with: BusyWith,
}

enum BusyWith {
    /// A waiter that asks.
    Asking(WaiterId),
    /// A job that was allowed and waits no more.
    Running,
    /// Nothing; the admission knows.
    Nothing,
}

/// What a job does next that has an answer, or will get none.
enum Next {
    GoesOn,
    Cancelled,
    HandedBack,
}

pub(super) async fn run<L: Limiter + 'static>(context: Arc<SchedulerContext<L>>, asking: Asking) {
    let Asking { facts, lease, attempts, .. } = &asking;
    let span = tracing::debug_span!(
        "attempt",
        provider = facts.requirements.provider(),
        model = facts.requirements.model(),
        tenant = facts.requirements.tenant(),
        job_id = facts.id.as_ref().map(ratelimiter::JobId::as_str),
        %lease,
        attempts,
    );
    let worker = Worker { context, with: BusyWith::Asking(asking.waiter) };
    worker.attempt(asking).instrument(span).await;
}

impl<L: Limiter + 'static> Worker<L> {
    async fn attempt(self, asking: Asking) {
        let context = self.context.clone();
        context.observer.reserve_started(&asking.view(context.clock.now()));
        let request = ReserveRequest {
            lease: asking.lease,
            job: asking.facts.id.clone(),
            requirements: asking.facts.requirements.as_requirements().clone(),
        };
        let answer = tokio::select! {
            biased;
            answer = context.limiter.reserve(&request) => answer,
            () = context.stop.cancelled() => Err(time_is_over().into()),
        };
        match answer {
            Ok(Decision::Allowed { reserved_at }) => self.allowed(asking, reserved_at).await,
            Ok(Decision::Denied(denial)) => self.denied(&asking, &denial),
            Err(ReserveError::Unanswered(unanswered)) => {
                self.unanswered(asking, unanswered).await;
            }
            Err(ReserveError::LeaseEnded | ReserveError::LeaseConflict) if asking.is_repeated => {
                self.lease_was_spent(&asking);
            }
            Err(
                error @ (ReserveError::LeaseEnded
                | ReserveError::LeaseConflict
                | ReserveError::UnknownKey { .. }
                | ReserveError::AmountExceedsCapacity { .. }
                | ReserveError::InvalidRequest { .. }
                | ReserveError::Refused(_)),
            ) => self.refused(&asking, error),
        }
    }

    async fn allowed(mut self, asking: Asking, reserved_at: Timestamp) {
        let context = self.context.clone();
        let now = context.clock.now();
        let (next, waiter) = {
            let mut state = context.lock();
            state.counters.allowed += 1;
            let waiter = state.admission.allowed(asking.waiter);
            (next(&state, &asking), waiter)
        };
        self.with = BusyWith::Running;
        let Asking { facts, control, lease, .. } = &asking;
        let Waiter { work: mut queued, attempts, .. } = waiter;
        match next {
            Next::GoesOn => {}
            Next::Cancelled => {
                context.complete_in_time(facts, *lease, facts.requirements.unused(), || ()).await;
                context.fail(queued, attempts, JobFailure::Cancelled, JobEnd::Cancelled);
                return;
            }
            Next::HandedBack => {
                context.complete_in_time(facts, *lease, facts.requirements.unused(), || ()).await;
                context.lock().hand_back(asking.waiter, queued, attempts);
                return;
            }
        }
        queued.place = None;
        context.changed.notify_one();
        let view = asking.view(now);
        tracing::debug!(waited = ?view.waited, "reserve allowed");
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
        let Ran { tokens, end, report } = ran;
        let report = || {
            context.record_end(&view, end);
            report(view.attempts, view.waited);
        };
        let actuals = facts.requirements.known_actuals(tokens);
        context.complete_in_time(facts, *lease, actuals, report).await;
    }

    fn denied(mut self, asking: &Asking, denial: &Denial) {
        let context = self.context.clone();
        let now = context.clock.now();
        let wait = jittered(denial.retry_after, context.jitter);
        tracing::debug!(keys = ?denial.keys(), ?wait, "reserve denied");
        context.observer.denied(&asking.view(now), denial);
        let mut state = context.lock();
        state.counters.denied += 1;
        match next(&state, asking) {
            Next::GoesOn => {
                state.admission.denied(now, asking.waiter, denial.keys(), wait);
                self.with = BusyWith::Nothing;
            }
            next @ (Next::Cancelled | Next::HandedBack) => {
                drop(state);
                self.leave(asking, &next);
            }
        }
    }

    async fn unanswered(mut self, asking: Asking, unanswered: Unanswered) {
        let context = self.context.clone();
        let now = context.clock.now();
        tracing::debug!(%unanswered, "no answer to reserve");
        context.observer.unknown(&asking.view(now), &unanswered);
        let next = {
            let mut state = context.lock();
            state.counters.unanswered += 1;
            let next = next(&state, &asking);
            if matches!(next, Next::GoesOn) {
                let Unanswered { retry_after, .. } = unanswered;
                let jitter = fastrand::f64();
                state.admission.unanswered(now, asking.waiter, asking.lease, retry_after, jitter);
                self.with = BusyWith::Nothing;
            }
            next
        };
        if !matches!(next, Next::GoesOn) {
            // It may have been allowed all the same.
            let Asking { facts, lease, .. } = &asking;
            context.complete_in_time(facts, *lease, facts.requirements.unused(), || ()).await;
            self.leave(&asking, &next);
        }
    }

    /// A job without a lease ends or is handed back.
    fn leave(mut self, asking: &Asking, next: &Next) {
        let context = self.context.clone();
        let mut state = context.lock();
        let Waiter { work, attempts, .. } = state.admission.give_up(asking.waiter);
        self.with = BusyWith::Nothing;
        match next {
            Next::HandedBack => state.hand_back(asking.waiter, work, attempts),
            Next::Cancelled | Next::GoesOn => {
                drop(state);
                context.fail(work, attempts, JobFailure::Cancelled, JobEnd::Cancelled);
            }
        }
    }

    fn lease_was_spent(mut self, asking: &Asking) {
        self.context.lock().admission.lease_was_spent(asking.waiter);
        self.with = BusyWith::Nothing;
    }

    fn refused(mut self, asking: &Asking, error: ReserveError) {
        tracing::warn!(%error, "job refused for good");
        let Waiter { work, attempts, .. } = self.context.lock().admission.refused(asking.waiter);
        self.with = BusyWith::Nothing;
        self.context.fail(work, attempts, JobFailure::Refused(error), JobEnd::Refused);
    }
}

fn next(state: &State, asking: &Asking) -> Next {
    if asking.control.is_cancelled() {
        return Next::Cancelled;
    }
    match state.phase {
        Phase::Open | Phase::Orphaned => Next::GoesOn,
        Phase::ShutDown => Next::HandedBack,
    }
}

impl Asking {
    fn view(&self, now: Timestamp) -> super::observer::JobView<'_> {
        self.facts.view(Some(self.lease), self.attempts, now)
    }
}

impl<L> Drop for Worker<L> {
    fn drop(&mut self) {
        let abandoned = match self.with {
            BusyWith::Nothing => None,
            BusyWith::Running => {
                self.context.lock().admission.ended();
                None
            }
            // Only a limiter that panics leaves a job like this.
            BusyWith::Asking(waiter) => Some(self.context.lock().admission.give_up(waiter)),
        };
        self.context.changed.notify_one();
        if let Some(Waiter { work, attempts, .. }) = abandoned {
            let message = "the limiter panicked".to_owned();
            self.context.fail(work, attempts, JobFailure::Panicked { message }, JobEnd::Panicked);
        }
    }
}
