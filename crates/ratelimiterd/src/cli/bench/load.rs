//! Workers of a load test: reserve, then complete if allowed.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiter::{
    Actuals, Capacity, CompleteRequest, HoldTimeout, LeaseId, Limit, LimitKey, LimitKind, Limiter,
    Requirements, ReserveRequest, Window,
};
use tokio::sync::mpsc::UnboundedSender;

use super::super::CliError;
use super::report::LoadResults;

/// How often a worker sends its results.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// Amount that each call reserves of its token limits, and its actual usage.
const TOKENS_RESERVED: u64 = 100;
const TOKENS_USED: u64 = 40;

/// The shape of a load test.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) prefix: String,
    pub(super) models: u64,
    pub(super) requirements: u64,
    pub(super) completes: bool,
}

impl Load {
    /// The limits of one model: requests, tokens, concurrency, a daily budget. A call with fewer requirements uses the
    /// first ones.
    fn keys(&self, model: u64) -> Result<Vec<LimitKey>, CliError> {
        ["rpm", "tpm", "concurrency", "daily_tokens"]
            .iter()
            .take(usize::try_from(self.requirements).unwrap_or(4))
            .map(|dimension| {
                LimitKey::new(format!("{}:{model}:{dimension}", self.prefix)).map_err(CliError::of)
            })
            .collect()
    }

    pub(super) fn limits(&self, capacity: u64) -> Result<Vec<Limit>, CliError> {
        let capacity = Capacity::new(capacity).map_err(CliError::of)?;
        let rolling =
            |seconds| Window::from_seconds(seconds).map(|window| LimitKind::Rolling { window });
        let minute = rolling(60).map_err(CliError::of)?;
        let day = rolling(86_400).map_err(CliError::of)?;
        let timeout = HoldTimeout::from_seconds(60).map_err(CliError::of)?;
        let kinds = [minute, minute, LimitKind::Concurrency { timeout }, day];
        let mut limits = Vec::new();
        for model in 0..self.models {
            let keys = self.keys(model)?.into_iter();
            limits.extend(keys.zip(kinds).map(|(key, kind)| Limit::new(key, kind, capacity)));
        }
        Ok(limits)
    }
}

pub(super) struct Worker<B> {
    pub(super) backend: B,
    pub(super) load: Arc<Load>,
    pub(super) clock: Arc<MonotonicClock>,
    pub(super) number: u64,
    pub(super) progress: UnboundedSender<LoadResults>,
}

/// The requirements and actuals of a call to one model.
struct Model {
    requirements: Requirements,
    actuals: Actuals,
}

impl<B: Limiter> Worker<B> {
    pub(super) async fn run_until(self, end: Timestamp) {
        let models: Vec<Model> = (0..self.load.models).map(|model| self.model(model)).collect();
        let mut results = LoadResults::new();
        let mut reported_at = self.clock.now();
        // Workers start at different models, so that they do not use the same keys in lockstep.
        let mut at = usize::try_from(self.number).unwrap_or(0) % models.len();
        while self.clock.now() < end {
            self.call(&models[at], &mut results).await;
            at = (at + 1) % models.len();
            let now = self.clock.now();
            if now.since(reported_at) >= REPORT_EVERY {
                reported_at = now;
                let full = std::mem::replace(&mut results, LoadResults::new());
                if self.progress.send(full).is_err() {
                    return;
                }
            }
        }
        // The receiver is dropped only if the whole test is.
        drop(self.progress.send(results));
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

    async fn call(&self, model: &Model, results: &mut LoadResults) {
        let started = self.clock.now();
        let lease = LeaseId::generate(started);
        let request = ReserveRequest::new(lease, model.requirements.clone());
        let decided = self.backend.reserve(&request).await;
        results.reserves.record(self.clock.now().since(started));
        match decided {
            Ok(decision) if decision.is_allowed() => results.allowed += 1,
            Ok(_) => {
                results.denied += 1;
                return;
            }
            Err(error) => {
                results.failed += 1;
                results.first_failure.get_or_insert(error.to_string());
                return;
            }
        }
        if !self.load.completes {
            return;
        }
        let started = self.clock.now();
        let request = CompleteRequest::new(lease, model.actuals.clone());
        let completed = self.backend.complete(&request).await;
        results.completes.record(self.clock.now().since(started));
        if let Err(error) = completed {
            results.failed += 1;
            results.first_failure.get_or_insert(error.to_string());
        }
    }
}
