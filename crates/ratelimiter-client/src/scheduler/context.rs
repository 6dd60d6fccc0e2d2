//! What the scheduler's tasks share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ratelimiter::admission::{Admission, Removed, WaiterId};
use ratelimiter::clock::Clock;
use ratelimiter::{Actuals, CompleteRequest, LeaseId, Limiter};
use tokio::runtime;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::observer::{Counters, JobView, Observer};
use super::options::SchedulerOptions;
use super::queued::{JobFacts, Queued};
use super::report::{JobEnd, JobFailure};
use super::unrun::UnrunJob;
use crate::completing::Completing;
use crate::tokio_clock::TokioClock;

/// What the scheduler's handles and tasks share.
pub(super) struct SchedulerContext<L> {
    pub(super) limiter: L,
    pub(super) clock: TokioClock,
    pub(super) jitter: Duration,
    pub(super) complete_for: Duration,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) runtime: runtime::Handle,
    /// A place for each job that may wait.
    pub(super) room: Arc<Semaphore>,
    /// Something happened that the driver should look at.
    pub(super) changed: Notify,
    /// The time to shut down is over: what still runs ends now.
    pub(super) stop: CancellationToken,
    /// How many workers are busy, for whoever waits for them.
    pub(super) busy: watch::Sender<usize>,
    /// Completes that belong to no worker.
    pub(super) loose_ends: TaskTracker,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) admission: Admission<Queued>,
    pub(super) phase: Phase,
    pub(super) counters: Counters,
    /// The jobs that will be handed back, in the order of submission.
    pub(super) unrun: BTreeMap<WaiterId, UnrunJob>,
}

/// Whether jobs are taken, and whether they are let go ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Both.
    Open,
    /// Nobody can submit any more; what was submitted goes ahead.
    Orphaned,
    /// Neither.
    ShutDown,
}

impl<L> SchedulerContext<L> {
    pub(super) fn new(limiter: L, options: SchedulerOptions) -> Self {
        let SchedulerOptions { workers, queue_max, starving_after, jitter, complete_for, observer } =
            options;
        assert!(queue_max > 0, "a job waits at least for a moment");
        let state = State {
            admission: Admission::new(workers, starving_after),
            phase: Phase::Open,
            counters: Counters::default(),
            unrun: BTreeMap::new(),
        };
        Self {
            limiter,
            clock: TokioClock::new(),
            jitter,
            complete_for,
            observer,
            runtime: runtime::Handle::current(),
            room: Arc::new(Semaphore::new(queue_max)),
            changed: Notify::new(),
            stop: CancellationToken::new(),
            busy: watch::Sender::new(0),
            loose_ends: TaskTracker::new(),
            state: Mutex::new(state),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with the lock held")
    }

    pub(super) fn last_clone_is_gone(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Orphaned;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// A job has ended: counts it and tells whoever watches. The owner is told by the caller.
    pub(super) fn record_end(&self, job: &JobView<'_>, end: JobEnd) {
        self.lock().counters.count_end(end);
        tracing::debug!(attempts = job.attempts, waited = ?job.waited, ?end, "job done");
        self.observer.done(job, end);
    }

    /// A job ends without having run.
    pub(super) fn fail(&self, job: Queued, attempts: u32, failure: JobFailure, end: JobEnd) {
        let Queued { facts, work, earlier_attempts, place, control: _ } = job;
        drop(place);
        let view = facts.view(None, attempts + earlier_attempts, self.clock.now());
        self.record_end(&view, end);
        work.fail(failure, view.attempts, view.waited);
    }
}

impl<L: Limiter + 'static> SchedulerContext<L> {
    pub(super) fn enqueue(self: Arc<Self>, state: &mut State, job: Queued) {
        let facts = job.facts.clone();
        let control = job.control.clone();
        let requirements = &facts.requirements;
        // A provider has no colon, so no two models share a queue.
        let queue = format!("{}:{}", requirements.provider(), requirements.model());
        let waiter =
            state.admission.add(&queue, requirements.tenant(), requirements.as_requirements(), job);
        // The scheduler keeps the job, so the job's handle does not keep the scheduler.
        let home = Arc::downgrade(&self);
        control.moves_to(move || {
            if let Some(context) = home.upgrade() {
                context.job_was_cancelled(waiter);
            }
        });
        if control.is_cancelled() {
            // It was cancelled between two schedulers. Not here, where the lock is held.
            let context = self.clone();
            self.runtime.spawn(async move { context.job_was_cancelled(waiter) });
        }
        self.changed.notify_one();
    }

    /// Completes a lease, and repeats that while there is no answer and time is left; the gates of the limits that got room
    /// back open. `after_first` runs when it has been tried once.
    pub(super) async fn complete_in_time(
        &self,
        facts: &JobFacts,
        lease: LeaseId,
        actuals: Actuals,
        after_first: impl FnOnce(),
    ) {
        let Self { limiter, stop, complete_for, .. } = self;
        let completing = Completing { limiter, stop, complete_for: *complete_for };
        let request = CompleteRequest { lease, job: facts.id.clone(), actuals };
        match completing.complete(request, &facts.requirements, after_first).await {
            Some(freed) => {
                self.lock().admission.released(&freed);
                self.changed.notify_one();
            }
            None => self.lock().counters.completes_given_up += 1,
        }
    }

    /// Completes a lease of which nobody knows whether it was allowed, and that nobody will use.
    pub(super) fn complete_unused(self: &Arc<Self>, facts: Arc<JobFacts>, lease: LeaseId) {
        let context = self.clone();
        self.loose_ends.spawn_on(
            async move {
                let unused = facts.requirements.unused();
                context.complete_in_time(&facts, lease, unused, || ()).await;
            },
            &self.runtime,
        );
    }

    /// The owner has cancelled the job: if it waits, it ends now.
    fn job_was_cancelled(self: &Arc<Self>, waiter: WaiterId) {
        let removed = self.lock().admission.remove(waiter);
        // One that asks is looked at when the answer is there; one that runs looks by itself.
        let Removed::Waiting(waiter) = removed else {
            return;
        };
        self.changed.notify_one();
        if let Some(lease) = waiter.unanswered_lease {
            self.complete_unused(waiter.work.facts.clone(), lease);
        }
        self.fail(waiter.work, waiter.attempts, JobFailure::Cancelled, JobEnd::Cancelled);
    }
}

impl State {
    pub(super) fn hand_back(&mut self, id: WaiterId, job: Queued, attempts: u32) {
        self.counters.handed_back += 1;
        self.unrun.insert(id, UnrunJob::new(job, attempts));
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    pub(super) fn counters(&self) -> Counters {
        Counters { waiting: self.admission.waiting(), busy: self.admission.busy(), ..self.counters }
    }
}
