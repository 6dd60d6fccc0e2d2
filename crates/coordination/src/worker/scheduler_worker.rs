//! The worker that moves due timers and job runs into the outbox.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::metrics::WorkerMetrics;
use super::settings::InvalidSettings;
use crate::{
    BatchSize, CorrelationId, Delay, JobRun, Lease, LeaseDuration, Leases, LostLease, Materialised,
    NewOutboxMessage, Outbox, OwnerToken, ProviderError, ResourceName, Result, Scheduler, Timer,
};

/// The least time between two rounds. The provider's clock may be behind ours: then an item that is
/// due by our clock is not due yet, and the worker must not spin until it is.
const ROUND_PAUSE_MIN: Duration = Duration::from_millis(10);
/// The delay of items after the outbox gave no answer.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The settings of a scheduler worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerSettings {
    /// The resource whose lease elects the active worker: `coordination/scheduler`. All workers of
    /// one scheduler use the same.
    pub resource: ResourceName,
    /// The duration of that lease: 30 s. It is renewed automatically.
    pub lease: LeaseDuration,
    /// The most timers or runs in one claim: 50.
    pub batch: BatchSize,
    /// The duration of a claim: 60 s.
    pub claim_for: LeaseDuration,
    /// The longest wait for the next event, and between attempts to become the active worker: 1 s.
    pub poll_interval: Duration,
    /// How often the worker reaps, purges and measures: every 5 s.
    pub upkeep_interval: Duration,
    /// How long finished timers and runs are kept: 7 days.
    pub keep_finished_for: Duration,
}

/// Moves due timers and job runs into the outbox, while it holds the scheduler's lease.
///
/// Exactly once: the message has the item's ID, the outbox accepts an ID once, and the item is
/// acknowledged afterwards. A worker that loses its lease stops before its next effect.
#[derive(Debug)]
pub struct SchedulerWorker<S, O, L> {
    scheduler: S,
    outbox: O,
    leases: L,
    settings: SchedulerSettings,
    owner: OwnerToken,
    metrics: WorkerMetrics,
}

/// The result of a round.
#[derive(Debug)]
enum Round {
    AllMoved,
    /// A batch was full.
    MayHaveMore,
}

/// Why a round ended early.
#[derive(Debug)]
enum Stopped {
    LeaseLost,
    ShutDown,
    NoAnswer(ProviderError),
}

/// A claimed timer or run.
enum DueItem {
    Timer(Timer),
    Run(JobRun),
}

impl Default for SchedulerSettings {
    fn default() -> SchedulerSettings {
        SchedulerSettings {
            resource: ResourceName::new("coordination/scheduler").expect("a valid name"),
            lease: LeaseDuration::new(Duration::from_secs(30)).expect("30 s are within the bounds"),
            batch: BatchSize::new(50).expect("50 is within the bounds"),
            claim_for: LeaseDuration::new(Duration::from_secs(60)).expect("60 s are"),
            poll_interval: Duration::from_secs(1),
            upkeep_interval: Duration::from_secs(5),
            keep_finished_for: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }
}

impl SchedulerSettings {
    fn check(&self) -> Result<(), InvalidSettings> {
        InvalidSettings::refuse_zeros(&[
            ("poll_interval", self.poll_interval.is_zero()),
            ("upkeep_interval", self.upkeep_interval.is_zero()),
        ])
    }
}

impl<S: Scheduler, O: Outbox, L: Leases> SchedulerWorker<S, O, L> {
    /// A worker with its own owner token.
    ///
    /// # Errors
    /// [`InvalidSettings`], which names the setting.
    pub fn new(
        scheduler: S,
        outbox: O,
        leases: L,
        settings: SchedulerSettings,
    ) -> Result<SchedulerWorker<S, O, L>, InvalidSettings> {
        settings.check()?;
        let (owner, metrics) = (OwnerToken::random(), WorkerMetrics::default());
        Ok(SchedulerWorker { scheduler, outbox, leases, settings, owner, metrics })
    }

    /// Its counters, which can be read while it runs.
    pub fn metrics(&self) -> WorkerMetrics {
        self.metrics.clone()
    }

