//! What the scheduler's tasks share.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use ratelimiter::admission::{Admission, Removed, WaiterId};
use ratelimiter::clock::{Clock, Timestamp};
use ratelimiter::{Actuals, JobId, LeaseId, Limiter};
use tokio::runtime;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::control::{Control, Home};
use super::job::Work;
use super::observer::{Counters, JobView, Observer};
use super::options::SchedulerOptions;
use super::report::{JobEnd, JobFailure};
use super::unrun::UnrunJob;
use crate::llm::LlmNeeds;
use crate::tokio_clock::TokioClock;

/// What the scheduler's handles and tasks share.
pub(super) struct Shared<L> {
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
    /// The jobs that will be handed back.
    pub(super) unrun: Vec<UnrunJob>,
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

/// A job that waits, asks or runs.
pub(super) struct Queued {
    pub(super) facts: Arc<JobFacts>,
    pub(super) control: Arc<Control>,
    pub(super) work: Box<dyn Work>,
    /// Attempts at another scheduler.
    pub(super) earlier_attempts: u32,
    /// The job's place among those that may wait.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

/// What does not change about a job.
#[derive(Debug)]
pub(super) struct JobFacts {
    pub(super) id: Option<JobId>,
    pub(super) needs: LlmNeeds,
    pub(super) submitted_at: Timestamp,
}

impl<L> Shared<L> {
    pub(super) fn new(limiter: L, options: SchedulerOptions) -> Self {
        let SchedulerOptions { workers, queue_max, starving_after, jitter, complete_for, observer } =
            options;
        assert!(queue_max > 0, "a job waits at least for a moment");
        let state = State {
            admission: Admission::new(workers, starving_after),
            phase: Phase::Open,
            counters: Counters::default(),
            unrun: Vec::new(),
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
    pub(super) fn tell_end(&self, job: &JobView<'_>, end: JobEnd) {
        self.lock().counters.count_end(end);
        tracing::debug!(attempts = job.attempts, waited = ?job.waited, ?end, "job done");
        self.observer.done(job, end);
    }

    /// A job ends without having run.
    pub(super) fn fail(&self, job: Queued, attempts: u32, failure: JobFailure, end: JobEnd) {
        let Queued { facts, work, earlier_attempts, place, control: _ } = job;
        drop(place);
        let view = facts.view(None, attempts + earlier_attempts, self.clock.now());
        self.tell_end(&view, end);
        work.fail(failure, view.attempts, view.waited);
    }
}

impl<L: Limiter + 'static> Shared<L> {
    pub(super) fn enqueue(self: Arc<Self>, state: &mut State, job: Queued) {
        let facts = job.facts.clone();
        let control = job.control.clone();
        let needs = &facts.needs;
        // A provider has no colon, so no two models share a queue.
        let queue = format!("{}:{}", needs.provider(), needs.model());
        let waiter = state.admission.add(&queue, needs.tenant(), needs.requirements(), job);
        let home: Arc<dyn Home> = self.clone();
        let home: Weak<dyn Home> = Arc::downgrade(&home);
        control.moves_to(home, waiter);
        if control.is_cancelled() {
            // It was cancelled between two schedulers. Not here, where the lock is held.
            let shared = self.clone();
            self.runtime.spawn(async move { shared.job_was_cancelled(waiter) });
        }
        self.changed.notify_one();
    }

    /// Completes a lease of which nobody knows whether it was allowed, and that nobody will use.
    pub(super) fn complete_unused(self: &Arc<Self>, facts: Arc<JobFacts>, lease: LeaseId) {
        let shared = self.clone();
        self.loose_ends.spawn_on(
            async move {
                let unused = facts.needs.unused();
                shared.complete_in_time(&facts, lease, unused, || ()).await;
            },
            &self.runtime,
        );
    }
}

impl<L: Limiter + 'static> Home for Shared<L> {
    fn job_was_cancelled(self: Arc<Self>, waiter: WaiterId) {
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
    pub(super) const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    pub(super) fn counters(&self) -> Counters {
        Counters { waiting: self.admission.waiting(), busy: self.admission.busy(), ..self.counters }
    }
}

impl JobFacts {
    pub(super) fn view(
        &self,
        lease: Option<LeaseId>,
        attempts: u32,
        now: Timestamp,
    ) -> JobView<'_> {
        JobView {
            id: self.id.as_ref(),
            tenant: self.needs.tenant(),
            provider: self.needs.provider(),
            model: self.needs.model(),
            lease,
            attempts,
            waited: now.since(self.submitted_at),
        }
    }

    pub(super) fn actuals(&self, tokens: Option<u64>) -> Actuals {
        tokens.map_or_else(Actuals::none, |tokens| self.needs.actuals(tokens))
    }
}
