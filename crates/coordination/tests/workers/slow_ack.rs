//! A scheduler that acknowledges the first timer and then keeps its caller waiting until it is let
//! go; and one that never ends reaping.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coordination::{
    BatchSize, Delay, Fence, JobDefinition, JobName, JobRun, JobSaved, LeaseDuration, Materialised,
    MemoryProvider, NewTimer, OwnerToken, Result, RunId, Scheduler, Timer, TimerId, Timestamp,
    TriggerError,
};
use tokio::sync::Semaphore;

#[derive(Debug, Clone)]
pub(crate) struct SlowAck {
    inner: MemoryProvider,
    acknowledged: Arc<AtomicUsize>,
    reaping_ends: bool,
    pub(crate) let_go: Arc<Semaphore>,
}

impl SlowAck {
    pub(crate) fn new(inner: MemoryProvider) -> SlowAck {
        let let_go = Arc::new(Semaphore::new(0));
        SlowAck { inner, acknowledged: Arc::default(), reaping_ends: true, let_go }
    }

    pub(crate) fn reaping_never_ends(inner: MemoryProvider) -> SlowAck {
        SlowAck { reaping_ends: false, ..SlowAck::new(inner) }
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst)
    }
}

impl Scheduler for SlowAck {
    async fn ack_timers(&self, owner: &OwnerToken, ids: &[TimerId]) -> Result<usize> {
        let count = self.inner.ack_timers(owner, ids).await?;
        if self.acknowledged.fetch_add(1, Ordering::SeqCst) == 0 {
            self.let_go.acquire().await.expect("never closed").forget();
        }
        Ok(count)
    }

    async fn schedule_timer(&self, timer: NewTimer) -> Result<TimerId> {
        self.inner.schedule_timer(timer).await
    }

    async fn cancel_timer(&self, id: TimerId) -> Result<usize> {
        self.inner.cancel_timer(id).await
    }

    async fn claim_timers(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> Result<Vec<Timer>> {
        self.inner.claim_timers(owner, lease, max).await
    }

    async fn abandon_timers(
        &self,
        owner: &OwnerToken,
        ids: &[TimerId],
        delay: Delay,
    ) -> Result<usize> {
        self.inner.abandon_timers(owner, ids, delay).await
    }

    async fn reap_timers(&self) -> Result<usize> {
        if !self.reaping_ends {
            std::future::pending::<()>().await;
        }
        self.inner.reap_timers().await
    }

    async fn create_or_update_job(&self, job: JobDefinition) -> Result<JobSaved> {
        self.inner.create_or_update_job(job).await
    }

    async fn delete_job(&self, name: &JobName) -> Result<usize> {
        self.inner.delete_job(name).await
    }

    async fn trigger_job(&self, name: &JobName, run: RunId) -> Result<RunId, TriggerError> {
        self.inner.trigger_job(name, run).await
    }

    async fn create_job_runs_from_due_jobs(&self, fence: &Fence) -> Result<Materialised> {
        self.inner.create_job_runs_from_due_jobs(fence).await
    }

    async fn claim_job_runs(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> Result<Vec<JobRun>> {
        self.inner.claim_job_runs(owner, lease, max).await
    }

    async fn ack_job_runs(&self, owner: &OwnerToken, ids: &[RunId]) -> Result<usize> {
        self.inner.ack_job_runs(owner, ids).await
    }

    async fn abandon_job_runs(
        &self,
        owner: &OwnerToken,
        ids: &[RunId],
        delay: Delay,
    ) -> Result<usize> {
        self.inner.abandon_job_runs(owner, ids, delay).await
    }

    async fn reap_job_runs(&self) -> Result<usize> {
        self.inner.reap_job_runs().await
    }

    async fn next_event_time(&self) -> Result<Option<Timestamp>> {
        self.inner.next_event_time().await
    }

    async fn purge(&self, older_than: Duration) -> Result<usize> {
        Scheduler::purge(&self.inner, older_than).await
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>> {
        Scheduler::oldest_ready_age(&self.inner).await
    }
}
