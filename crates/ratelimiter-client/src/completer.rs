//! Completes leases, with retries.

use std::time::Duration;

use ratelimiter::admission::no_answer_pause;
use ratelimiter::{
    Actuals, CompleteError, CompleteRequest, LimitKey, Limiter, Refused, Unanswered,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::llm::LlmRequirements;

/// How long a complete may take after the time to shut down is over.
const LAST_COMPLETE_TIMEOUT: Duration = Duration::from_secs(2);

/// Completes leases, and retries while there is no answer.
#[derive(Debug)]
pub(crate) struct Completer<'a, L> {
    pub(crate) limiter: &'a L,
    /// Cancelled when the time to shut down is over.
    pub(crate) stop: &'a CancellationToken,
    /// How long a complete is retried.
    pub(crate) complete_for: Duration,
}

/// The result of a request that the end of a shutdown interrupted.
pub(crate) fn shutdown_deadline_passed() -> Unanswered {
    Unanswered { reason: "the time to shut down is over".to_owned(), retry_after: Duration::ZERO }
}

/// Adds up to `jitter` at random, and at most the wait itself, so that processes do not retry together.
pub(crate) fn jittered(wait: Duration, jitter: Duration) -> Duration {
    wait.saturating_add(jitter.min(wait).mul_f64(fastrand::f64()))
}

enum CompleteOutcome {
    Done,
    /// The outcome is unknown. Complete is idempotent, so it is retried.
    Unknown(Unanswered),
    Refused,
}

impl<L: Limiter> Completer<'_, L> {
    /// Completes a lease of a call with these requirements. Returns the limits that got room back; `None` if it was
    /// refused or given up. `after_first` runs after the first try, so that nobody waits for an unavailable limiter.
    pub(crate) async fn complete(
        &self,
        mut request: CompleteRequest,
        requirements: &LlmRequirements,
        after_first: impl FnOnce(),
    ) -> Option<Vec<LimitKey>> {
        let begun = Instant::now();
        let mut completed = self.complete_once(&mut request).await;
        after_first();
        let mut unanswered_count = 0;
        while let CompleteOutcome::Unknown(unanswered) = completed {
            if self.stop.is_cancelled() || begun.elapsed() > self.complete_for {
                let lease = request.lease;
                tracing::warn!(%lease, %unanswered, "complete failed, the hold will time out");
                return None;
            }
            unanswered_count += 1;
            let jitter = fastrand::f64();
            let wait = no_answer_pause(unanswered_count, unanswered.retry_after, jitter);
            tokio::select! {
                () = sleep_until(Instant::now() + wait) => {}
                () = self.stop.cancelled() => {}
            }
            completed = self.complete_once(&mut request).await;
        }
        match completed {
            CompleteOutcome::Done => Some(requirements.limits_freed_by(&request.actuals)),
            CompleteOutcome::Refused | CompleteOutcome::Unknown(_) => None,
        }
    }

    async fn complete_once(&self, request: &mut CompleteRequest) -> CompleteOutcome {
        loop {
            let answer = tokio::select! {
                answer = self.limiter.complete(request) => answer,
                () = self.deadline_passed() => {
                    return CompleteOutcome::Unknown(shutdown_deadline_passed());
                }
            };
            match answer {
                Ok(()) => return CompleteOutcome::Done,
                // Nothing was applied, so the holds are still there; release them without the actuals.
                Err(CompleteError::InvalidActual { key }) if !request.actuals.is_empty() => {
                    tracing::warn!(lease = %request.lease, %key, "actual refused, completing without");
                    request.actuals = Actuals::none();
                }
                Err(CompleteError::Unanswered(unanswered)) => {
                    return CompleteOutcome::Unknown(unanswered);
                }
                Err(
                    error @ (CompleteError::InvalidActual { .. }
                    | CompleteError::Refused(Refused { .. })),
                ) => {
                    tracing::warn!(lease = %request.lease, %error, "complete refused");
                    return CompleteOutcome::Refused;
                }
            }
        }
    }

    /// Resolves [`LAST_COMPLETE_TIMEOUT`] after the time to shut down is over.
    async fn deadline_passed(&self) {
        self.stop.cancelled().await;
        sleep_until(Instant::now() + LAST_COMPLETE_TIMEOUT).await;
    }
}
