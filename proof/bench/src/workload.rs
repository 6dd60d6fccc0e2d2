//! The measured work: LLM calls to many models, each of which needs four limits.

use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, CAPACITY_MAX, Capacity, CompleteRequest, Decision, HoldTimeout, LeaseId, Limit,
    LimitKey, LimitKind, MemoryLimiter, Requirements, ReserveRequest, Window,
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
/// Makes the lease IDs that are in no order.
const LEASE_SEED: u64 = 11;

/// A memory limiter and one prepared call per model.
#[derive(Debug)]
pub(crate) struct PreparedLimiter {
    /// It allows everything, except that of [`PreparedLimiter::full`].
    pub(crate) limiter: MemoryLimiter,
    requests: Vec<(ReserveRequest, CompleteRequest)>,
    next_lease: u128,
    /// With it, lease IDs are in no order; without, they grow.
    random_leases: Option<fastrand::Rng>,
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

/// The limits of a model that never deny, by the number of the model.
pub(crate) fn usual_limits() -> impl Fn(usize) -> Vec<Limit> {
    let workload = workload(60);
    move |model| workload.limits(model)
}

/// The same limits, but every window and timeout is this long, so that all of a lease ends at the same time.
pub(crate) fn limits_lasting(seconds: u64) -> impl Fn(usize) -> Vec<Limit> {
    let window = Window::from_seconds(seconds).expect("a valid window");
    let timeout = HoldTimeout::from_seconds(seconds).expect("a valid timeout");
    let usual_limits = usual_limits();
    move |model| {
        let mut limits = usual_limits(model);
        for limit in &mut limits {
            limit.kind = match limit.kind {
                LimitKind::Rolling { .. } => LimitKind::Rolling { window },
                LimitKind::Concurrency { .. } => LimitKind::Concurrency { timeout },
                LimitKind::Calendar { .. } => limit.kind,
            };
        }
        limits
    }
}

/// Options without a background sweep.
fn unswept() -> MemoryOptions {
    MemoryOptions { sweep_every: None, ..MemoryOptions::default() }
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
    let limiter = MemoryLimiter::with_options(unswept());
    for limit in models(model_count).into_iter().flat_map(usual_limits()) {
        limiter.define_now(limit).expect("a new key");
    }
    limiter
}

impl PreparedLimiter {
    pub(crate) fn new(model_count: usize) -> Self {
        Self::with(model_count, unswept(), usual_limits())
    }

    /// The limits of all models are made from four templates when they are used first.
    pub(crate) fn from_templates(model_count: usize) -> Self {
        let options = MemoryOptions { new_instances_per_second_max: usize::MAX, ..unswept() };
        let first = models(model_count)[0];
        let templates = |model| {
            let mut limits = if model == first { usual_limits()(model) } else { Vec::new() };
            for limit in &mut limits {
                // `global:llm:openai:*:rpm`, `tenant:*:llm:daily_tokens`
                let suffix = format!("-{model}");
                let segments = limit.key.as_str().split(':');
                let wild = |text: &str| if text.ends_with(&suffix) { "*" } else { text }.to_owned();
                let segments: Vec<_> = segments.map(wild).collect();
                limit.key = LimitKey::new(segments.join(":")).expect("a valid key");
            }
            limits
        };
        Self::with(model_count, options, templates)
    }

    /// The only concurrency slot of each model is taken.
    pub(crate) fn full(model_count: usize) -> Self {
        let usual_limits = usual_limits();
        let limits = |model| {
            let mut limits = usual_limits(model);
            limits[CONCURRENCY].capacity = Capacity::new(1).expect("in range");
            limits
        };
        Self::with(model_count, unswept(), limits).filled(model_count)
    }

    /// `limits` makes the limits of a model.
    pub(crate) fn with(
        model_count: usize,
        options: MemoryOptions,
        limits: impl Fn(usize) -> Vec<Limit>,
    ) -> Self {
        let limiter = MemoryLimiter::with_options(options);
        let workload = workload(60);
        let mut requests = Vec::with_capacity(model_count);
        for model in models(model_count) {
            for limit in limits(model) {
                limiter.define_now(limit).expect("a new key");
            }
            let (lease, call) = (LeaseId::from_u128(0), workload.call(model));
            let reserve = ReserveRequest::new(lease, call.requirements);
            requests.push((reserve, CompleteRequest::new(lease, call.actuals)));
        }
        let next_lease = LeaseId::generate(limiter.now()).as_u128();
        Self { limiter, requests, next_lease, random_leases: None }
    }

    /// Its lease IDs are in no order from now on.
    pub(crate) fn with_unordered_leases(self) -> Self {
        Self { random_leases: Some(fastrand::Rng::with_seed(LEASE_SEED)), ..self }
    }

    /// For several threads on one limiter, each with its own models.
    pub(crate) fn split(self, threads: usize) -> Vec<Self> {
        let mut parts: Vec<Self> = (0..threads).map(|thread| self.part(thread)).collect();
        for (at, request) in self.requests.into_iter().enumerate() {
            parts[at % threads].requests.push(request);
        }
        parts
    }

    /// For several threads on one limiter, all with the same models.
    pub(crate) fn shared<const THREADS: usize>(self) -> [Self; THREADS] {
        std::array::from_fn(|thread| Self { requests: self.requests.clone(), ..self.part(thread) })
    }

    /// For one of several threads, without models. Lease IDs are like those of one process: the same time, increasing, with
    /// different random parts. The step between IDs is far larger than the number of threads, so no two threads ever use the
    /// same ID.
    fn part(&self, thread: usize) -> Self {
        let next_lease = self.next_lease + thread as u128;
        let limiter = self.limiter.clone();
        Self { limiter, requests: Vec::new(), next_lease, random_leases: None }
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

    /// A reserve with a new lease and its complete, for a limiter that is called otherwise.
    pub(crate) fn next_call(&mut self, n: usize) -> (&ReserveRequest, &CompleteRequest) {
        let lease = self.new_lease();
        let at = n % self.requests.len();
        let (reserve, complete) = &mut self.requests[at];
        (reserve.lease, complete.lease) = (lease, lease);
        (reserve, complete)
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
        if let Some(random) = &mut self.random_leases {
            return LeaseId::from_u128(random.u128(..));
        }
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
