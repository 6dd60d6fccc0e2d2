//! A claimed job asks for room, when its turn has come.

use std::time::Duration;

use coordination::{Delay, ErrorText, MessageId, Outbox, Topic};
use ratelimiter::admission::no_answer_pause;
use ratelimiter::clock::{Clock, Timestamp};
use ratelimiter::{
    Decision, Denial, DenialReason, JobId, LeaseId, LimitKey, Limiter, ReserveError, ReserveRequest,
};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::claim::Settlement;
use super::context::RunnerContext;
use super::handler::JobHandler;
use super::job::LlmJob;
use crate::completing::jittered;
use crate::llm::LlmRequirements;
use crate::scheduler::{JobView, Permit};

/// How long a job waits that cannot be allowed before somebody puts something right.
const POSTPONED_FOR: Duration = Duration::from_secs(10);

/// A job in hand that asks.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) id: MessageId,
    pub(super) topic: Topic,
    pub(super) job: LlmJob,
    pub(super) needs: LlmRequirements,
    pub(super) job_id: Option<JobId>,
    /// Which attempt it would be.
    pub(super) attempt: u32,
    /// How many attempts have failed before.
    pub(super) failures: u32,
    pub(super) claimed_at: Instant,
}

/// The jobs of one model ask in the order of their creation: each when the one before has its answer.
#[derive(Debug)]
pub(super) struct Turn {
    /// Comes when the turn has; none is now.
    pub(super) comes: Option<oneshot::Receiver<()>>,
    /// Dropped when the next one may ask.
    pub(super) next: oneshot::Sender<()>,
}

/// What came of asking.
#[derive(Debug)]
pub(super) enum Asked {
    /// The call may be made.
    Allowed(Permit),
    /// It may not, and this becomes of the job.
    Settled(Settlement),
}

