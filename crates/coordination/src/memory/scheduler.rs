//! The scheduler: timers, and the jobs of [`jobs`](super::jobs).

use std::time::Duration;

use super::MemoryProvider;
use super::jobs::JobState;
use super::work::{LaneFilter, Outcome, WorkItems};
use crate::{
    BatchSize, CorrelationId, Delay, Fence, JobDefinition, JobName, JobRun, JobSaved,
    LeaseDuration, Materialised, NewTimer, OwnerToken, Payload, Result, Retention, RunId,
    Scheduler, Timer, TimerId, Timestamp, Topic, TriggerError,
};

#[derive(Debug, Default)]
pub(super) struct SchedulerState {
    timers: WorkItems<TimerId, StoredTimer>,
    jobs: JobState,
}

/// The value of a work item that is a timer.
#[derive(Debug)]
struct StoredTimer {
    topic: Topic,
    payload: Payload,
    correlation_id: Option<CorrelationId>,
}

impl Scheduler for MemoryProvider {
    async fn schedule_timer(&self, timer: NewTimer) -> Result<TimerId> {
        let NewTimer { id, topic, payload, correlation_id, due_at } = timer;
        let (mut scheduler, _) = self.shared.scheduler.lock();
        if scheduler.timers.get(&id).is_none() {
            scheduler.timers.add((), id, due_at, StoredTimer { topic, payload, correlation_id });
        }
        self.shared.scheduler.notify_work(scheduler, 1);
        Ok(id)
    }

    async fn cancel_timer(&self, id: TimerId) -> Result<usize> {
        let (mut scheduler, now) = self.shared.scheduler.lock();
        Ok(usize::from(scheduler.timers.cancel(now, &id).is_some()))
    }

    async fn claim_timers(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> Result<Vec<Timer>> {
        let (mut scheduler, now) = self.shared.scheduler.lock();
        Ok(scheduler.timers.claim(now, owner, lease, max, &LaneFilter::All, |id, item| Timer {
            id: *id,
            topic: item.value.topic.clone(),
            payload: item.value.payload.clone(),
            correlation_id: item.value.correlation_id.clone(),
            due_at: item.due_at,
            attempts: item.attempts,
        }))
    }

    async fn ack_timers(&self, owner: &OwnerToken, ids: &[TimerId]) -> Result<usize> {
        let (mut scheduler, now) = self.shared.scheduler.lock();
        let timers = &mut scheduler.timers;
        let acked = |id: &&TimerId| timers.finish(now, owner, id, Outcome::Done).is_some();
        Ok(ids.iter().filter(acked).count())
    }

    async fn abandon_timers(
        &self,
        owner: &OwnerToken,
        ids: &[TimerId],
        delay: Delay,
    ) -> Result<usize> {
        let (mut scheduler, now) = self.shared.scheduler.lock();
        let (timers, due_at) = (&mut scheduler.timers, now.after(delay.get()));
        let given_back = |id: &&TimerId| timers.give_back(owner, id, due_at).is_some();
        Ok(ids.iter().filter(given_back).count())
    }

    async fn reap_timers(&self) -> Result<usize> {
        let (mut scheduler, now) = self.shared.scheduler.lock();
        Ok(scheduler.timers.reap(now).len())
    }

    async fn create_or_update_job(&self, job: JobDefinition) -> Result<JobSaved> {
        let (mut scheduler, now) = self.shared.scheduler.lock();
        let saved = scheduler.jobs.save(now, job);
        self.shared.scheduler.notify_work(scheduler, 1);
        Ok(saved)
    }

    async fn delete_job(&self, name: &JobName) -> Result<usize> {
        let (mut scheduler, now) = self.shared.scheduler.lock();
        Ok(scheduler.jobs.delete(now, name))
    }

    async fn trigger_job(&self, name: &JobName, run: RunId) -> Result<RunId, TriggerError> {
        let (mut scheduler, now) = self.shared.scheduler.lock();
        let triggered = scheduler.jobs.trigger(now, name, run);
        self.shared.scheduler.notify_work(scheduler, 1);
        triggered.ok_or_else(|| TriggerError::UnknownJob { name: name.clone() })
    }

    async fn create_job_runs_from_due_jobs(&self, fence: &Fence) -> Result<Materialised> {
        let (mut scheduler, now) = self.shared.scheduler.lock();
        Ok(scheduler.jobs.materialise(now, fence))
    }

    async fn claim_job_runs(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> Result<Vec<JobRun>> {
        let (mut scheduler, now) = self.shared.scheduler.lock();
        Ok(scheduler.jobs.claim(now, owner, lease, max))
    }

    async fn ack_job_runs(&self, owner: &OwnerToken, ids: &[RunId]) -> Result<usize> {
        let (mut scheduler, now) = self.shared.scheduler.lock();
        let runs = &mut scheduler.jobs.runs;
        let acked = |id: &&RunId| runs.finish(now, owner, id, Outcome::Done).is_some();
        Ok(ids.iter().filter(acked).count())
    }

    async fn abandon_job_runs(
        &self,
        owner: &OwnerToken,
        ids: &[RunId],
        delay: Delay,
    ) -> Result<usize> {
        let (mut scheduler, now) = self.shared.scheduler.lock();
        Ok(scheduler.jobs.abandon(now, owner, ids, delay))
    }

    async fn reap_job_runs(&self) -> Result<usize> {
        let (mut scheduler, now) = self.shared.scheduler.lock();
        Ok(scheduler.jobs.reap(now))
    }

    async fn next_event_time(&self) -> Result<Option<Timestamp>> {
        let (scheduler, _) = self.shared.scheduler.lock();
        Ok(scheduler.next_due_at().into_iter().chain(scheduler.jobs.next_tick()).min())
    }

    async fn purge(&self, older_than: Duration) -> Result<usize> {
        let (mut scheduler, now) = self.shared.scheduler.lock();
        let keep = Retention::of_all(older_than);
        let timers = scheduler.timers.purge(now, &LaneFilter::All, keep, |_, _| {});
        Ok(timers + scheduler.jobs.purge(now, keep))
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>> {
        let (scheduler, now) = self.shared.scheduler.lock();
        let oldest = scheduler.next_due_at().filter(|due_at| *due_at <= now);
        Ok(oldest.map(|due_at| now.since(due_at)))
    }

    fn work_added(&self) -> impl Future<Output = ()> + Send {
        self.shared.scheduler.work_added.notified()
    }
}

impl SchedulerState {
    /// The earliest due time of a ready timer or run.
    fn next_due_at(&self) -> Option<Timestamp> {
        [self.timers.next_due_at(), self.jobs.runs.next_due_at()].into_iter().flatten().min()
    }
}
