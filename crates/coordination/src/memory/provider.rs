//! The traits, each call a lock and a step of the state machine.

use std::sync::Arc;
use std::time::Duration;

use super::MemoryProvider;
use crate::outbox::join::{JoinError, JoinProgress, Joins, NewJoin};
use crate::{
    BatchSize, Clock, ContentHash, Delay, Enqueued, ErrorText, Fence, FencingToken, GetError,
    Inbox, InboxKey, InboxMessage, JobDefinition, JobName, JobRun, JobSaved, JoinId, LeaseDuration,
    Leases, Materialised, MessageId, NewInboxMessage, NewOutboxMessage, NewTimer, Outbox,
    OutboxMessage, OwnerToken, Processed, ProviderError, ResourceName, RunId, Scheduler, Tenure,
    Timer, TimerId, Timestamp, TriggerError,
};

impl MemoryProvider {
    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }
}

impl Outbox for MemoryProvider {
    async fn enqueue(&self, message: NewOutboxMessage) -> Result<MessageId, ProviderError> {
        let id = self.shared.outbox.lock().enqueue(self.now(), message);
        self.shared.outbox.work_added.notify_one();
        Ok(id)
    }

    async fn claim_due(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> Result<Vec<OutboxMessage>, ProviderError> {
        Ok(self.shared.outbox.lock().claim_due(self.now(), owner, lease, max))
    }

    async fn mark_dispatched(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
    ) -> Result<usize, ProviderError> {
        Ok(self.shared.outbox.lock().mark_dispatched(self.now(), owner, ids))
    }

    async fn reschedule(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        delay: Delay,
        error: &ErrorText,
    ) -> Result<usize, ProviderError> {
        Ok(self.shared.outbox.lock().reschedule(self.now(), owner, ids, delay, error))
    }

    async fn fail(
        &self,
        owner: &OwnerToken,
        ids: &[MessageId],
        error: &ErrorText,
    ) -> Result<usize, ProviderError> {
        Ok(self.shared.outbox.lock().fail(self.now(), owner, ids, error))
    }

    async fn reap(&self) -> Result<usize, ProviderError> {
        Ok(self.shared.outbox.lock().reap(self.now()))
    }

    async fn purge(&self, older_than: Duration) -> Result<usize, ProviderError> {
        Ok(self.shared.outbox.lock().purge(self.now(), older_than))
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>, ProviderError> {
        Ok(self.shared.outbox.lock().oldest_ready_age(self.now()))
    }

    async fn work_added(&self) {
        self.shared.outbox.work_added.notified().await;
    }
}

impl Joins for MemoryProvider {
    async fn start_join(&self, join: NewJoin) -> Result<JoinId, ProviderError> {
        Ok(self.shared.outbox.lock().start_join(self.now(), &join))
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
    ) -> Result<Processed, ProviderError> {
        Ok(self.shared.inbox.lock().already_processed(key, hash))
    }

    async fn enqueue(&self, message: NewInboxMessage) -> Result<Enqueued, ProviderError> {
        let enqueued = self.shared.inbox.lock().enqueue(self.now(), message);
        self.shared.inbox.work_added.notify_one();
        Ok(enqueued)
    }

    async fn claim(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> Result<Vec<InboxMessage>, ProviderError> {
        Ok(self.shared.inbox.lock().claim(self.now(), owner, lease, max))
    }

    async fn ack(&self, owner: &OwnerToken, keys: &[InboxKey]) -> Result<usize, ProviderError> {
        Ok(self.shared.inbox.lock().ack(self.now(), owner, keys))
    }

    async fn abandon(
        &self,
        owner: &OwnerToken,
        keys: &[InboxKey],
        error: &ErrorText,
        delay: Delay,
    ) -> Result<usize, ProviderError> {
        Ok(self.shared.inbox.lock().abandon(self.now(), owner, keys, error, delay))
    }

    async fn fail(
        &self,
        owner: &OwnerToken,
        keys: &[InboxKey],
        error: &ErrorText,
    ) -> Result<usize, ProviderError> {
        Ok(self.shared.inbox.lock().fail(self.now(), owner, keys, error))
    }

    async fn get(&self, key: &InboxKey) -> Result<InboxMessage, GetError> {
        let message = self.shared.inbox.lock().get(key);
        message.ok_or_else(|| GetError::Unknown { key: key.clone() })
    }

    async fn revive(
        &self,
        keys: &[InboxKey],
        reason: &ErrorText,
        delay: Delay,
    ) -> Result<usize, ProviderError> {
        let count = self.shared.inbox.lock().revive(self.now(), keys, reason, delay);
        self.shared.inbox.work_added.notify_one();
        Ok(count)
    }

    async fn reap(&self) -> Result<usize, ProviderError> {
        Ok(self.shared.inbox.lock().reap(self.now()))
    }

    async fn purge(&self, older_than: Duration) -> Result<usize, ProviderError> {
        Ok(self.shared.inbox.lock().purge(self.now(), older_than))
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>, ProviderError> {
        Ok(self.shared.inbox.lock().oldest_ready_age(self.now()))
    }

    async fn work_added(&self) {
        self.shared.inbox.work_added.notified().await;
    }
}

impl Scheduler for MemoryProvider {
    async fn schedule_timer(&self, timer: NewTimer) -> Result<TimerId, ProviderError> {
        let id = self.shared.scheduler.lock().timers.schedule(timer);
        self.shared.scheduler.work_added.notify_one();
        Ok(id)
    }

    async fn cancel_timer(&self, id: TimerId) -> Result<usize, ProviderError> {
        Ok(self.shared.scheduler.lock().timers.cancel(self.now(), id))
    }

    async fn claim_timers(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> Result<Vec<Timer>, ProviderError> {
        Ok(self.shared.scheduler.lock().timers.claim(self.now(), owner, lease, max))
    }

    async fn ack_timers(
        &self,
        owner: &OwnerToken,
        ids: &[TimerId],
    ) -> Result<usize, ProviderError> {
        Ok(self.shared.scheduler.lock().timers.ack(self.now(), owner, ids))
    }

    async fn abandon_timers(
        &self,
        owner: &OwnerToken,
        ids: &[TimerId],
        delay: Delay,
    ) -> Result<usize, ProviderError> {
        Ok(self.shared.scheduler.lock().timers.abandon(self.now(), owner, ids, delay))
    }

    async fn reap_timers(&self) -> Result<usize, ProviderError> {
        Ok(self.shared.scheduler.lock().timers.reap(self.now()))
    }

    async fn create_or_update_job(&self, job: JobDefinition) -> Result<JobSaved, ProviderError> {
        let saved = self.shared.scheduler.lock().jobs.save(self.now(), job);
        self.shared.scheduler.work_added.notify_one();
        Ok(saved)
    }

    async fn delete_job(&self, name: &JobName) -> Result<usize, ProviderError> {
        Ok(self.shared.scheduler.lock().jobs.delete(self.now(), name))
    }

    async fn trigger_job(&self, name: &JobName, run: RunId) -> Result<RunId, TriggerError> {
        let triggered = self.shared.scheduler.lock().jobs.trigger(self.now(), name, run);
        self.shared.scheduler.work_added.notify_one();
        triggered.ok_or_else(|| TriggerError::UnknownJob { name: name.clone() })
    }

    async fn create_job_runs_from_due_jobs(
        &self,
        fence: &Fence,
    ) -> Result<Materialised, ProviderError> {
        Ok(self.shared.scheduler.lock().jobs.materialise(self.now(), fence))
    }

    async fn claim_job_runs(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> Result<Vec<JobRun>, ProviderError> {
        Ok(self.shared.scheduler.lock().jobs.claim(self.now(), owner, lease, max))
    }

    async fn ack_job_runs(
        &self,
        owner: &OwnerToken,
        ids: &[RunId],
    ) -> Result<usize, ProviderError> {
        Ok(self.shared.scheduler.lock().jobs.ack(self.now(), owner, ids))
    }

    async fn abandon_job_runs(
        &self,
        owner: &OwnerToken,
        ids: &[RunId],
        delay: Delay,
    ) -> Result<usize, ProviderError> {
        Ok(self.shared.scheduler.lock().jobs.abandon(self.now(), owner, ids, delay))
    }

    async fn reap_job_runs(&self) -> Result<usize, ProviderError> {
        Ok(self.shared.scheduler.lock().jobs.reap(self.now()))
    }

    async fn next_event_time(&self) -> Result<Option<Timestamp>, ProviderError> {
        let scheduler = self.shared.scheduler.lock();
        let ready = [scheduler.timers.next_due_at(), scheduler.jobs.next_due_at()];
        Ok(ready.into_iter().chain([scheduler.jobs.next_tick()]).flatten().min())
    }

    async fn purge(&self, older_than: Duration) -> Result<usize, ProviderError> {
        let mut scheduler = self.shared.scheduler.lock();
        let timers = scheduler.timers.purge(self.now(), older_than);
        Ok(timers + scheduler.jobs.purge(self.now(), older_than))
    }

    async fn oldest_ready_age(&self) -> Result<Option<Duration>, ProviderError> {
        let now = self.now();
        let scheduler = self.shared.scheduler.lock();
        let ready = [scheduler.timers.next_due_at(), scheduler.jobs.next_due_at()];
        let oldest = ready.into_iter().flatten().min().filter(|due_at| *due_at <= now);
        Ok(oldest.map(|due_at| now.since(due_at)))
    }

    async fn work_added(&self) {
        self.shared.scheduler.work_added.notified().await;
    }
}

impl Leases for MemoryProvider {
    async fn try_acquire(
        &self,
        resource: &ResourceName,
        duration: LeaseDuration,
        owner: &OwnerToken,
    ) -> Result<Option<FencingToken>, ProviderError> {
        Ok(self.shared.leases.lock().acquire(self.now(), resource, duration, owner))
    }

    async fn try_renew(
        &self,
        tenure: &Tenure,
        duration: LeaseDuration,
    ) -> Result<Option<FencingToken>, ProviderError> {
        Ok(self.shared.leases.lock().renew(self.now(), tenure, duration))
    }

    async fn release(&self, tenure: &Tenure) -> Result<usize, ProviderError> {
        Ok(self.shared.leases.lock().release(self.now(), tenure))
    }

    fn release_dropped(&self, tenure: Tenure) {
        self.shared.leases.lock().release(self.now(), &tenure);
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.clock)
    }
}
