//! The traits, each call a lock and a step of the state machine.

use std::sync::Arc;
use std::time::Duration;

use super::MemoryProvider;
use crate::outbox::join::{JoinError, JoinProgress, Joins, NewJoin};
use crate::{
    BatchSize, Clock, ContentHash, Delay, Enqueued, ErrorText, Fence, FencingToken, GetError,
    Inbox, InboxKey, InboxMessage, JobDefinition, JobName, JobRun, JobSaved, JoinId, LeaseDuration,
    Leases, Materialised, MessageId, NewInboxMessage, NewOutboxMessage, NewTimer, Outbox,
    OutboxMessage, OutboxRecord, OwnerToken, Processed, ResourceName, Result, Retention, RunId,
    Scheduler, Settlement, Tenure, Timer, TimerId, Timestamp, Topics, TriggerError,
};

impl MemoryProvider {
    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }
}

impl Outbox for MemoryProvider {
    async fn enqueue(&self, message: NewOutboxMessage) -> Result<MessageId> {
        let id = self.shared.outbox.lock().enqueue(self.now(), message);
        self.shared.outbox.tell_of_work(1);
        Ok(id)
    }

    async fn claim_due_of(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> Result<Vec<OutboxMessage>> {
        Ok(self.shared.outbox.lock().claim_due(self.now(), owner, lease, max, topics))
    }

    async fn begin(
        &self,
        owner: &OwnerToken,
        id: MessageId,
        lease: LeaseDuration,
    ) -> Result<Option<u32>> {
        Ok(self.shared.outbox.lock().begin(self.now(), owner, id, lease))
    }

    async fn extend(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        lease: LeaseDuration,
    ) -> Result<usize> {
        Ok(self.shared.outbox.lock().extend(self.now(), owner, ids, lease))
    }

    async fn settle(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        settlement: &Settlement,
    ) -> Result<usize> {
        let count = self.shared.outbox.lock().settle(self.now(), owner, ids, settlement);
        if let Settlement::Retry { .. } | Settlement::PutOff { .. } = settlement {
            self.shared.outbox.tell_of_work(count);
        }
        Ok(count)
    }

    async fn dead(&self, after: Option<MessageId>, max: BatchSize) -> Result<Vec<OutboxRecord>> {
        Ok(self.shared.outbox.lock().dead(after, max))
    }

    async fn revive(&self, ids: &[MessageId], reason: &ErrorText, delay: Delay) -> Result<usize> {
        let count = self.shared.outbox.lock().revive(self.now(), ids, reason, delay);
        self.shared.outbox.tell_of_work(count);
        Ok(count)
    }

    async fn record(&self, id: MessageId) -> Result<Option<OutboxRecord>> {
        Ok(self.shared.outbox.lock().record(id))
    }

    async fn reap(&self) -> Result<usize> {
        let count = self.shared.outbox.lock().reap(self.now());
        self.shared.outbox.tell_of_work(count);
        Ok(count)
    }

    async fn purge(&self, topics: &Topics, keep: Retention) -> Result<usize> {
        Ok(self.shared.outbox.lock().purge(self.now(), topics, keep))
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>> {
        Ok(self.shared.outbox.lock().oldest_ready_age(self.now()))
    }

    async fn next_due_after(&self, topics: &Topics) -> Result<Option<Duration>> {
        Ok(self.shared.outbox.lock().next_due_after(self.now(), topics))
    }

    // Not an `async fn`: the future hears of what comes after this call, polled or not.
    fn work_added(&self) -> impl Future<Output = ()> + Send {
        self.shared.outbox.work_added.notified()
    }
}

impl Joins for MemoryProvider {
    async fn start_join(&self, join: NewJoin) -> Result<JoinId> {
        Ok(self.shared.outbox.lock().start_join(&join))
    }

    async fn join_progress(&self, id: JoinId) -> Result<JoinProgress, JoinError> {
        self.shared.outbox.lock().join_progress(id).ok_or(JoinError::Unknown { id })
    }
}

impl Inbox for MemoryProvider {
    async fn already_processed(
        &self,
        key: &InboxKey,
        hash: Option<&ContentHash>,
    ) -> Result<Processed> {
        Ok(self.shared.inbox.lock().already_processed(key, hash))
    }

    async fn enqueue(&self, message: NewInboxMessage) -> Result<Enqueued> {
        let enqueued = self.shared.inbox.lock().enqueue(self.now(), message);
        self.shared.inbox.tell_of_work(1);
        Ok(enqueued)
    }

    async fn claim_of(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
        topics: &Topics,
    ) -> Result<Vec<InboxMessage>> {
        Ok(self.shared.inbox.lock().claim(self.now(), owner, lease, max, topics))
    }

    async fn begin(
        &self,
        owner: &OwnerToken,
        key: &InboxKey,
        lease: LeaseDuration,
    ) -> Result<Option<u32>> {
        Ok(self.shared.inbox.lock().begin(self.now(), owner, key, lease))
    }

    async fn settle(
        &self,
        owner: &OwnerToken,
        keys: &[InboxKey],
        settlement: &Settlement,
    ) -> Result<usize> {
        let count = self.shared.inbox.lock().settle(self.now(), owner, keys, settlement);
        if let Settlement::PutOff { .. } = settlement {
            self.shared.inbox.tell_of_work(count);
        }
        Ok(count)
    }

    async fn get(&self, key: &InboxKey) -> Result<InboxMessage, GetError> {
        let message = self.shared.inbox.lock().get(key);
        message.ok_or_else(|| GetError::Unknown { key: key.clone() })
    }

    async fn revive(&self, keys: &[InboxKey], reason: &ErrorText, delay: Delay) -> Result<usize> {
        let count = self.shared.inbox.lock().revive(self.now(), keys, reason, delay);
        self.shared.inbox.tell_of_work(1);
        Ok(count)
    }

    async fn reap(&self) -> Result<usize> {
        Ok(self.shared.inbox.lock().reap(self.now()))
    }

    async fn purge(&self, topics: &Topics, keep: Retention) -> Result<usize> {
        Ok(self.shared.inbox.lock().purge(self.now(), topics, keep))
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>> {
        Ok(self.shared.inbox.lock().oldest_ready_age(self.now()))
    }

    fn work_added(&self) -> impl Future<Output = ()> + Send {
        self.shared.inbox.work_added.notified()
    }
}

impl Scheduler for MemoryProvider {
    async fn schedule_timer(&self, timer: NewTimer) -> Result<TimerId> {
        let id = self.shared.scheduler.lock().timers.schedule(timer);
        self.shared.scheduler.tell_of_work(1);
        Ok(id)
    }

    async fn cancel_timer(&self, id: TimerId) -> Result<usize> {
        Ok(self.shared.scheduler.lock().timers.cancel(self.now(), id))
    }

    async fn claim_timers(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> Result<Vec<Timer>> {
        Ok(self.shared.scheduler.lock().timers.claim(self.now(), owner, lease, max))
    }

    async fn ack_timers(&self, owner: &OwnerToken, ids: &[TimerId]) -> Result<usize> {
        Ok(self.shared.scheduler.lock().timers.ack(self.now(), owner, ids))
    }

    async fn abandon_timers(
        &self,
        owner: &OwnerToken,
        ids: &[TimerId],
        delay: Delay,
    ) -> Result<usize> {
        Ok(self.shared.scheduler.lock().timers.abandon(self.now(), owner, ids, delay))
    }

    async fn reap_timers(&self) -> Result<usize> {
        Ok(self.shared.scheduler.lock().timers.reap(self.now()))
    }

    async fn create_or_update_job(&self, job: JobDefinition) -> Result<JobSaved> {
        let saved = self.shared.scheduler.lock().jobs.save(self.now(), job);
        self.shared.scheduler.tell_of_work(1);
        Ok(saved)
    }

    async fn delete_job(&self, name: &JobName) -> Result<usize> {
        Ok(self.shared.scheduler.lock().jobs.delete(self.now(), name))
    }

    async fn trigger_job(&self, name: &JobName, run: RunId) -> Result<RunId, TriggerError> {
        let triggered = self.shared.scheduler.lock().jobs.trigger(self.now(), name, run);
        self.shared.scheduler.tell_of_work(1);
        triggered.ok_or_else(|| TriggerError::UnknownJob { name: name.clone() })
    }

    async fn create_job_runs_from_due_jobs(&self, fence: &Fence) -> Result<Materialised> {
        Ok(self.shared.scheduler.lock().jobs.materialise(self.now(), fence))
    }

    async fn claim_job_runs(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> Result<Vec<JobRun>> {
        Ok(self.shared.scheduler.lock().jobs.claim(self.now(), owner, lease, max))
    }

    async fn ack_job_runs(&self, owner: &OwnerToken, ids: &[RunId]) -> Result<usize> {
        Ok(self.shared.scheduler.lock().jobs.ack(self.now(), owner, ids))
    }

    async fn abandon_job_runs(
        &self,
        owner: &OwnerToken,
        ids: &[RunId],
        delay: Delay,
    ) -> Result<usize> {
        Ok(self.shared.scheduler.lock().jobs.abandon(self.now(), owner, ids, delay))
    }

    async fn reap_job_runs(&self) -> Result<usize> {
        Ok(self.shared.scheduler.lock().jobs.reap(self.now()))
    }

    async fn next_event_time(&self) -> Result<Option<Timestamp>> {
        let scheduler = self.shared.scheduler.lock();
        let ready = [scheduler.timers.next_due_at(), scheduler.jobs.next_due_at()];
        Ok(ready.into_iter().chain([scheduler.jobs.next_tick()]).flatten().min())
    }

    async fn purge(&self, older_than: Duration) -> Result<usize> {
        let mut scheduler = self.shared.scheduler.lock();
        let timers = scheduler.timers.purge(self.now(), older_than);
        Ok(timers + scheduler.jobs.purge(self.now(), older_than))
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>> {
        let now = self.now();
        let scheduler = self.shared.scheduler.lock();
        let ready = [scheduler.timers.next_due_at(), scheduler.jobs.next_due_at()];
        let oldest = ready.into_iter().flatten().min().filter(|due_at| *due_at <= now);
        Ok(oldest.map(|due_at| now.since(due_at)))
    }

    fn work_added(&self) -> impl Future<Output = ()> + Send {
        self.shared.scheduler.work_added.notified()
    }
}

impl Leases for MemoryProvider {
    async fn try_acquire(
        &self,
        resource: &ResourceName,
        duration: LeaseDuration,
        owner: &OwnerToken,
    ) -> Result<Option<FencingToken>> {
        Ok(self.shared.leases.lock().acquire(self.now(), resource, duration, owner))
    }

    async fn try_renew(
        &self,
        tenure: &Tenure,
        duration: LeaseDuration,
    ) -> Result<Option<FencingToken>> {
        Ok(self.shared.leases.lock().renew(self.now(), tenure, duration))
    }

    async fn release(&self, tenure: &Tenure) -> Result<usize> {
        Ok(self.shared.leases.lock().release(self.now(), tenure))
    }

    fn release_dropped(&self, tenure: Tenure) {
        self.shared.leases.lock().release(self.now(), &tenure);
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.clock)
    }
}