impl<O: Outbox + Clone, L: Limiter + 'static, H: JobHandler> RunnerContext<O, L, H> {
    /// Waits for the job's turn and asks until there is an answer, or the runner is told to stop.
    pub(super) async fn ask(&self, asking: &Asking, turn: Turn) -> Asked {
        if let Some(comes) = turn.comes {
            // An error says that the one before is gone, which is as good.
            drop(comes.await);
        }
        let asked = self.ask_now(asking).await;
        drop(turn.next);
        asked
    }

    async fn ask_now(&self, asking: &Asking) -> Asked {
        if self.shutdown.is_cancelled() || !self.gates().lets_ask(self.clock.now(), &asking.topic) {
            self.counts().given_back.add(1);
            return Asked::put_off(Duration::ZERO);
        }
        let budget = asking.needs.daily_tokens();
        let waits = budget.and_then(|key| self.gates().put_off(self.clock.now(), key));
        if let Some(wait) = waits {
            self.counts().put_off.add(1);
            return Asked::put_off(jittered(wait, self.settings.jitter));
        }
        let mut lease = LeaseId::generate(self.clock.now());
        let mut unanswered_count = 0;
        loop {
            self.counts().asked.add(1);
            self.settings.observer.reserve_started(&asking.view(Some(lease)));
            let request = ReserveRequest {
                lease,
                job: asking.job_id.clone(),
                requirements: asking.needs.requirements().clone(),
            };
            let answer = tokio::select! {
                biased;
                answer = self.limiter.reserve(&request) => Some(answer),
                () = self.stop.cancelled() => None,
            };
            match answer {
                Some(Ok(Decision::Allowed { reserved_at })) => {
                    return self.allowed(asking, lease, reserved_at).await;
                }
                Some(Ok(Decision::Denied(denial))) => return self.denied(asking, lease, &denial),
                Some(Err(ReserveError::Unanswered(unanswered))) => {
                    tracing::debug!(%unanswered, "no answer to reserve");
                    self.counts().unanswered.add(1);
                    self.settings.observer.unknown(&asking.view(Some(lease)), &unanswered);
                    unanswered_count += 1;
                    let jitter = fastrand::f64();
                    let pause = no_answer_pause(unanswered_count, unanswered.retry_after, jitter);
                    tokio::select! {
                        () = sleep_until(Instant::now() + pause) => {}
                        () = self.shutdown.cancelled() => return self.give_up(asking, lease).await,
                    }
                }
                None => return self.give_up(asking, lease).await,
                // An answer that was lost had used the lease up.
                Some(Err(ReserveError::LeaseEnded | ReserveError::LeaseConflict))
                    if unanswered_count > 0 =>
                {
                    lease = LeaseId::generate(self.clock.now());
                    unanswered_count = 0;
                }
                Some(Err(
                    error @ (ReserveError::AmountExceedsCapacity { .. }
                    | ReserveError::InvalidRequest { .. }),
                )) => return self.refused(&error),
                Some(Err(
                    error @ (ReserveError::UnknownKey { .. }
                    | ReserveError::LeaseEnded
                    | ReserveError::LeaseConflict
                    | ReserveError::Refused(_)),
                )) => return self.postponed(asking, &error),
            }
        }
    }

    async fn allowed(&self, asking: &Asking, lease: LeaseId, reserved_at: Timestamp) -> Asked {
        if self.shutdown.is_cancelled() {
            return self.give_up(asking, lease).await;
        }
        self.counts().allowed.add(1);
        self.gates().allowed(asking.id, &asking.topic, asking.needs.daily_tokens());
        self.settings.observer.allowed(&asking.view(Some(lease)));
        Asked::Allowed(Permit::new(lease, reserved_at))
    }

    fn denied(&self, asking: &Asking, lease: LeaseId, denial: &Denial) -> Asked {
        let wait = jittered(denial.retry_after, self.settings.jitter);
        tracing::debug!(keys = ?denial.keys(), ?wait, "reserve denied");
        self.counts().denied.add(1);
        self.settings.observer.denied(&asking.view(Some(lease)), denial);
        let budget = asking.needs.daily_tokens();
        let Asking { id, topic, .. } = asking;
        let wait = self.gates().denied(self.clock.now(), *id, topic, denial.keys(), budget, wait);
        // The gate's time is one to wake up at.
        self.changed.notify_one();
        match &denial.reason {
            DenialReason::Paused { key } => {
                tracing::info!(%key, ?wait, "job waits, its limit is paused");
                self.counts().paused.add(1);
                Asked::put_off_because(wait, format!("waits: {key} is paused (capacity 0)"))
            }
            DenialReason::NoRoom { .. } | DenialReason::Decreasing { .. } => Asked::put_off(wait),
        }
    }

    /// The job cannot be allowed before somebody puts something right that is not the job's: a key, a token, a URL, a
    /// client that was shut down. It waits, and the jobs that may meet the same ask one at a time.
    fn postponed(&self, asking: &Asking, error: &ReserveError) -> Asked {
        let wait = jittered(POSTPONED_FOR, self.settings.jitter);
        tracing::warn!(%error, ?wait, "job postponed");
        self.counts().postponed.add(1);
        let budget = asking.needs.daily_tokens();
        let keys: Vec<LimitKey> = if let ReserveError::UnknownKey { key } = error {
            vec![key.clone()]
        } else {
            let keys = asking.needs.requirements().iter().map(|needed| &needed.key);
            keys.filter(|key| Some(*key) != budget).cloned().collect()
        };
        let wait = self.gates().postponed(self.clock.now(), &asking.topic, &keys, budget, wait);
        self.changed.notify_one();
        Asked::put_off_because(wait, format!("postponed: {error}"))
    }

    fn refused(&self, error: &ReserveError) -> Asked {
        tracing::warn!(%error, "job refused for good");
        self.counts().refused.add(1);
        let error = ErrorText::new(format!("the job can never be allowed: {error}"));
        Asked::Settled(Settlement::Fail { error })
    }

    /// The runner stops before the job has run. Its lease may have been allowed all the same.
    async fn give_up(&self, asking: &Asking, lease: LeaseId) -> Asked {
        let Asking { needs, job_id, .. } = asking;
        self.complete(needs, job_id.as_ref(), lease, needs.unused()).await;
        self.counts().given_back.add(1);
        Asked::put_off(Duration::ZERO)
    }
}

impl Asked {
    fn put_off(wait: Duration) -> Asked {
        Asked::put_off_because(wait, String::new())
    }

    fn put_off_because(wait: Duration, reason: String) -> Asked {
        let wait = wait.min(coordination::DELAY_MAX);
        let delay = Delay::new(wait).expect("it was just bounded");
        Asked::Settled(Settlement::Postpone { delay, reason: ErrorText::new(reason) })
    }
}

impl Asking {
    pub(super) fn view(&self, lease: Option<LeaseId>) -> JobView<'_> {
        JobView {
            id: self.job_id.as_ref(),
            tenant: self.needs.tenant(),
            provider: self.needs.provider(),
            model: self.needs.model(),
            lease,
            attempts: self.attempt,
            waited: self.claimed_at.elapsed(),
        }
    }
}

/// Batons for so many jobs of one model.
pub(super) fn turns(count: usize) -> impl Iterator<Item = Turn> {
    let mut comes = None;
    (0..count).map(move |_| {
        let (next, waits) = oneshot::channel();
        Turn { comes: comes.replace(waits), next }
    })
}
