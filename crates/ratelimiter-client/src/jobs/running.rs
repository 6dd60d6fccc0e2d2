//! A job that was allowed runs, and is settled.

use std::panic::AssertUnwindSafe;

use coordination::{ErrorText, HandlerError, Outbox, OutboxMessage, retry_delay};
use futures::FutureExt;
use ratelimiter::{JobId, Limiter};
use tokio::time::{Instant, timeout};

use super::asking::{Asked, Asking, Turn};
use super::claim::{Claim, ClaimLost, Settlement};
use super::context::RunnerContext;
use super::handler::{JobCall, JobHandler};
use super::job::{LlmJob, UnreadableJob};
use super::queue::JobResult;
use crate::scheduler::{Done, JobEnd, Permit, panic_message};

/// For how long a job of a newer program is left to a newer runner.
const NEWER_AFTER: std::time::Duration = std::time::Duration::from_secs(60);

/// How a call ended.
struct Ran {
    settlement: Settlement,
    tokens: Option<u64>,
    end: JobEnd,
}

/// A job in hand: when it is dropped, whatever happened, there is room for another.
pub(super) struct InHand<O: Outbox + Clone, L: Limiter + 'static, H: JobHandler> {
    pub(super) context: std::sync::Arc<RunnerContext<O, L, H>>,
    pub(super) message: OutboxMessage,
    pub(super) is_asking: bool,
}

impl<O: Outbox + Clone, L: Limiter + 'static, H: JobHandler> InHand<O, L, H> {
    /// Everything that happens to a job from its claim to its end.
    pub(super) async fn work(mut self, claim: Claim<O>, turn: Turn) {
        let context = self.context.clone();
        let asking = match context.read(&self.message) {
            Ok(asking) => asking,
            Err(settlement) => {
                context.settle(&claim, &settlement).await;
                return;
            }
        };
        let asked = claim.keeping(context.ask(&asking, turn)).await;
        self.end_asking();
        match asked {
            Ok(Asked::Allowed(permit)) => context.run_allowed(&claim, asking, permit).await,
            Ok(Asked::Settled(settlement)) => {
                if let Settlement::Fail { .. } = settlement {
                    context.settings.observer.done(&asking.view(None), JobEnd::Refused);
                }
                context.settle(&claim, &settlement).await;
            }
            // Whatever it was allowed stays reserved until it expires.
            Err(ClaimLost) => context.note_lost(),
        }
    }

    fn end_asking(&mut self) {
        if std::mem::replace(&mut self.is_asking, false)
            && self.context.gates().end_asking(&self.message.topic)
        {
            self.context.changed.notify_one();
        }
    }
}

impl<O: Outbox + Clone, L: Limiter + 'static, H: JobHandler> Drop for InHand<O, L, H> {
    fn drop(&mut self) {
        self.end_asking();
        if self.context.gates().leave(&self.message.topic) {
            self.context.changed.notify_one();
        }
    }
}

