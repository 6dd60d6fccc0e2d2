//! What one worker of a load test does: reserve, and complete what was allowed.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::{Clock, SystemClock, Timestamp};
use ratelimiter::{
    Actuals, Capacity, CompleteRequest, HoldTimeout, LeaseId, Limit, LimitKey, LimitKind, Limiter,
    Requirements, ReserveRequest, Window,
};
use tokio::sync::mpsc::UnboundedSender;

use super::super::Failure;
use super::report::Counted;

/// How often a worker hands over what it has counted.
const HAND_OVER_EVERY: Duration = Duration::from_millis(100);
/// What each call needs of the token limits, and what it really used.
const TOKENS_RESERVED: u64 = 100;
const TOKENS_USED: u64 = 40;

/// The calls of a load test.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) prefix: String,
    pub(super) models: u64,
    pub(super) requirements: u64,
    pub(super) completes: bool,
}

impl Load {
    /// The limits of one model, the first of them needed by every call, in the order of a real call's: requests,
    /// tokens, concurrency, a daily budget.
    fn keys(&self, model: u64) -> Result<Vec<LimitKey>, Failure> {
        ["rpm", "tpm", "concurrency", "daily_tokens"]
            .iter()
            .take(usize::try_from(self.requirements).unwrap_or(4))
            .map(|dimension| {
                LimitKey::new(format!("{}:{model}:{dimension}", self.prefix)).map_err(Failure::of)
            })
            .collect()
    }

    /// The definitions that the calls need.
    pub(super) fn limits(&self, capacity: u64) -> Result<Vec<Limit>, Failure> {
        let capacity = Capacity::new(capacity).map_err(Failure::of)?;
        let rolling =
            |seconds| Window::from_seconds(seconds).map(|window| LimitKind::Rolling { window });
        let minute = rolling(60).map_err(Failure::of)?;
        let day = rolling(86_400).map_err(Failure::of)?;
        let timeout = HoldTimeout::from_seconds(60).map_err(Failure::of)?;
        let kinds = [minute, minute, LimitKind::Concurrency { timeout }, day];
        let mut limits = Vec::new();
        for model in 0..self.models {
            let keys = self.keys(model)?.into_iter();
            limits.extend(keys.zip(kinds).map(|(key, kind)| Limit::new(key, kind, capacity)));
        }
        Ok(limits)
    }
}

/// One of the callers.
pub(super) struct Worker<B> {
    pub(super) backend: B,
    pub(super) load: Arc<Load>,
    pub(super) clock: Arc<SystemClock>,
    pub(super) number: u64,
    pub(super) progress: UnboundedSender<Counted>,
}

/// The limits of one model as a call names them.
struct Model {
    requirements: Requirements,
    actuals: Actuals,
}

impl<B: Limiter> Worker<B> {
    pub(super) async fn run_until(self, end: Timestamp) {
        let models: Vec<Model> = (0..self.load.models).map(|model| self.model(model)).collect();
        let mut counted = Counted::new();
        let mut handed_over = self.clock.now();
        // Workers begin at different models, so that they do not walk over the same keys in step.
        let mut at = usize::try_from(self.number).unwrap_or(0) % models.len();
        while self.clock.now() < end {
            self.call(&models[at], &mut counted).await;
            at = (at + 1) % models.len();
            let now = self.clock.now();
            if now.since(handed_over) >= HAND_OVER_EVERY {
                handed_over = now;
                let full = std::mem::replace(&mut counted, Counted::new());
                if self.progress.send(full).is_err() {
                    return;
                }
            }
        }
        // The receiver is gone only when the test as a whole is.
        drop(self.progress.send(counted));
    }

    fn model(&self, model: u64) -> Model {
        let keys = self.load.keys(model).unwrap_or_default();
        let amounts = [1, TOKENS_RESERVED, 1, TOKENS_RESERVED];
        let used = keys.iter().enumerate().filter(|(at, _)| at % 2 == 1);
        let actuals = Actuals::of(used.map(|(_, key)| (key.clone(), TOKENS_USED)));
        let requirements = Requirements::of(keys.iter().cloned().zip(amounts));
        Model {
            requirements: requirements.expect("1 to 4 keys, all of them different"),
            actuals: actuals.expect("at most 2 keys, both different"),
        }
    }

    async fn call(&self, model: &Model, counted: &mut Counted) {
        let started = self.clock.now();
        let lease = LeaseId::generate(started);
        let request = ReserveRequest::new(lease, model.requirements.clone());
        let decided = self.backend.reserve(&request).await;
        counted.reserves.record(self.clock.now().since(started));
        match decided {
            Ok(decision) if decision.is_allowed() => counted.allowed += 1,
            Ok(_) => {
                counted.denied += 1;
                return;
            }
            Err(error) => {
                counted.failed += 1;
                counted.first_failure.get_or_insert(error.to_string());
                return;
            }
        }
        if !self.load.completes {
            return;
        }
        let started = self.clock.now();
        let request = CompleteRequest::new(lease, model.actuals.clone());
        let completed = self.backend.complete(&request).await;
        counted.completes.record(self.clock.now().since(started));
        if let Err(error) = completed {
            counted.failed += 1;
            counted.first_failure.get_or_insert(error.to_string());
        }
    }
}
