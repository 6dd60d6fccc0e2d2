//! State that a scheduler's handles and tasks share.

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
use super::queued::{JobFacts, QueuedJob};
use super::report::{JobEnd, JobFailure};
use super::unrun::UnrunJob;
use crate::completer::Completer;
use crate::tokio_clock::TokioClock;

pub(super) struct SchedulerContext<L> {
    pub(super) limiter: L,
    pub(super) clock: TokioClock,
    pub(super) jitter: Duration,
    pub(super) complete_for: Duration,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) runtime: runtime::Handle,
    /// One permit for each job that may wait.
    pub(super) queue_slots: Arc<Semaphore>,
    /// Wakes the driver.
    pub(super) changed: Notify,
    /// Cancelled when no more jobs may start.
    pub(super) closing: CancellationToken,
    /// Cancelled when the time to shut down is over, to end running jobs.
    pub(super) stop: CancellationToken,
    /// The number of busy workers, to wait for them.
    pub(super) busy: watch::Sender<usize>,
    /// Completes without a worker.
    pub(super) background_completes: TaskTracker,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) admission: Admission<QueuedJob>,
    pub(super) phase: Phase,
    pub(super) counters: Counters,
    /// The jobs to hand back, in the order of submission.
    pub(super) unrun: BTreeMap<WaiterId, UnrunJob>,
}

/// Whether jobs are accepted, and whether they may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Both.
    Open,
    /// No handle is left to submit jobs; submitted ones may start.
    Orphaned,
    /// Neither.
    ShutDown,
}

impl<L> SchedulerContext<L> {
    pub(super) fn new(limiter: L, options: SchedulerOptions) -> Self {
        let SchedulerOptions { workers, queue_max, starving_after, jitter, complete_for, observer } =
            options;
        assert!(queue_max > 0, "every job waits for a moment");
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
            queue_slots: Arc::new(Semaphore::new(queue_max)),
            changed: Notify::new(),
            closing: CancellationToken::new(),
            stop: CancellationToken::new(),
            busy: watch::Sender::new(0),
            background_completes: TaskTracker::new(),
            state: Mutex::new(state),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic with the lock held")
    }

    pub(super) fn on_last_clone_dropped(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Orphaned;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Counts the end of a job and notifies the observer. The caller notifies the owner.
    pub(super) fn record_end(&self, job: &JobView<'_>, end: JobEnd) {
        self.lock().counters.count_end(end);
        tracing::debug!(attempts = job.attempts, waited = ?job.waited, ?end, "job done");
        self.observer.done(job, end);
    }

    /// Ends a job that did not run.
    pub(super) fn fail(&self, job: QueuedJob, attempts: u32, failure: JobFailure, end: JobEnd) {
        let QueuedJob { facts, work, earlier_attempts, queue_permit, control: _ } = job;
        drop(queue_permit);
        let view = facts.view(None, attempts + earlier_attempts, self.clock.now());
        self.record_end(&view, end);
        work.fail(failure, view.attempts, view.waited);
    }
}

impl<L: Limiter + 'static> SchedulerContext<L> {
    pub(super) fn enqueue(self: Arc<Self>, state: &mut State, job: QueuedJob) {
        let facts = job.facts.clone();
        let control = job.control.clone();
        let requirements = &facts.requirements;
        // A provider has no colon, so no two models share a queue.
        let queue = format!("{}:{}", requirements.provider(), requirements.model());
        let waiter =
            state.admission.add(&queue, requirements.tenant(), requirements.as_requirements(), job);
        // Weak, because the scheduler owns the job.
        let scheduler = Arc::downgrade(&self);
        control.attach(move || {
            if let Some(context) = scheduler.upgrade() {
                context.on_job_cancelled(waiter);
            }
        });
        if control.is_cancelled() {
            // It was cancelled between two schedulers. Spawned, because the lock is held here.
            let context = self.clone();
            self.runtime.spawn(async move { context.on_job_cancelled(waiter) });
        }
        self.changed.notify_one();
    }

    /// Completes a lease, with retries; the gates of the limits that got room back open. `after_first` runs after the first
    /// try.
    pub(super) async fn complete(
        &self,
        facts: &JobFacts,
        lease: LeaseId,
        actuals: Actuals,
        after_first: impl FnOnce(),
    ) {
        let Self { limiter, stop, complete_for, .. } = self;
        let completer = Completer { limiter, stop, complete_for: *complete_for };
        let request = CompleteRequest { lease, job: facts.id.clone(), actuals };
        match completer.complete(request, &facts.requirements, after_first).await {
            Some(freed) => {
                self.lock().admission.released(&freed);
                self.changed.notify_one();
            }
            None => self.lock().counters.completes_given_up += 1,
        }
    }

    /// Completes an unused lease that may have been allowed.
    pub(super) fn complete_unused(self: &Arc<Self>, facts: Arc<JobFacts>, lease: LeaseId) {
        let context = self.clone();
        self.background_completes.spawn_on(
            async move {
                let unused = facts.requirements.unused();
                context.complete(&facts, lease, unused, || ()).await;
            },
            &self.runtime,
        );
    }

    /// The owner has cancelled the job: if it waits, it ends now.
    fn on_job_cancelled(self: &Arc<Self>, waiter: WaiterId) {
        let removed = self.lock().admission.remove(waiter);
        // A job that asks is checked after its answer; one that runs watches its token.
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
    pub(super) fn hand_back(&mut self, id: WaiterId, job: QueuedJob, attempts: u32) {
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
