//! A job that this runner has claimed: keeping it, and settling what came of it.

use std::time::Duration;

pub(super) use coordination::Settlement;
use coordination::{LeaseDuration, MessageId, Outbox, OutboxStatus, OwnerToken, ProviderError};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use super::counters::JobCounters;

/// How often a claim is extended within its time, so that one lost answer does no harm.
const BEATS_PER_CLAIM: u32 = 3;
/// How long a settlement is repeated when the outbox does not answer. A result that was paid for is worth some patience.
const SETTLE_FOR: Duration = Duration::from_secs(60);
/// How long to wait between two tries.
const SETTLE_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// One claim on one job. Its owner token is the claim's own, so that nobody settles for another.
#[derive(Debug)]
pub(super) struct Claim<O> {
    pub(super) outbox: O,
    pub(super) owner: OwnerToken,
    pub(super) id: MessageId,
    pub(super) claim_for: LeaseDuration,
    pub(super) counters: JobCounters,
}

/// The job is another's now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClaimLost;

impl<O: Outbox> Claim<O> {
    /// Does this while the claim is extended. Stops if the claim is lost.
    pub(super) async fn keeping<T>(&self, work: impl Future<Output = T>) -> Result<T, ClaimLost> {
        let every = self.claim_for.get() / BEATS_PER_CLAIM;
        let every = every.max(Duration::from_millis(1));
        let beats = async {
            let mut beat = interval_at(Instant::now() + every, every);
            beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                beat.tick().await;
                match self.outbox.extend(&self.owner, &[self.id], self.claim_for).await {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(error) => self.note_no_answer(&error),
                }
            }
        };
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = beats => Err(ClaimLost),
        }
    }

    /// Says that the handler begins. The answer is which attempt it is.
    pub(super) async fn begin(&self) -> Result<u32, ClaimLost> {
        let begun = self.repeat(|| self.outbox.begin(&self.owner, self.id, self.claim_for)).await;
        begun.flatten().ok_or(ClaimLost)
    }

    /// Settles the job. Whether it has that outcome now, because of this call or of one before it whose answer was lost.
    pub(super) async fn settle(&self, settlement: &Settlement) -> Result<(), ClaimLost> {
        let (owner, ids) = (&self.owner, [self.id]);
        let mut is_repeated = false;
        let changed = self.repeat(|| {
            let outbox = &self.outbox;
            let again = std::mem::replace(&mut is_repeated, true);
            async move {
                let changed = outbox.settle(owner, &ids, settlement).await?;
                if changed == 0 && again { self.was_settled(settlement).await } else { Ok(changed) }
            }
        });
        match changed.await {
            Some(changed) if changed > 0 => Ok(()),
            Some(_) | None => Err(ClaimLost),
        }
    }

    /// Whether an earlier try had settled it, although its answer was lost.
    async fn was_settled(&self, settlement: &Settlement) -> Result<usize, ProviderError> {
        let status = self.outbox.record(self.id).await?.map(|record| record.status);
        Ok(match (settlement, status) {
            (Settlement::Finish { .. }, Some(OutboxStatus::Done { .. }))
            | (Settlement::Fail { .. }, Some(OutboxStatus::Dead))
            | (
                Settlement::Retry { .. } | Settlement::Postpone { .. },
                Some(OutboxStatus::Ready | OutboxStatus::Claimed { .. }),
            ) => 1,
            _ => 0,
        })
    }

    /// Repeats a call until it is answered or it takes too long.
    async fn repeat<T, F>(&self, mut call: impl FnMut() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, ProviderError>>,
    {
        let give_up_at = Instant::now() + SETTLE_FOR;
        loop {
            match call().await {
                Ok(answer) => return Some(answer),
                Err(error) => self.note_no_answer(&error),
            }
            if Instant::now() >= give_up_at {
                return None;
            }
            sleep_until(Instant::now() + SETTLE_AGAIN_AFTER).await;
        }
    }

    fn note_no_answer(&self, error: &ProviderError) {
        self.counters.counts().outbox_errors.add(1);
        tracing::warn!(%error, "outbox gave no answer");
    }
}