    /// Works until `shutdown` fires; then it finishes the current item and returns the others.
    pub async fn run(self, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            let SchedulerSettings { resource, lease, poll_interval, .. } = &self.settings;
            let acquired = self.leases.acquire(resource, *lease, Some(self.owner.clone())).await;
            if let Some(Some(lease)) = self.answered(acquired) {
                self.run_as_leader(lease.renewed_automatically(), &shutdown).await;
            }
            let _elapsed = timeout(*poll_interval, shutdown.cancelled()).await;
        }
    }

    /// Works while it holds the lease.
    async fn run_as_leader(&self, lease: Lease<L>, shutdown: &CancellationToken) {
        tracing::info!(token = lease.fencing_token().get(), "scheduler worker is active");
        let mut maintained_at: Option<Instant> = None;
        loop {
            if maintained_at.is_none_or(|at| at.elapsed() >= self.settings.upkeep_interval) {
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => break,
                    () = self.run_maintenance() => {}
                }
                maintained_at = Some(Instant::now());
            }
            match self.round(&lease, shutdown).await {
                Ok(Round::MayHaveMore) => continue,
                Ok(Round::AllMoved) => {}
                Err(Stopped::NoAnswer(error)) => {
                    self.answered::<()>(Err(error));
                }
                Err(Stopped::LeaseLost) => {
                    tracing::warn!("scheduler lease lost");
                    return;
                }
                Err(Stopped::ShutDown) => break,
            }
            let lost = lease.lost();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = lost.cancelled() => {}
                () = self.next_event() => {}
            }
        }
        self.answered(lease.release().await);
    }

    /// Waits for the next event, for a notification of the provider, or for the poll interval.
    async fn next_event(&self) {
        let earliest = Instant::now() + ROUND_PAUSE_MIN;
        let next_event = async {
            match self.answered(self.scheduler.next_event_time().await) {
                Some(Some(at)) => self.leases.clock().wait_until(at).await,
                Some(None) | None => std::future::pending().await,
            }
        };
        let _elapsed = timeout(self.settings.poll_interval, async {
            tokio::select! {
                () = next_event => {}
                () = self.scheduler.work_added() => {}
            }
        })
        .await;
        tokio::time::sleep_until(earliest).await;
    }

    /// Creates due runs, then moves a batch of timers and a batch of runs.
    async fn round(
        &self,
        lease: &Lease<L>,
        shutdown: &CancellationToken,
    ) -> Result<Round, Stopped> {
        lease.ensure_held()?;
        let unreadable_jobs =
            match self.scheduler.create_job_runs_from_due_jobs(&lease.fence()).await? {
                Materialised::Runs(_) => 0,
                Materialised::Partly { unreadable, .. } => unreadable as u64,
                Materialised::StaleFence { .. } => return Err(Stopped::LeaseLost),
            };
        self.metrics.set(|counters| counters.unreadable_jobs = unreadable_jobs);
        let SchedulerSettings { batch, claim_for, .. } = self.settings;
        lease.ensure_held()?;
        let timers = self.scheduler.claim_timers(&self.owner, claim_for, batch).await?;
        let timer_count = timers.len();
        self.metrics.add(|counters| &mut counters.claimed, timer_count);
        self.move_all(timers.into_iter().map(DueItem::Timer), lease, shutdown).await?;
        lease.ensure_held()?;
        let runs = self.scheduler.claim_job_runs(&self.owner, claim_for, batch).await?;
        let run_count = runs.len();
        self.metrics.add(|counters| &mut counters.claimed, run_count);
        self.move_all(runs.into_iter().map(DueItem::Run), lease, shutdown).await?;
        let full = batch.as_usize();
        Ok(if timer_count < full && run_count < full {
            Round::AllMoved
        } else {
            Round::MayHaveMore
        })
    }

    async fn move_all(
        &self,
        mut items: impl Iterator<Item = DueItem>,
        lease: &Lease<L>,
        shutdown: &CancellationToken,
    ) -> Result<(), Stopped> {
        while let Some(item) = items.next() {
            if shutdown.is_cancelled() {
                for item in std::iter::once(item).chain(items) {
                    self.give_back(&item, Delay::ZERO).await?;
                }
                return Err(Stopped::ShutDown);
            }
            lease.ensure_held()?;
            let message = item.message();
            let span = tracing::info_span!(
                "move",
                queue = "scheduler",
                id = %message.id,
                topic = %message.topic,
                correlation_id = message.correlation_id.as_ref().map(tracing::field::display),
            );
            if let Err(error) = self.outbox.enqueue(message).instrument(span).await {
                let delay = Delay::new(AGAIN_AFTER).expect("1 s is within the bounds");
                for item in std::iter::once(item).chain(items) {
                    self.give_back(&item, delay).await?;
                }
                return Err(Stopped::NoAnswer(error));
            }
            lease.ensure_held()?;
            let acknowledged = match &item {
                DueItem::Timer(timer) => {
                    self.scheduler.ack_timers(&self.owner, &[timer.id]).await?
                }
                DueItem::Run(run) => self.scheduler.ack_job_runs(&self.owner, &[run.id]).await?,
            };
            self.metrics.add(|counters| &mut counters.acknowledged, acknowledged);
            self.metrics.add(|counters| &mut counters.too_late, usize::from(acknowledged == 0));
        }
        Ok(())
    }

    async fn give_back(&self, item: &DueItem, delay: Delay) -> Result<()> {
        let count = match item {
            DueItem::Timer(timer) => {
                self.scheduler.abandon_timers(&self.owner, &[timer.id], delay).await?
            }
            DueItem::Run(run) => {
                self.scheduler.abandon_job_runs(&self.owner, &[run.id], delay).await?
            }
        };
        self.metrics.add(|counters| &mut counters.abandoned, count);
        Ok(())
    }

    async fn run_maintenance(&self) {
        for reaped in [self.scheduler.reap_timers().await, self.scheduler.reap_job_runs().await] {
            if let Some(count) = self.answered(reaped) {
                self.metrics.add(|counters| &mut counters.reaped, count);
            }
        }
        let purged = self.scheduler.purge(self.settings.keep_finished_for).await;
        if let Some(count) = self.answered(purged) {
            self.metrics.add(|counters| &mut counters.purged, count);
        }
        if let Some(age) = self.answered(self.scheduler.oldest_ready_age().await) {
            self.metrics.set(|counters| counters.oldest_ready_age = age);
        }
    }

    fn answered<T>(&self, answer: Result<T>) -> Option<T> {
        self.metrics.answered("scheduler", answer)
    }
}

