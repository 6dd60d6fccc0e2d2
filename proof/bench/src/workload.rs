//! The measured work: LLM calls to many models, each of which needs four limits.

use std::sync::Arc;

use ratelimiter::clock::Clock;
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, CAPACITY_MAX, Capacity, CompleteRequest, Decision, LeaseId, LimitKey, MemoryLimiter,
    Requirements, ReserveRequest,
};
use ratelimiterd::load::{LIMITS_PER_CALL_MAX, Workload};

pub(crate) const LIMITS_PER_CALL: usize = LIMITS_PER_CALL_MAX;
/// Tokens that a call reserves, and those it uses.
const TOKENS_RESERVED: u64 = 1_800;
const TOKENS_USED: u64 = 740;
/// The amounts that a call reserves, in the order of [`keys`].
pub(crate) const AMOUNTS: [u64; LIMITS_PER_CALL] = [1, TOKENS_RESERVED, 1, TOKENS_RESERVED];
/// Position of the concurrency limit.
const CONCURRENCY: usize = 2;
/// Shuffles the models, so that consecutive calls are not neighbours in memory for any contestant.
const SHUFFLE_SEED: u64 = 7;

/// A memory limiter and one prepared call per model.
#[derive(Debug)]
pub(crate) struct PreparedLimiter {
    /// It allows everything, except that of [`PreparedLimiter::full`].
    pub(crate) limiter: MemoryLimiter,
    requests: Vec<(ReserveRequest, CompleteRequest)>,
    next_lease: u128,
}

/// Limits that never deny; none of them expires earlier than `seconds_min`.
pub(crate) fn workload(seconds_min: u64) -> Workload {
    let keys = [
        "global:llm:openai:gpt-{model}:rpm",
        "global:llm:openai:gpt-{model}:tpm",
        "global:llm:openai:gpt-{model}:concurrency",
        "tenant:tenant-{model}:llm:daily_tokens",
    ];
    Workload {
        keys: keys.map(str::to_owned),
        limits_per_call: LIMITS_PER_CALL,
        capacity: Capacity::new(CAPACITY_MAX).expect("in range"),
        window_seconds: seconds_min,
        hold_seconds: seconds_min.max(300),
        tokens_reserved: TOKENS_RESERVED,
        tokens_used: TOKENS_USED,
    }
}

/// The models in the order in which every contestant gets them.
pub(crate) fn models(count: usize) -> Vec<usize> {
    let mut models: Vec<_> = (0..count).collect();
    fastrand::Rng::with_seed(SHUFFLE_SEED).shuffle(&mut models);
    models
}

/// Batches of models; each starts `step` models after the last one.
pub(crate) fn batches(
    model_count: usize,
    size: usize,
    step: usize,
) -> impl Iterator<Item = Vec<usize>> {
    let models = models(model_count);
    let batch = move |start| models.iter().copied().cycle().skip(start).take(size).collect();
    (0..model_count).step_by(step).map(batch)
}

/// The keys that a call to a model needs.
pub(crate) fn keys(model: usize) -> [LimitKey; LIMITS_PER_CALL] {
    workload(60).keys(model).try_into().expect("four keys")
}

/// A limiter without prepared calls, whose memory would be measured too.
pub(crate) fn limiter_with(model_count: usize) -> MemoryLimiter {
    let options = MemoryOptions { sweep_every: None, ..MemoryOptions::default() };
    let (limiter, workload) = (MemoryLimiter::with_options(options), workload(60));
    for limit in models(model_count).into_iter().flat_map(|model| workload.limits(model)) {
        limiter.define_now(limit).expect("a new key");
    }
    limiter
}

impl PreparedLimiter {
    pub(crate) fn new(model_count: usize) -> Self {
        Self::with(model_count, CAPACITY_MAX, MemoryOptions::default())
    }

    pub(crate) fn on_clock(model_count: usize, clock: Arc<dyn Clock>) -> Self {
        Self::with(model_count, CAPACITY_MAX, MemoryOptions { clock, ..MemoryOptions::default() })
    }

    /// The only concurrency slot of each model is taken.
    pub(crate) fn full(model_count: usize) -> Self {
        Self::with(model_count, 1, MemoryOptions::default()).filled(model_count)
    }

