//! The flawed scheduler and leases.

use std::sync::Arc;
use std::time::Duration;

use coordination::{
    BatchSize, CatchUp, CatchUpMax, Clock, Delay, Fence, FencingToken, JobDefinition, JobName,
    JobRun, JobSaved, LeaseDuration, Leases, Materialised, NewTimer, OwnerToken, ResourceName,
    Result, RunId, Scheduler, Tenure, Timer, TimerId, Timestamp, TriggerError,
};

use crate::flawed::{Flaw, Flawed};

impl Scheduler for Flawed {
    async fn schedule_timer(&self, mut timer: NewTimer) -> Result<TimerId> {
        if self.has(Flaw::IgnoresDueTimes) {
            timer.due_at = Timestamp::MIN;
        }
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
        let claimed = self.inner.claim_timers(owner, lease, max).await?;
        self.note_claim(owner, claimed.iter().map(|timer| timer.id.to_string()));
        Ok(claimed)
    }

    async fn ack_timers(&self, owner: &OwnerToken, ids: &[TimerId]) -> Result<usize> {
        let mut count = 0;
        for id in ids {
            let owner = self.owner_for(owner, &id.to_string());
            count += self.inner.ack_timers(&owner, &[*id]).await?;
        }
        Ok(count)
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
        if self.has(Flaw::NeverReaps) { Ok(0) } else { self.inner.reap_timers().await }
    }

    async fn create_or_update_job(&self, mut job: JobDefinition) -> Result<JobSaved> {
        if self.has(Flaw::MakesUpForMissedTicks) {
            job.catch_up = CatchUp::All(CatchUpMax::new(100).expect("a valid bound"));
        }
        self.inner.create_or_update_job(job).await
    }

    async fn delete_job(&self, name: &JobName) -> Result<usize> {
        self.inner.delete_job(name).await
    }

    async fn trigger_job(&self, name: &JobName, run: RunId) -> Result<RunId, TriggerError> {
        self.inner.trigger_job(name, run).await
    }

    async fn create_job_runs_from_due_jobs(&self, fence: &Fence) -> Result<Materialised> {
        let mut fence = fence.clone();
        if self.has(Flaw::IgnoresFences) {
            fence.token = FencingToken::new(u64::MAX);
        }
        self.inner.create_job_runs_from_due_jobs(&fence).await
    }

    async fn claim_job_runs(
        &self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        max: BatchSize,
    ) -> Result<Vec<JobRun>> {
        let claimed = self.inner.claim_job_runs(owner, lease, max).await?;
        self.note_claim(owner, claimed.iter().map(|run| run.id.to_string()));
        Ok(claimed)
    }

    async fn ack_job_runs(&self, owner: &OwnerToken, ids: &[RunId]) -> Result<usize> {
        let mut count = 0;
        for id in ids {
            let owner = self.owner_for(owner, &id.to_string());
            count += self.inner.ack_job_runs(&owner, &[*id]).await?;
        }
        Ok(count)
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
        if self.has(Flaw::NeverReaps) { Ok(0) } else { self.inner.reap_job_runs().await }
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

impl Leases for Flawed {
    async fn try_acquire(
        &self,
        resource: &ResourceName,
        duration: LeaseDuration,
        owner: &OwnerToken,
    ) -> Result<Option<FencingToken>> {
        if self.has(Flaw::LetsTheSameOwnerIn) {
            let token = FencingToken::new(u64::MAX);
            let (resource, owner) = (resource.clone(), owner.clone());
            self.inner.release(&Tenure { resource, owner, token }).await?;
        }
        let token = self.inner.try_acquire(resource, duration, owner).await?;
        Ok(token.map(|token| self.shown(resource, token)))
    }

    async fn try_renew(
        &self,
        tenure: &Tenure,
        duration: LeaseDuration,
    ) -> Result<Option<FencingToken>> {
        let mut token = self.inner.try_renew(&self.real(tenure), duration).await?;
        if self.has(Flaw::RenewsTheLost) {
            token = token.or(Some(FencingToken::new(tenure.token.get() + 1)));
        }
        self.notes().renewals += 1;
        let renewals = self.notes().renewals;
        Ok(token.map(|token| match self.flaw {
            Flaw::ReusesFencingTokens => FencingToken::new(1 + renewals),
            _ => token,
        }))
    }

    async fn release(&self, tenure: &Tenure) -> Result<usize> {
        self.inner.release(&self.real(tenure)).await
    }

    fn release_dropped(&self, tenure: Tenure) {
        self.inner.release_dropped(self.real(&tenure));
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }
}

impl Flawed {
    /// The token that a caller is shown: with the flaw, each tenure starts at 1 again.
    fn shown(&self, resource: &ResourceName, token: FencingToken) -> FencingToken {
        if !self.has(Flaw::ReusesFencingTokens) {
            return token;
        }
        let mut notes = self.notes();
        notes.tokens.insert(resource.clone(), token.get());
        notes.renewals = 0;
        FencingToken::new(1)
    }

    /// The tenure that the caller means.
    fn real(&self, tenure: &Tenure) -> Tenure {
        let token = self.notes().tokens.get(&tenure.resource).copied();
        match token {
            Some(token) => Tenure { token: FencingToken::new(token), ..tenure.clone() },
            None => tenure.clone(),
        }
    }
}