impl DueItem {
    /// The outbox message, with the item's own ID.
    fn message(&self) -> NewOutboxMessage {
        match self {
            DueItem::Timer(Timer { id, topic, payload, correlation_id, .. }) => NewOutboxMessage {
                correlation_id: correlation_id.clone(),
                ..NewOutboxMessage::new(topic.clone(), payload.clone()).with_id((*id).into())
            },
            DueItem::Run(JobRun { id, job, scheduled_at, topic, payload, .. }) => {
                NewOutboxMessage {
                    // A run has no causing request; its job and time identify it.
                    correlation_id: CorrelationId::new(format!("{job}@{scheduled_at}")).ok(),
                    ..NewOutboxMessage::new(topic.clone(), payload.clone()).with_id((*id).into())
                }
            }
        }
    }
}

impl From<ProviderError> for Stopped {
    fn from(error: ProviderError) -> Stopped {
        Stopped::NoAnswer(error)
    }
}

impl From<LostLease> for Stopped {
    fn from(_: LostLease) -> Stopped {
        Stopped::LeaseLost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_zero_are_refused_by_name() {
        assert_eq!(SchedulerSettings::default().check(), Ok(()));
        let settings = SchedulerSettings { poll_interval: Duration::ZERO, ..Default::default() };
        assert_eq!(settings.check(), Err(InvalidSettings::Zero { name: "poll_interval" }));
        let settings = SchedulerSettings { upkeep_interval: Duration::ZERO, ..Default::default() };
        assert_eq!(settings.check(), Err(InvalidSettings::Zero { name: "upkeep_interval" }));
    }
}
