//! The scheduler: timers that are due once, and jobs that are due again and again.

pub(crate) mod job;
pub(crate) mod timer;

use std::future::Future;
use std::time::Duration;

use crate::{
    Answer, BatchSize, Delay, Fence, FencingToken, JobDefinition, JobName, JobRun, LeaseDuration,
    NewTimer, OwnerToken, RunId, Timer, TimerId, Timestamp, TriggerError,
};

/// What saving a job did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobSaved {
    /// The job is new.
    Created,
    /// The job had another definition. Runs that are pending use the new one.
    Updated,
    /// The job had this definition; its next tick stays where it was.
    Unchanged,
}

/// What materialising due jobs did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Materialised {
    /// So many runs were made.
    Runs(usize),
    /// So many runs were made, and jobs were left alone whose definition this build cannot read:
    /// a newer one wrote them, and its workers will (`CRD-13`).
    Partly {
        /// How many runs.
        runs: usize,
        /// How many jobs were left alone.
        unreadable: usize,
    },
    /// The fencing token was smaller than one that was here before: nothing changed.
    StaleFence {
        /// The token that was here before.
        recorded: FencingToken,
    },
}

/// Timers and jobs.
///
/// Timers and job runs are work items: `Ready → Claimed → Done`, and `Dead` for a timer that was
/// cancelled. For the shape of the methods and what the counts mean see [`Outbox`](crate::Outbox).
pub trait Scheduler: Send + Sync + 'static {
    /// Adds a timer. One whose ID is known is left as it is, whatever its state.
    fn schedule_timer(&self, timer: NewTimer) -> impl Answer<TimerId>;

    /// Ends a timer that nobody has claimed. Says how many it ended: 1, or 0 when it was too late.
    fn cancel_timer(&self, id: TimerId) -> impl Answer<usize>;

    /// Claims up to `max` due timers for `lease`, in the order of their creation.
    fn claim_timers(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> impl Answer<Vec<Timer>>;

    /// Finishes claimed timers. Says how many.
    fn ack_timers(&self, owner: &OwnerToken, ids: &[TimerId]) -> impl Answer<usize>;

    /// Gives claimed timers back, due after `delay`. Says how many.
    fn abandon_timers(
        &self,
        owner: &OwnerToken,
        ids: &[TimerId],
        delay: Delay,
    ) -> impl Answer<usize>;

    /// Makes timers ready whose claim has run out. Says how many.
    fn reap_timers(&self) -> impl Answer<usize>;

    /// Saves a job. Its first tick is the first after now.
    fn create_or_update_job(&self, job: JobDefinition) -> impl Answer<JobSaved>;

    /// Deletes a job and its runs that nobody has claimed. Says how many jobs: 1, or 0 for an
    /// unknown one.
    ///
    /// A claimed run can still be acknowledged; given back, it is gone, unless a job of that
    /// name exists again.
    fn delete_job(&self, name: &JobName) -> impl Answer<usize>;

    /// Makes a run of the job that is due now, named by `run` so that the call may be repeated.
    ///
    /// A run's identity is also (job, scheduled time): if the job has a run of this very moment,
    /// that is the run returned.
    fn trigger_job(&self, name: &JobName, run: RunId) -> impl Answer<RunId, TriggerError>;

    /// Makes the runs of all jobs whose tick has come, under a lease: a smaller fencing token than
    /// the largest seen for that resource changes nothing.
    ///
    /// Missed ticks become runs as the job's [`CatchUp`](crate::CatchUp) says.
    fn create_job_runs_from_due_jobs(&self, fence: &Fence) -> impl Answer<Materialised>;

    /// Claims up to `max` due runs for `lease`, in the order of their creation, each with
    /// the job's newest definition.
    fn claim_job_runs(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> impl Answer<Vec<JobRun>>;

    /// Finishes claimed runs. Says how many.
    fn ack_job_runs(&self, owner: &OwnerToken, ids: &[RunId]) -> impl Answer<usize>;

    /// Gives claimed runs back, due after `delay`. Says how many.
    fn abandon_job_runs(
        &self,
        owner: &OwnerToken,
        ids: &[RunId],
        delay: Delay,
    ) -> impl Answer<usize>;

    /// Makes runs ready whose claim has run out. Says how many.
    fn reap_job_runs(&self) -> impl Answer<usize>;

    /// The earliest of: due times of unclaimed timers and runs, next ticks of jobs. May lie in the
    /// past.
    fn next_event_time(&self) -> impl Answer<Option<Timestamp>>;

    /// Forgets timers and runs that were finished `older_than` ago or before. Says how many.
    fn purge(&self, older_than: Duration) -> impl Answer<usize>;

    /// How long the oldest due and unclaimed timer or run has been due, by the provider's clock.
    fn oldest_ready_age(&self) -> impl Answer<Option<Duration>>;

    /// Completes when there may be new work, to spare a worker its poll. May complete for no
    /// reason; the default never does.
    fn work_added(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}
