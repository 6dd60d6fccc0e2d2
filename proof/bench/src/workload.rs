//! The work that is measured: LLM calls over many models, each of which needs four limits.

use std::sync::Arc;

use ratelimiter::clock::Clock;
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, CAPACITY_MAX, Capacity, CompleteRequest, Decision, HoldTimeout, LeaseId, Limit,
    LimitKey, LimitKind, MemoryLimiter, Requirements, ReserveRequest, Window,
};

/// How many limits a call needs.
pub(crate) const LIMITS_PER_CALL: usize = 4;
/// How much a call reserves of each limit, in the order of [`keys`]: a request, its tokens, a slot, a day's tokens.
pub(crate) const AMOUNTS: [u64; LIMITS_PER_CALL] = [1, 1_800, 1, 1_800];
/// Which of a model's limits is the concurrency limit.
const CONCURRENCY: usize = 2;
/// What the models are shuffled with: neighbours in time are then no neighbours in memory, for no contestant.
const SHUFFLE_SEED: u64 = 7;
/// How many tokens a call really used.
const TOKENS_USED: u64 = 740;

/// A limiter with four limits a model, and one ready request a model.
#[derive(Debug)]
pub(crate) struct Workload {
    /// Its limits never run out of room, but for those of [`Workload::without_room`].
    pub(crate) limiter: MemoryLimiter,
    requests: Vec<(ReserveRequest, CompleteRequest)>,
    next_lease: u128,
}

/// The models, in the order in which every contestant meets them.
pub(crate) fn models(count: usize) -> Vec<usize> {
    let mut models: Vec<_> = (0..count).collect();
    fastrand::Rng::with_seed(SHUFFLE_SEED).shuffle(&mut models);
    models
}

/// The keys of a model's limits.
pub(crate) fn keys(model: usize) -> [LimitKey; LIMITS_PER_CALL] {
    let name = format!("gpt-{model}");
    let tenant = format!("tenant-{model}");
    [
        LimitKey::llm_rpm("openai", &name),
        LimitKey::llm_tpm("openai", &name),
        LimitKey::llm_concurrency("openai", &name),
        LimitKey::tenant_daily_tokens(&tenant),
    ]
    .map(|key| key.expect("a well-formed key"))
}

/// A model's limits, with room for everything; the shortest of them lasts so many seconds.
pub(crate) fn limits(model: usize, seconds_min: u64) -> [Limit; LIMITS_PER_CALL] {
    let rolling =
        |seconds| LimitKind::Rolling { window: Window::from_seconds(seconds).expect("in range") };
    let timeout = HoldTimeout::from_seconds(seconds_min.max(300)).expect("in range");
    let minute = rolling(seconds_min);
    let kinds = [minute, minute, LimitKind::Concurrency { timeout }, rolling(86_400)];
    let mut kinds = kinds.into_iter();
    let capacity = Capacity::new(CAPACITY_MAX).expect("in range");
    keys(model).map(|key| Limit::new(key, kinds.next().expect("as many as keys"), capacity))
}

/// What a call to a model reserves.
pub(crate) fn requirements(model: usize) -> Requirements {
    Requirements::of(keys(model).into_iter().zip(AMOUNTS)).expect("four keys")
}

/// A limiter with the limits of so many models, and nothing else.
pub(crate) fn limiter_with(model_count: usize) -> MemoryLimiter {
    let limiter = MemoryLimiter::with_options(MemoryOptions {
        sweep_every: None,
        ..MemoryOptions::default()
    });
    for limit in models(model_count).into_iter().flat_map(|model| limits(model, 60)) {
        limiter.define_now(limit).expect("a new key");
    }
    limiter
}

impl Workload {
    /// A limiter with four limits for each of so many models.
    pub(crate) fn new(model_count: usize) -> Self {
        Self::with(model_count, CAPACITY_MAX, MemoryOptions::default())
    }

    /// The same on a clock that somebody moves.
    pub(crate) fn on_clock(model_count: usize, clock: Arc<dyn Clock>) -> Self {
        Self::with(model_count, CAPACITY_MAX, MemoryOptions { clock, ..MemoryOptions::default() })
    }

    /// The same with one slot for each model, which is taken.
    pub(crate) fn without_room(model_count: usize) -> Self {
        let mut workload = Self::with(model_count, 1, MemoryOptions::default());
        for n in 0..model_count {
            workload.reserve(n);
        }
        workload
    }

