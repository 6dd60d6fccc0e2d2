//! Running a claimed job, from its admission to its settlement.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use coordination::{ErrorText, HandlerError, Outbox, OutboxMessage, retry_delay};
use futures::FutureExt;
use ratelimiter::{JobId, Limiter};
use tokio::time::{Instant, timeout};

use super::admission::{AdmissionTurn, ClaimedJob};
use super::claim::{Claim, ClaimLost, NotBegun, Settlement, fail, postpone};
use super::context::RunnerContext;
use super::handler::{JobCall, JobHandler};
use super::job::{LlmJob, UnreadableJob};
use super::queue::JobResult;
use crate::scheduler::{Done, JobEnd, Permit, panic_message};

/// How long a job of a newer version is postponed, for a newer runner.
const NEWER_AFTER: Duration = Duration::from_secs(60);
/// The delay of a job whose start was confirmed too late.
const BEGIN_AGAIN_AFTER: Duration = Duration::from_secs(1);

struct CallOutcome {
    settlement: Settlement,
    tokens: Option<u64>,
    end: JobEnd,
}

/// A job in flight. Dropping it frees its worker, whatever happened.
pub(super) struct InFlightJob<O: Outbox + Clone, L: Limiter + 'static, H: JobHandler> {
    pub(super) context: std::sync::Arc<RunnerContext<O, L, H>>,
    pub(super) message: OutboxMessage,
    pub(super) is_asking: bool,
}

