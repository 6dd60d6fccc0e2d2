//! A complete always follows an allow.

use std::time::Duration;

use ratelimiter::{Actuals, CompleteError, CompleteRequest, LeaseId, Limiter, Refused, Unanswered};
use tokio::time::{Instant, sleep_until};

use super::shared::{JobFacts, Shared};

/// How long the first wait is when a complete gets no answer; each further one is twice as long.
const PAUSE_BASE: Duration = Duration::from_millis(100);
/// The longest wait.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long a complete may take when the time to shut down is over.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What became of one complete.
enum Completed {
    /// The lease has ended.
    Yes,
    /// Nobody knows. Completing twice is completing once.
    Unknown(Unanswered),
    /// It was refused.
    No,
}

impl<L: Limiter + 'static> Shared<L> {
    /// Completes a lease, and repeats that while there is no answer and time is left. `after_first` runs when it has been
    /// tried once, so that nobody waits for a limiter that is away.
    pub(super) async fn complete_in_time(
        &self,
        facts: &JobFacts,
        lease: LeaseId,
        actuals: Actuals,
        after_first: impl FnOnce(),
    ) {
        let begun = Instant::now();
        let mut request = CompleteRequest { lease, job: facts.id.clone(), actuals };
        let mut completed = self.complete_once(facts, &mut request).await;
        after_first();
        let mut pause = PAUSE_BASE;
        while let Completed::Unknown(unanswered) = completed {
            if self.stop.is_cancelled() || begun.elapsed() > self.complete_for {
                tracing::warn!(%lease, %unanswered, "complete given up, the hold ends by itself");
                self.lock().counters.completes_given_up += 1;
                return;
            }
            let wait = pause.max(unanswered.retry_after).mul_f64(1.0 + fastrand::f64() / 2.0);
            tokio::select! {
                () = sleep_until(Instant::now() + wait) => {}
                () = self.stop.cancelled() => {}
            }
            pause = (pause * 2).min(PAUSE_MAX);
            completed = self.complete_once(facts, &mut request).await;
        }
        if matches!(completed, Completed::No) {
            self.lock().counters.completes_given_up += 1;
        }
    }

    async fn complete_once(&self, facts: &JobFacts, request: &mut CompleteRequest) -> Completed {
        loop {
            let answer = tokio::select! {
                answer = self.limiter.complete(request) => answer,
                () = self.patience_is_over() => return Completed::Unknown(Unanswered {
                    reason: "the time to shut down is over".to_owned(),
                    retry_after: Duration::ZERO,
                }),
            };
            match answer {
                Ok(()) => {
                    let freed = facts.needs.freed_by(&request.actuals);
                    self.lock().plan.released(&freed);
                    self.changed.notify_one();
                    return Completed::Yes;
                }
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
