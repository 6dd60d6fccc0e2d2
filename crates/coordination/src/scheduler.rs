//! The scheduler: timers and recurring jobs.

pub(crate) mod job;
pub(crate) mod timer;

use std::future::Future;
use std::time::Duration;

use crate::{
    Answer, BatchSize, Delay, Fence, FencingToken, JobDefinition, JobName, JobRun, LeaseDuration,
    NewTimer, OwnerToken, RunId, Timer, TimerId, Timestamp, TriggerError,
};

/// The result of saving a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobSaved {
    /// The job is new.
    Created,
    /// The job had another definition. Pending runs use the new one.
    Updated,
    /// The job had this definition; its next tick stays.
    Unchanged,
}

/// The result of materialising due jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
#[expect(missing_docs, reason = "the fields are named for what they hold")]
pub enum Materialised {
    /// The number of runs created.
    Runs(usize),
    /// Runs were created, and jobs were skipped whose definition this build cannot read: a newer
    /// build wrote them, and its workers will run them (`CRD-13`).
    Partly { runs: usize, unreadable: usize },
    /// The fencing token was smaller than the recorded one: nothing changed.
    StaleFence { recorded: FencingToken },
}

/// Timers and jobs.
///
/// Timers and job runs are work items: `Ready → Claimed → Done`, and `Dead` for a timer that was
/// cancelled. [`Outbox`](crate::Outbox) explains the methods' return types and counts.
pub trait Scheduler: Send + Sync + 'static {
    /// Adds a timer. A timer whose ID is known stays as it is, whatever its state.
    fn schedule_timer(&self, timer: NewTimer) -> impl Answer<TimerId>;

    /// Cancels an unclaimed timer. Returns 1, or 0 if it was too late.
    fn cancel_timer(&self, id: TimerId) -> impl Answer<usize>;

    /// Claims up to `max` due timers for `lease`, in creation order.
    fn claim_timers(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> impl Answer<Vec<Timer>>;

    /// Finishes claimed timers. Returns how many.
    fn ack_timers(&self, owner: &OwnerToken, ids: &[TimerId]) -> impl Answer<usize>;

    /// Makes claimed timers ready again, due after `delay`. Returns how many.
    fn abandon_timers(
        &self,
        owner: &OwnerToken,
        ids: &[TimerId],
        delay: Delay,
    ) -> impl Answer<usize>;

    /// Makes timers ready whose claim has expired. Returns how many.
    fn reap_timers(&self) -> impl Answer<usize>;

    /// Saves a job. Its first tick is the first after now.
    fn create_or_update_job(&self, job: JobDefinition) -> impl Answer<JobSaved>;

    /// Deletes a job and its unclaimed runs. Returns 1, or 0 if the job is unknown.
    ///
    /// A claimed run can still be acknowledged. If it is abandoned or reaped it ends, unless a job
    /// of that name exists again.
    fn delete_job(&self, name: &JobName) -> impl Answer<usize>;

    /// Creates a run of the job that is due now, with the ID `run` so that the call may be
    /// repeated.
    ///
    /// A run is also identified by (job, scheduled time): if the job has a run scheduled at this
    /// very moment, that run's ID is returned.
    fn trigger_job(&self, name: &JobName, run: RunId) -> impl Answer<RunId, TriggerError>;

    /// Creates the runs of all due jobs, under a lease: with a smaller fencing token than the
    /// largest seen for that resource nothing changes.
    ///
    /// Missed ticks become runs as the job's [`CatchUp`](crate::CatchUp) says.
    fn create_job_runs_from_due_jobs(&self, fence: &Fence) -> impl Answer<Materialised>;

    /// Claims up to `max` due runs for `lease`, in creation order, each with the job's newest
    /// definition.
    fn claim_job_runs(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> impl Answer<Vec<JobRun>>;

    /// Finishes claimed runs. Returns how many.
    fn ack_job_runs(&self, owner: &OwnerToken, ids: &[RunId]) -> impl Answer<usize>;

    /// Makes claimed runs ready again, due after `delay`. Returns how many.
    fn abandon_job_runs(
        &self,
        owner: &OwnerToken,
        ids: &[RunId],
        delay: Delay,
    ) -> impl Answer<usize>;

    /// Makes runs ready whose claim has expired. Returns how many.
    fn reap_job_runs(&self) -> impl Answer<usize>;

    /// The earliest of: due times of unclaimed timers and runs, next ticks of jobs. May be in the
    /// past.
    fn next_event_time(&self) -> impl Answer<Option<Timestamp>>;

    /// Deletes timers and runs that were finished at least `older_than` ago. Returns how many.
    fn purge(&self, older_than: Duration) -> impl Answer<usize>;

    /// How long the oldest due and unclaimed timer or run has been due, by the provider's clock.
    fn oldest_ready_age(&self) -> impl Answer<Option<Duration>>;

    /// Completes when there may be new work, so that a worker need not poll. It may complete
    /// spuriously; the default never completes.
    fn work_added(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}