    fn with(model_count: usize, slots: u64, options: MemoryOptions) -> Self {
        let options = MemoryOptions { sweep_every: None, ..options };
        let limiter = MemoryLimiter::with_options(options);
        let mut requests = Vec::with_capacity(model_count);
        for model in models(model_count) {
            for (at, mut limit) in limits(model, 60).into_iter().enumerate() {
                if at == CONCURRENCY {
                    limit.capacity = Capacity::new(slots).expect("in range");
                }
                limiter.define_now(limit).expect("a new key");
            }
            let [_, tpm, _, daily] = keys(model);
            let actuals = Actuals::of([(tpm, TOKENS_USED), (daily, TOKENS_USED)]);
            let lease = LeaseId::from_u128(0);
            let reserve = ReserveRequest::new(lease, requirements(model));
            requests.push((reserve, CompleteRequest::new(lease, actuals.expect("two keys"))));
        }
        let next_lease = LeaseId::generate(limiter.now()).as_u128();
        Self { limiter, requests, next_lease }
    }

    /// Workloads for several threads over one limiter, each with models of its own.
    pub(crate) fn split(self, threads: usize) -> Vec<Self> {
        let Self { limiter, requests, next_lease } = self;
        let mut parts: Vec<Self> = (0..threads as u128)
            .map(|thread| Self {
                limiter: limiter.clone(),
                requests: Vec::new(),
                // As IDs of one process are: made at the same time, growing, and different in their random part. Steps are far
                // greater than the number of threads, so no two threads ever take the same ID.
                next_lease: next_lease + thread,
            })
            .collect();
        for (at, request) in requests.into_iter().enumerate() {
            parts[at % threads].requests.push(request);
        }
        parts
    }

    /// One reserve of four limits, with a new lease, which is allowed.
    pub(crate) fn reserve(&mut self, n: usize) -> LeaseId {
        let (lease, decision) = self.ask(n);
        assert!(decision.is_allowed(), "the limits never run out of room");
        lease
    }

    /// One reserve of four limits, with a new lease, which is denied: see [`Workload::without_room`].
    pub(crate) fn deny(&mut self, n: usize) {
        let (_, decision) = self.ask(n);
        assert!(!decision.is_allowed(), "one of the limits has no room");
    }

    fn ask(&mut self, n: usize) -> (LeaseId, Decision) {
        let lease = self.new_lease();
        let at = n % self.requests.len();
        let (request, _) = &mut self.requests[at];
        request.lease = lease;
        (lease, self.limiter.reserve_now(request).expect("the keys are defined"))
    }

    /// The complete of a lease that [`Workload::reserve`] made for the same `n`.
    pub(crate) fn complete(&mut self, n: usize, lease: LeaseId) {
        let at = n % self.requests.len();
        let (_, request) = &mut self.requests[at];
        request.lease = lease;
        self.limiter.complete_now(request).expect("the lease holds these keys");
    }

    /// A reserve and its complete.
    pub(crate) fn cycle(&mut self, n: usize) {
        let lease = self.reserve(n);
        self.complete(n, lease);
    }

    /// A reserve and its complete whose requests are made for the occasion, keys and all.
    pub(crate) fn cycle_from_text(&mut self, n: usize) {
        let lease = self.new_lease();
        let at = n % self.requests.len();
        let (reserve, complete) = &self.requests[at];
        let key = |key: &LimitKey| LimitKey::new(key.as_str()).expect("it was a key before");
        let needs = reserve.requirements.iter().map(|need| (key(&need.key), need.amount.get()));
        let reserve = ReserveRequest::new(lease, Requirements::of(needs).expect("four keys"));
        let decision = self.limiter.reserve_now(&reserve).expect("the keys are defined");
        assert!(decision.is_allowed(), "the limits never run out of room");
        let actuals = complete.actuals.iter().map(|actual| (key(&actual.key), actual.amount));
        let complete = CompleteRequest::new(lease, Actuals::of(actuals).expect("two keys"));
        self.limiter.complete_now(&complete).expect("the lease holds these keys");
    }

    fn new_lease(&mut self) -> LeaseId {
        // Steps of an odd constant look random, as the low bits of a ULID are, and never meet.
        self.next_lease = self.next_lease.wrapping_add(0x9e37_79b9_7f4a_7c15);
        LeaseId::from_u128(self.next_lease)
    }

    /// With so many leases that stay.
    pub(crate) fn filled(mut self, leases: usize) -> Self {
        for n in 0..leases {
            self.reserve(n);
        }
        self
    }
}