impl<O: Outbox + Clone, L: Limiter + 'static, H: JobHandler> InFlightJob<O, L, H> {
    /// Admits the job, makes the call and settles it.
    pub(super) async fn run(mut self, claim: Claim<O>, turn: AdmissionTurn) {
        let context = self.context.clone();
        let job = match context.read(&self.message) {
            Ok(job) => job,
            Err(settlement) => {
                context.settle(&claim, &settlement).await;
                return;
            }
        };
        let admitted = claim.while_extending(context.admit(&job, turn)).await;
        self.end_asking();
        match admitted {
            Ok(Ok(permit)) => context.run_allowed(&claim, job, permit).await,
            Ok(Err(settlement)) => {
                if let Settlement::Fail { .. } = settlement {
                    context.settings.observer.done(&job.view(None), JobEnd::Refused);
                }
                context.settle(&claim, &settlement).await;
            }
            // What it was allowed stays reserved until it expires.
            Err(ClaimLost) => context.record_claim_lost(),
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

impl<O: Outbox + Clone, L: Limiter + 'static, H: JobHandler> Drop for InFlightJob<O, L, H> {
    fn drop(&mut self) {
        self.end_asking();
        if self.context.gates().finish(&self.message.topic) {
            self.context.changed.notify_one();
        }
    }
}

impl<O: Outbox + Clone, L: Limiter + 'static, H: JobHandler> RunnerContext<O, L, H> {
    /// The job of a message, or how to settle a message that is no valid job.
    fn read(&self, message: &OutboxMessage) -> Result<ClaimedJob, Settlement> {
        let job = match LlmJob::read(&message.payload) {
            Ok(job) => job,
            Err(error @ UnreadableJob::TooNew { .. }) => {
                tracing::warn!(%error, "job left for a newer runner");
                return Err(postpone(NEWER_AFTER, error.to_string()));
            }
            Err(error) => return Err(fail(error.to_string())),
        };
        let lost = message.lost_attempts();
        if lost >= self.settings.lost_attempts_max {
            let last = message.last_error.as_str();
            let last = if last.is_empty() { String::new() } else { format!("; before: {last}") };
            return Err(fail(format!("gave up: {lost} attempts began and never ended{last}")));
        }
        let requirements = job.request().requirements_with(&*self.estimator);
        let requirements = requirements.map_err(|error| fail(error.to_string()))?;
        Ok(ClaimedJob {
            id: message.id,
            topic: message.topic.clone(),
            job,
            requirements,
            job_id: JobId::new(message.id.to_string()).ok(),
            attempt: message.attempts.saturating_add(1),
            failures: message.retry_count,
            claimed_at: Instant::now(),
        })
    }

    async fn run_allowed(&self, claim: &Claim<O>, job: ClaimedJob, permit: Permit) {
        let lease = permit.lease();
        let complete =
            |actuals| self.complete(&job.requirements, job.job_id.as_ref(), lease, actuals);
        let begun = match claim.begin().await {
            Ok(_) if self.shutdown.is_cancelled() => Err(NotBegun::Stopped),
            begun => begun,
        };
        let attempt = match begun {
            Ok(attempt) => attempt,
            Err(not_begun) => {
                self.settings.observer.done(&job.view(Some(lease)), JobEnd::Cancelled);
                let complete = complete(job.requirements.unused());
                tokio::join!(self.give_back(claim, not_begun), complete);
                return;
            }
        };
        match claim.while_extending(self.call(&job, attempt, permit.clone())).await {
            Ok(CallOutcome { settlement, tokens, end }) => {
                let actuals = job.requirements.known_actuals(tokens);
                self.settings.observer.done(&job.view(Some(lease)), end);
                // Concurrently, so that neither waits for the other. After a crash between them the hold times out, or the
                // job is repeated.
                tokio::join!(self.settle(claim, &settlement), complete(actuals));
            }
            Err(ClaimLost) => {
                self.record_claim_lost();
                self.settings.observer.done(&job.view(Some(lease)), JobEnd::Cancelled);
                let actuals = job.requirements.known_actuals(permit.known_tokens());
                complete(actuals).await;
            }
        }
    }

    /// Gives a job back whose handler is not called.
    async fn give_back(&self, claim: &Claim<O>, not_begun: NotBegun) {
        let back = match not_begun {
            NotBegun::ClaimLost => return self.record_claim_lost(),
            NotBegun::TooLate => {
                let reason = "postponed: the outbox confirmed the start too late";
                tracing::warn!("the outbox confirmed the start of a job too late");
                postpone(BEGIN_AGAIN_AFTER, reason)
            }
            NotBegun::Stopped => postpone(Duration::ZERO, ""),
        };
        self.counts().given_back.add(1);
        self.settle(claim, &back).await;
    }

    /// Calls the handler, and decides how to settle the job.
    async fn call(&self, job: &ClaimedJob, attempt: u32, permit: Permit) -> CallOutcome {
        let call = JobCall { id: job.id, job: job.job.clone(), attempt, permit: permit.clone() };
        // Called within the future, so that panics of `run` itself are caught too.
        let calling = AssertUnwindSafe(async { self.handler.run(call).await }).catch_unwind();
        let ended = tokio::select! {
            biased;
            ended = timeout(self.settings.job_timeout, calling) => Some(ended),
            () = self.stop.cancelled() => None,
        };
        let known = permit.known_tokens();
        let failed = |end, reason: String| {
            let settlement = self.failure(job.failures.saturating_add(1), &reason);
            CallOutcome { settlement, tokens: known, end }
        };
        match ended {
            Some(Ok(Ok(Ok(Done { output, tokens })))) => {
                let tokens = tokens.or(known);
                match (JobResult { output, tokens }).to_outcome() {
                    Ok(outcome) => {
                        let settlement = Settlement::Finish { outcome: Some(outcome) };
                        CallOutcome { settlement, tokens, end: JobEnd::Succeeded }
                    }
                    Err(error) => {
                        let settlement = fail(format!("the result cannot be stored: {error}"));
                        CallOutcome { settlement, tokens, end: JobEnd::Failed }
                    }
                }
            }
            Some(Ok(Ok(Err(HandlerError::Retry { reason })))) => failed(JobEnd::Failed, reason),
            Some(Ok(Ok(Err(HandlerError::Permanent { reason })))) => {
                CallOutcome { settlement: fail(reason), tokens: known, end: JobEnd::Failed }
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
                let settlement = postpone(Duration::ZERO, "");
                CallOutcome { settlement, tokens: known, end: JobEnd::Cancelled }
            }
        }
    }

    /// A retry, or a failure after the last attempt.
    fn failure(&self, failures: u32, reason: &str) -> Settlement {
        if failures >= self.settings.attempts_max {
            return fail(format!("gave up after {failures} failed attempts: {reason}"));
        }
        let delay = retry_delay(failures.saturating_sub(1), fastrand::f64());
        Settlement::Retry { delay, error: ErrorText::new(reason) }
    }

    async fn settle(&self, claim: &Claim<O>, settlement: &Settlement) {
        if claim.settle(settlement).await.is_err() {
            self.record_claim_lost();
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
                tracing::debug!(?delay, %reason, "job postponed");
            }
        }
    }
}
