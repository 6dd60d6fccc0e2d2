//! A memory limiter on tokio's paused time with scripted failures, and jobs for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratelimiter_client::memory::MemoryOptions;
use ratelimiter_client::{
    Capacity, CompleteError, CompleteRequest, Decision, Done, HoldTimeout, Job, JobId, LeaseId,
    Limit, LimitKey, LimitKind, Limiter, LlmRequest, MemoryLimiter, Refused, ReserveError,
    ReserveRequest, Scheduler, SchedulerOptions, TokioClock, Unanswered, Window,
};
use testkit::pass;

/// The scripted outcome of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scripted {
    /// It is carried out and answered.
    Answered,
    /// It never arrives.
    RequestLost,
    /// It is refused, as with a wrong token.
    Refused,
    /// It is refused as invalid.
    Invalid,
    /// Its lease has ended.
    LeaseEnded,
    /// It is carried out, and its answer is lost.
    AnswerLost,
    /// It is carried out, and answered a second later.
    Delayed,
    /// It is never answered.
    NeverAnswered,
}

/// The limiter, with all requests it got.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) memory: MemoryLimiter,
    reserve_script: Arc<Mutex<VecDeque<Scripted>>>,
    complete_script: Arc<Mutex<VecDeque<Scripted>>>,
    /// Its requests may wait for room.
    lets_wait: bool,
    pub(crate) reserves: Arc<Mutex<Vec<LeaseId>>>,
    /// Leases of the requests that may wait.
    pub(crate) waits: Arc<Mutex<Vec<LeaseId>>>,
    pub(crate) completes: Arc<Mutex<Vec<CompleteRequest>>>,
}

/// The limits of a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelLimits {
    pub(crate) rpm: u64,
    pub(crate) tpm: u64,
    pub(crate) slots: u64,
}

pub(crate) const ROOMY: ModelLimits = ModelLimits { rpm: 1_000_000, tpm: 1_000_000, slots: 1_000 };

impl World {
    pub(crate) fn new() -> Self {
        let options = MemoryOptions::for_tests(TokioClock::new());
        Self {
            memory: MemoryLimiter::with_options(options),
            reserve_script: Arc::default(),
            complete_script: Arc::default(),
            lets_wait: false,
            waits: Arc::default(),
            reserves: Arc::default(),
            completes: Arc::default(),
        }
    }

    /// With one roomy model, `p`/`m`.
    pub(crate) fn roomy() -> Self {
        Self::new().with_model("p", ROOMY)
    }

    /// Requests may wait for room. What becomes of those is scripted.
    pub(crate) fn letting_wait(self) -> Self {
        Self { lets_wait: true, ..self }
    }

    pub(crate) fn with_model(self, provider: &str, limits: ModelLimits) -> Self {
        let ModelLimits { rpm, tpm, slots } = limits;
        self.rolling(LimitKey::llm_rpm(provider, "m").unwrap(), rpm, 60);
        self.rolling(LimitKey::llm_tpm(provider, "m").unwrap(), tpm, 60);
        let timeout = HoldTimeout::from_seconds(300).unwrap();
        let kind = LimitKind::Concurrency { timeout };
        let key = LimitKey::llm_concurrency(provider, "m").unwrap();
        self.memory.define_now(Limit::new(key, kind, Capacity::new(slots).unwrap())).unwrap();
        self
    }

    /// Sets the requests of a model, paused or not.
    pub(crate) fn set_rpm(&self, provider: &str, rpm: u64) {
        self.rolling(LimitKey::llm_rpm(provider, "m").unwrap(), rpm, 60);
    }

    pub(crate) fn with_budget(self, tenant: &str, tokens: u64) -> Self {
        self.rolling(LimitKey::tenant_daily_tokens(tenant).unwrap(), tokens, 86_400);
        self
    }

    fn rolling(&self, key: LimitKey, capacity: u64, seconds: u64) {
        let kind = LimitKind::Rolling { window: Window::from_seconds(seconds).unwrap() };
        let capacity = Capacity::new(capacity).unwrap();
        self.memory.define_now(Limit::new(key, kind, capacity)).unwrap();
    }

    /// Scripts the next reserves; those after them are answered.
    pub(crate) fn script_reserves(&self, outcome: impl IntoIterator<Item = Scripted>) {
        self.reserve_script.lock().unwrap().extend(outcome);
    }

    /// Scripts the next completes; those after them are answered.
    pub(crate) fn script_completes(&self, outcome: impl IntoIterator<Item = Scripted>) {
        self.complete_script.lock().unwrap().extend(outcome);
    }

