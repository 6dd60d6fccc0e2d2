//! A runner's claim on a job: extending it, and settling the job.

use std::time::Duration;

pub(super) use coordination::Settlement;
use coordination::{
    DELAY_MAX, Delay, ErrorText, LeaseDuration, MessageId, Outbox, OutboxStatus, OwnerToken,
    ProviderError,
};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use super::counters::JobCounters;

/// How often a claim is extended within its duration, so that one lost answer does no harm.
const EXTENSIONS_PER_CLAIM: u32 = 3;
/// How long a settlement is retried when the outbox does not answer. The result has been paid for, so this is long.
const SETTLE_FOR: Duration = Duration::from_secs(60);
/// The pause between two tries.
const SETTLE_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How often `begin` is called until enough of the claim is left.
const BEGIN_ATTEMPTS_MAX: usize = 2;

/// A claim on one job, with its own owner token, so that no other runner settles the job.
#[derive(Debug)]
pub(super) struct Claim<O> {
    pub(super) outbox: O,
    pub(super) owner: OwnerToken,
    pub(super) id: MessageId,
    pub(super) claim_for: LeaseDuration,
    pub(super) counters: JobCounters,
}

/// Fails a job permanently.
pub(super) fn fail(error: impl AsRef<str>) -> Settlement {
    Settlement::Fail { error: ErrorText::new(error) }
}

/// Makes a job wait; no attempt is counted.
pub(super) fn postpone(wait: Duration, reason: impl AsRef<str>) -> Settlement {
    let delay = Delay::new(wait.min(DELAY_MAX)).expect("it is bounded");
    Settlement::Postpone { delay, reason: ErrorText::new(reason) }
}

/// Another runner has the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClaimLost;

/// Why a job was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotBegun {
    ClaimLost,
    /// The outbox confirmed it so late that the claim may expire before it is extended.
    TooLate,
    /// The runner was told to stop.
    Stopped,
}

impl<O: Outbox> Claim<O> {
    /// Runs `work` and extends the claim meanwhile. Drops `work` if the claim is lost.
    pub(super) async fn while_extending<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, ClaimLost> {
        let every = self.extend_every();
        let extending = async {
            let mut ticks = interval_at(Instant::now() + every, every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                match self.outbox.extend(&self.owner, &[self.id], self.claim_for).await {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(error) => self.counters.record_outbox_error(&error),
                }
            }
        };
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = extending => Err(ClaimLost),
        }
    }

    /// Records that the handler begins, which extends the claim. Returns the number of the attempt.
    pub(super) async fn begin(&self) -> Result<u32, NotBegun> {
        for _ in 0..BEGIN_ATTEMPTS_MAX {
            // Read before each call, so never later than the outbox's start of the claim.
            let mut begun_at = Instant::now();
            let begun = self.repeat(|| {
                begun_at = Instant::now();
                self.outbox.begin(&self.owner, self.id, self.claim_for)
            });
            let attempt = begun.await.flatten().ok_or(NotBegun::ClaimLost)?;
            if begun_at.elapsed() + self.extend_every() <= self.claim_for.get() {
                return Ok(attempt);
            }
        }
        Err(NotBegun::TooLate)
    }

    /// How often the claim is extended.
    fn extend_every(&self) -> Duration {
        self.claim_for.get() / EXTENSIONS_PER_CLAIM
    }

    /// Settles the job. `Ok` also if an earlier try did so and its answer was lost.
    pub(super) async fn settle(&self, settlement: &Settlement) -> Result<(), ClaimLost> {
        let (owner, ids) = (&self.owner, [self.id]);
        let mut is_repeated = false;
        let settled = self.repeat(|| {
            let again = std::mem::replace(&mut is_repeated, true);
            async move {
                let changed = self.outbox.settle(owner, &ids, settlement).await?;
                Ok(changed > 0 || (again && self.already_settled(settlement).await?))
            }
        });
        if settled.await == Some(true) { Ok(()) } else { Err(ClaimLost) }
    }

    /// True if an earlier try, whose answer was lost, has settled the job.
    async fn already_settled(&self, settlement: &Settlement) -> Result<bool, ProviderError> {
        let status = self.outbox.record(self.id).await?.map(|record| record.status);
        Ok(matches!(
            (settlement, status),
            (Settlement::Finish { .. }, Some(OutboxStatus::Done { .. }))
                | (Settlement::Fail { .. }, Some(OutboxStatus::Dead))
                | (
                    Settlement::Retry { .. } | Settlement::Postpone { .. },
                    Some(OutboxStatus::Ready | OutboxStatus::Claimed { .. }),
                )
        ))
    }

    /// Repeats a call until it is answered or [`SETTLE_FOR`] is over.
    async fn repeat<T, F>(&self, mut call: impl FnMut() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, ProviderError>>,
    {
        let give_up_at = Instant::now() + SETTLE_FOR;
        loop {
            match call().await {
                Ok(answer) => return Some(answer),
                Err(error) => self.counters.record_outbox_error(&error),
            }
            if Instant::now() >= give_up_at {
                return None;
            }
            sleep_until(Instant::now() + SETTLE_AGAIN_AFTER).await;
        }
    }
}