    fn with(model_count: usize, slots: u64, options: MemoryOptions) -> Self {
        let options = MemoryOptions { sweep_every: None, ..options };
        let limiter = MemoryLimiter::with_options(options);
        let workload = workload(60);
        let mut requests = Vec::with_capacity(model_count);
        for model in models(model_count) {
            for (at, mut limit) in workload.limits(model).into_iter().enumerate() {
                if at == CONCURRENCY {
                    limit.capacity = Capacity::new(slots).expect("in range");
                }
                limiter.define_now(limit).expect("a new key");
            }
            let (lease, call) = (LeaseId::from_u128(0), workload.call(model));
            let reserve = ReserveRequest::new(lease, call.requirements);
            requests.push((reserve, CompleteRequest::new(lease, call.actuals)));
        }
        let next_lease = LeaseId::generate(limiter.now()).as_u128();
        Self { limiter, requests, next_lease }
    }

    /// For several threads on one limiter, each with its own models.
    pub(crate) fn split(self, threads: usize) -> Vec<Self> {
        let Self { limiter, requests, next_lease } = self;
        let mut parts: Vec<Self> = (0..threads as u128)
            .map(|thread| Self {
                limiter: limiter.clone(),
                requests: Vec::new(),
                // Like the IDs of one process: the same time, increasing, with different random parts. The step between
                // IDs is far larger than the number of threads, so no two threads ever use the same ID.
                next_lease: next_lease + thread,
            })
            .collect();
        for (at, request) in requests.into_iter().enumerate() {
            parts[at % threads].requests.push(request);
        }
        parts
    }

    /// One reserve with a new lease, which is allowed.
    pub(crate) fn reserve(&mut self, n: usize) -> LeaseId {
        let (lease, decision) = self.decide(n);
        assert!(decision.is_allowed(), "the limits never deny");
        lease
    }

    /// One reserve with a new lease, which is denied: see [`PreparedLimiter::full`].
    pub(crate) fn deny(&mut self, n: usize) {
        let (_, decision) = self.decide(n);
        assert!(!decision.is_allowed(), "one of the limits is full");
    }

    fn decide(&mut self, n: usize) -> (LeaseId, Decision) {
        let lease = self.new_lease();
        let at = n % self.requests.len();
        let (request, _) = &mut self.requests[at];
        request.lease = lease;
        (lease, self.limiter.reserve_now(request).expect("the keys are defined"))
    }

    /// Completes a lease that [`PreparedLimiter::reserve`] made for the same `n`.
    pub(crate) fn complete(&mut self, n: usize, lease: LeaseId) {
        let at = n % self.requests.len();
        let (_, request) = &mut self.requests[at];
        request.lease = lease;
        self.limiter.complete_now(request).expect("the lease has these keys");
    }

    pub(crate) fn reserve_and_complete(&mut self, n: usize) {
        let lease = self.reserve(n);
        self.complete(n, lease);
    }

    /// Also parses the keys of both requests.
    pub(crate) fn parse_reserve_and_complete(&mut self, n: usize) {
        let lease = self.new_lease();
        let at = n % self.requests.len();
        let (reserve, complete) = &self.requests[at];
        let key = |key: &LimitKey| LimitKey::new(key.as_str()).expect("a valid key");
        let needs = reserve.requirements.iter().map(|need| (key(&need.key), need.amount.get()));
        let reserve = ReserveRequest::new(lease, Requirements::of(needs).expect("four keys"));
        let decision = self.limiter.reserve_now(&reserve).expect("the keys are defined");
        assert!(decision.is_allowed(), "the limits never deny");
        let actuals = complete.actuals.iter().map(|actual| (key(&actual.key), actual.amount));
        let complete = CompleteRequest::new(lease, Actuals::of(actuals).expect("two keys"));
        self.limiter.complete_now(&complete).expect("the lease has these keys");
    }

    fn new_lease(&mut self) -> LeaseId {
        // Steps of an odd constant look random, like the low bits of a ULID, and do not repeat.
        self.next_lease = self.next_lease.wrapping_add(0x9e37_79b9_7f4a_7c15);
        LeaseId::from_u128(self.next_lease)
    }

    /// Adds leases that stay.
    pub(crate) fn filled(mut self, leases: usize) -> Self {
        for n in 0..leases {
            self.reserve(n);
        }
        self
    }
}
