//! The scheduler: timers, jobs and their runs.

mod jobs;
mod timers;

use std::future::Future;
use std::time::Duration;

use coordination::{
    BatchSize, Delay, Fence, JobDefinition, JobName, JobRun, JobSaved, LeaseDuration, Materialised,
    NewTimer, OwnerToken, Result, RunId, Scheduler, Timer, TimerId, Timestamp, TriggerError,
};

pub(crate) use self::jobs::JobSql;
pub(crate) use self::timers::TimerSql;
use super::Provider;
use crate::engine::Database;
use crate::error::DatabaseError;
use crate::statement::WorkQueue;
use crate::value::ids;

impl<D: Database> Scheduler for Provider<D> {
    async fn schedule_timer(&self, timer: NewTimer) -> Result<TimerId> {
        let scheduled = self.sql().timers.schedule(self.engine(), &timer).await;
        if scheduled.map_err(DatabaseError::of("schedule timer"))? > 0 {
            self.engine().notify_work(WorkQueue::Scheduler);
        }
        Ok(timer.id)
    }

    async fn cancel_timer(&self, id: TimerId) -> Result<usize> {
        let cancelled = self.sql().timers.cancel(self.engine(), id).await;
        cancelled.map_err(DatabaseError::of("cancel timer"))
    }

    async fn claim_timers(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> Result<Vec<Timer>> {
        let (claim, by) = (&self.sql().timers.claim, (owner, lease, max));
        let claimed = claim.run(self.engine(), by, None, timers::timer::<D>).await;
        claimed.map_err(DatabaseError::of("claim timers"))
    }

    async fn ack_timers(&self, owner: &OwnerToken, timers: &[TimerId]) -> Result<usize> {
        let values = vec![owner.into(), ids(timers)];
        self.change("ack timers", &self.sql().timers.work.finish, timers, values).await
    }

    async fn abandon_timers(
        &self,
        owner: &OwnerToken,
        timers: &[TimerId],
        delay: Delay,
    ) -> Result<usize> {
        let values = vec![owner.into(), ids(timers), delay.into()];
        let give_back = &self.sql().timers.work.give_back;
        self.change("abandon timers", give_back, timers, values).await
    }

    async fn reap_timers(&self) -> Result<usize> {
        self.sql().timers.work.reap(self.engine()).await.map_err(DatabaseError::of("reap timers"))
    }

    async fn create_or_update_job(&self, job: JobDefinition) -> Result<JobSaved> {
        let saved = self.sql().jobs.save(self.engine(), &job).await;
        let saved = saved.map_err(DatabaseError::of("save job"))?;
        self.engine().notify_work(WorkQueue::Scheduler);
        Ok(saved)
    }

    async fn delete_job(&self, name: &JobName) -> Result<usize> {
        let deleted = self.sql().jobs.delete(self.engine(), name).await;
        deleted.map_err(DatabaseError::of("delete job"))
    }

    async fn trigger_job(&self, name: &JobName, run: RunId) -> Result<RunId, TriggerError> {
        let triggered = self.sql().jobs.trigger(self.engine(), name, run).await;
        let triggered = triggered.map_err(DatabaseError::of("trigger job"))?;
        self.engine().notify_work(WorkQueue::Scheduler);
        triggered.ok_or_else(|| TriggerError::UnknownJob { name: name.clone() })
    }

    async fn create_job_runs_from_due_jobs(&self, fence: &Fence) -> Result<Materialised> {
        let made = self.sql().jobs.materialise(self.engine(), fence).await;
        made.map_err(DatabaseError::of("create job runs"))
    }

    async fn claim_job_runs(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> Result<Vec<JobRun>> {
        let (claim, by) = (&self.sql().jobs.claim_runs, (owner, lease, max));
        let claimed = claim.run(self.engine(), by, None, jobs::readable_run::<D>).await;
        claimed
            .map(|runs| runs.into_iter().flatten().collect())
            .map_err(DatabaseError::of("claim job runs"))
    }

    async fn ack_job_runs(&self, owner: &OwnerToken, runs: &[RunId]) -> Result<usize> {
        let values = vec![owner.into(), ids(runs)];
        self.change("ack job runs", &self.sql().jobs.runs.finish, runs, values).await
    }

    async fn abandon_job_runs(
        &self,
        owner: &OwnerToken,
        runs: &[RunId],
        delay: Delay,
    ) -> Result<usize> {
        let values = vec![owner.into(), ids(runs), delay.into()];
        let give_back = &self.sql().jobs.runs.give_back;
        self.change("abandon job runs", give_back, runs, values).await
    }

    async fn reap_job_runs(&self) -> Result<usize> {
        self.sql().jobs.runs.reap(self.engine()).await.map_err(DatabaseError::of("reap job runs"))
    }

    async fn next_event_time(&self) -> Result<Option<Timestamp>> {
        let next = self.sql().jobs.next_event_time(self.engine()).await;
        next.map_err(DatabaseError::of("next event time"))
    }

    async fn purge(&self, older_than: Duration) -> Result<usize> {
        let purge = async {
            let timers = self.sql().timers.purge.run(self.engine(), older_than).await?;
            Ok(timers + self.sql().jobs.purge_runs.run(self.engine(), older_than).await?)
        };
        purge.await.map_err(DatabaseError::of("scheduler purge"))
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>> {
        let age = async {
            let timers = self.sql().timers.work.oldest_ready_age(self.engine()).await?;
            Ok(timers.max(self.sql().jobs.runs.oldest_ready_age(self.engine()).await?))
        };
        age.await.map_err(DatabaseError::of("scheduler oldest ready age"))
    }

    // Not an `async fn`: the future must see notifications from this call on, polled or not.
    fn work_added(&self) -> impl Future<Output = ()> + Send {
        self.engine().work_added(WorkQueue::Scheduler)
    }
}