impl<O: Outbox + Clone, L: Limiter + 'static, H: JobHandler> RunnerContext<O, L, H> {
    /// The job that a message asks for, or what becomes of the message instead.
    fn read(&self, message: &OutboxMessage) -> Result<Asking, Settlement> {
        let fail = |error: String| Settlement::Fail { error: ErrorText::new(error) };
        let job = match LlmJob::read(&message.payload) {
            Ok(job) => job,
            Err(error @ UnreadableJob::TooNew { .. }) => {
                tracing::warn!(%error, "job left for a newer runner");
                let delay = coordination::Delay::new(NEWER_AFTER).expect("a minute is in range");
                return Err(Settlement::Postpone {
                    delay,
                    reason: ErrorText::new(error.to_string()),
                });
            }
            Err(error) => return Err(fail(error.to_string())),
        };
        let lost = message.lost_attempts();
        if lost >= self.settings.lost_attempts_max {
            let last = message.last_error.as_str();
            let last = if last.is_empty() { String::new() } else { format!("; before: {last}") };
            return Err(fail(format!("gave up: {lost} attempts began and never ended{last}")));
        }
        let needs = job.request().needs_by(&*self.estimator);
        let needs = needs.map_err(|error| fail(error.to_string()))?;
        Ok(Asking {
            id: message.id,
            topic: message.topic.clone(),
            job,
            needs,
            job_id: JobId::new(message.id.to_string()).ok(),
            attempt: message.attempts.saturating_add(1),
            failures: message.retry_count,
            claimed_at: Instant::now(),
        })
    }

    async fn run_allowed(&self, claim: &Claim<O>, asking: Asking, permit: Permit) {
        let lease = permit.lease();
        let complete =
            |actuals| self.complete(&asking.needs, asking.job_id.as_ref(), lease, actuals);
        let attempt = match claim.begin().await {
            Ok(attempt) => attempt,
            Err(ClaimLost) => {
                self.note_lost();
                complete(asking.needs.unused()).await;
                return;
            }
        };
        match claim.keeping(self.call(&asking, attempt, permit.clone())).await {
            Ok(Ran { settlement, tokens, end }) => {
                let actuals = asking.needs.known_actuals(tokens);
                self.settings.observer.done(&asking.view(Some(lease)), end);
                // Together, so that neither waits for the other. A crash between them costs a hold its time or a job its
                // repetition, whichever comes first.
                tokio::join!(self.settle(claim, &settlement), complete(actuals));
            }
            Err(ClaimLost) => {
                self.note_lost();
                let actuals = asking.needs.known_actuals(permit.known_tokens());
                complete(actuals).await;
            }
        }
    }

    /// Calls the handler, and says what becomes of the job.
    async fn call(&self, asking: &Asking, attempt: u32, permit: Permit) -> Ran {
        let call =
            JobCall { id: asking.id, job: asking.job.clone(), attempt, permit: permit.clone() };
        // Called within the future, so that a panic of either is caught alike.
        let calling = AssertUnwindSafe(async { self.handler.run(call).await }).catch_unwind();
        let ended = tokio::select! {
            biased;
            ended = timeout(self.settings.job_timeout, calling) => Some(ended),
            () = self.stop.cancelled() => None,
        };
        let known = permit.known_tokens();
        let failed = |end, reason: String| {
            let settlement = self.failure(asking.failures.saturating_add(1), &reason);
            Ran { settlement, tokens: known, end }
        };
        match ended {
            Some(Ok(Ok(Ok(Done { output, tokens })))) => {
                let tokens = tokens.or(known);
                match (JobResult { output, tokens }).to_outcome() {
                    Ok(outcome) => {
                        let settlement = Settlement::Finish { outcome: Some(outcome) };
                        Ran { settlement, tokens, end: JobEnd::Succeeded }
                    }
                    Err(error) => {
                        let error = ErrorText::new(format!("the result cannot be kept: {error}"));
                        Ran { settlement: Settlement::Fail { error }, tokens, end: JobEnd::Failed }
                    }
                }
            }
            Some(Ok(Ok(Err(HandlerError::Retry { reason })))) => failed(JobEnd::Failed, reason),
            Some(Ok(Ok(Err(HandlerError::Permanent { reason })))) => {
                let settlement = Settlement::Fail { error: ErrorText::new(reason) };
                Ran { settlement, tokens: known, end: JobEnd::Failed }
            }
            Some(Ok(Err(panic))) => {
                self.counts().panicked.add(1);
                failed(JobEnd::Panicked, format!("handler panicked: {}", panic_message(&*panic)))
            }
            Some(Err(_elapsed)) => {
                self.counts().timed_out.add(1);
                let after = self.settings.job_timeout;
                failed(JobEnd::Failed, format!("handler timed out after {after:?}"))
            }
            None => {
                self.counts().given_back.add(1);
                let (delay, reason) = (coordination::Delay::ZERO, ErrorText::default());
                let settlement = Settlement::Postpone { delay, reason };
                Ran { settlement, tokens: known, end: JobEnd::Cancelled }
            }
        }
    }

    /// Another attempt, or the end of them.
    fn failure(&self, failures: u32, reason: &str) -> Settlement {
        if failures >= self.settings.attempts_max {
            let error = format!("gave up after {failures} failed attempts: {reason}");
            return Settlement::Fail { error: ErrorText::new(error) };
        }
        let delay = retry_delay(failures.saturating_sub(1), fastrand::f64());
        Settlement::Retry { delay, error: ErrorText::new(reason) }
    }

    async fn settle(&self, claim: &Claim<O>, settlement: &Settlement) {
        if claim.settle(settlement).await.is_err() {
            self.note_lost();
            return;
        }
        match settlement {
            Settlement::Finish { .. } => self.counts().succeeded.add(1),
            Settlement::Retry { delay, error } => {
                tracing::info!(?delay, %error, "job will be tried again");
                self.counts().retried.add(1);
            }
            Settlement::Fail { error } => {
                tracing::warn!(%error, "job failed");
                self.counts().failed.add(1);
            }
            Settlement::Postpone { delay, reason } => {
                tracing::debug!(?delay, %reason, "job put off");
            }
        }
    }
}