    pub(crate) fn scheduler(&self, workers: usize) -> Scheduler<Self> {
        Scheduler::new(self.clone(), workers)
    }

    pub(crate) fn scheduler_with(&self, options: SchedulerOptions) -> Scheduler<Self> {
        Scheduler::with_options(self.clone(), options)
    }

    /// The leases of all reserves, in order.
    pub(crate) fn reserves(&self) -> Vec<LeaseId> {
        self.reserves.lock().unwrap().clone()
    }

    pub(crate) fn completes(&self) -> Vec<CompleteRequest> {
        self.completes.lock().unwrap().clone()
    }

    pub(crate) fn used(&self, key: &LimitKey) -> u64 {
        self.memory.state_now(key).unwrap().usage.used
    }

    /// The usage of the model `p`/`m`: requests, tokens, slots.
    pub(crate) fn use_of_p(&self) -> (u64, u64, u64) {
        (
            self.used(&LimitKey::llm_rpm("p", "m").unwrap()),
            self.used(&LimitKey::llm_tpm("p", "m").unwrap()),
            self.used(&LimitKey::llm_concurrency("p", "m").unwrap()),
        )
    }
}

fn no_answer() -> Unanswered {
    Unanswered { reason: "lost".to_owned(), retry_after: Duration::ZERO }
}

impl Limiter for World {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        self.reserves.lock().unwrap().push(request.lease);
        if request.wait.is_some() {
            self.waits.lock().unwrap().push(request.lease);
        }
        let outcome = self.reserve_script.lock().unwrap().pop_front();
        match outcome.unwrap_or(Scripted::Answered) {
            Scripted::Answered => self.memory.reserve_now(request),
            Scripted::RequestLost => Err(no_answer().into()),
            Scripted::Refused => Err(Refused { reason: "no such token".to_owned() }.into()),
            Scripted::Invalid => {
                Err(ReserveError::InvalidRequest { reason: "duplicate_key:k".to_owned() })
            }
            Scripted::LeaseEnded => Err(ReserveError::LeaseEnded),
            Scripted::AnswerLost => {
                drop(self.memory.reserve_now(request));
                Err(no_answer().into())
            }
            Scripted::Delayed => {
                let answer = self.memory.reserve_now(request);
                pass(secs(1)).await;
                answer
            }
            Scripted::NeverAnswered => std::future::pending().await,
        }
    }

    fn can_wait(&self) -> bool {
        self.lets_wait
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        self.completes.lock().unwrap().push(request.clone());
        let outcome = self.complete_script.lock().unwrap().pop_front();
        match outcome.unwrap_or(Scripted::Answered) {
            Scripted::Answered => self.memory.complete_now(request),
            Scripted::RequestLost => Err(no_answer().into()),
            Scripted::Refused | Scripted::Invalid | Scripted::LeaseEnded => {
                Err(Refused { reason: "no such token".to_owned() }.into())
            }
            Scripted::AnswerLost => {
                drop(self.memory.complete_now(request));
                Err(no_answer().into())
            }
            Scripted::Delayed => {
                let answer = self.memory.complete_now(request);
                pass(secs(1)).await;
                answer
            }
            Scripted::NeverAnswered => std::future::pending().await,
        }
    }
}

/// A call of `upper` tokens to `provider`/`m` for `tenant`.
pub(crate) fn call(provider: &str, tenant: &str, upper: u64) -> LlmRequest {
    LlmRequest {
        tenant: tenant.to_owned(),
        provider: provider.to_owned(),
        model: "m".to_owned(),
        prompt: String::new(),
        max_output_tokens: upper,
        want_daily_budget: false,
    }
}

/// The same call, counted against the tenant's budget.
pub(crate) fn budgeted(provider: &str, tenant: &str, upper: u64) -> LlmRequest {
    LlmRequest { want_daily_budget: true, ..call(provider, tenant, upper) }
}

/// A job that takes this long and uses as many tokens as it may.
pub(crate) fn lasting(request: &LlmRequest, lasts: Duration) -> Job<()> {
    let tokens = request.max_output_tokens;
    job(request, move || async move {
        pass(lasts).await;
        Done::using(tokens, ())
    })
}

/// A job that runs `execute`.
pub(crate) fn job<T, F, Fut>(request: &LlmRequest, execute: F) -> Job<T>
where
    T: Send + 'static,
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = Done<T>> + Send + 'static,
{
    Job::new(request, |_permit| async { Ok::<_, std::io::Error>(execute().await) }).unwrap()
}

pub(crate) fn id(text: &str) -> JobId {
    JobId::new(text).unwrap()
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
