//! A complete always follows an allow.

use std::time::Duration;

use ratelimiter::admission::no_answer_pause;
use ratelimiter::{
    Actuals, CompleteError, CompleteRequest, LimitKey, Limiter, Refused, Unanswered,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::llm::LlmRequirements;

/// How long a complete may take when the time to shut down is over.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Completes leases, and repeats that while there is no answer and time is left.
#[derive(Debug)]
pub(crate) struct Completing<'a, L> {
    pub(crate) limiter: &'a L,
    /// The time to shut down is over.
    pub(crate) stop: &'a CancellationToken,
    /// For how long a complete is repeated.
    pub(crate) complete_for: Duration,
}

/// What a request came to that was cut off at the end of a shutdown.
pub(crate) fn time_is_over() -> Unanswered {
    Unanswered { reason: "the time to shut down is over".to_owned(), retry_after: Duration::ZERO }
}

/// A wait that is longer by up to `jitter` at random, and at most twice as long, so that processes do not come back together.
pub(crate) fn jittered(wait: Duration, jitter: Duration) -> Duration {
    wait.saturating_add(jitter.min(wait).mul_f64(fastrand::f64()))
}

/// What became of one complete.
enum Completed {
    /// The lease has ended.
    Yes,
    /// Nobody knows. Completing twice is completing once.
    Unknown(Unanswered),
    /// It was refused.
    No,
}

impl<L: Limiter> Completing<'_, L> {
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
        while let Completed::Unknown(unanswered) = completed {
            if self.stop.is_cancelled() || begun.elapsed() > self.complete_for {
                let lease = request.lease;
                tracing::warn!(%lease, %unanswered, "complete given up, the hold ends by itself");
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
            Completed::Yes => Some(requirements.freed_by(&request.actuals)),
            Completed::No | Completed::Unknown(_) => None,
        }
    }

    async fn complete_once(&self, request: &mut CompleteRequest) -> Completed {
        loop {
            let answer = tokio::select! {
                answer = self.limiter.complete(request) => answer,
                () = self.patience_is_over() => {
                    return Completed::Unknown(time_is_over());
                }
            };
            match answer {
                Ok(()) => return Completed::Yes,
                // Nothing was applied, so the holds are still there: they must go, whatever was used.
                Err(CompleteError::InvalidActual { key }) if !request.actuals.is_empty() => {
                    tracing::warn!(lease = %request.lease, %key, "actual refused, completing without");
                    request.actuals = Actuals::none();
                }
                Err(CompleteError::Unanswered(unanswered)) => {
                    return Completed::Unknown(unanswered);
                }
                Err(
                    error @ (CompleteError::InvalidActual { .. }
                    | CompleteError::Refused(Refused { .. })),
                ) => {
                    tracing::warn!(lease = %request.lease, %error, "complete refused");
                    return Completed::No;
                }
            }
        }
    }

    /// Returns some time after the time to shut down is over.
    async fn patience_is_over(&self) {
        self.stop.cancelled().await;
        sleep_until(Instant::now() + LAST_WORDS).await;
    }
}
