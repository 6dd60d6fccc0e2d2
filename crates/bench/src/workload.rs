//! The work that is measured: LLM calls over many models, each of which needs four limits.

use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, CAPACITY_MAX, Capacity, CompleteRequest, Decision, HoldTimeout, LeaseId, Limit,
    LimitKey, LimitKind, MemoryLimiter, Requirements, ReserveRequest, Window,
};

/// A limiter with four limits a model, and one ready request a model.
#[derive(Debug)]
pub struct Workload {
    /// The limiter, whose limits never run out of room.
    pub limiter: MemoryLimiter,
    reserves: Vec<ReserveRequest>,
    completes: Vec<CompleteRequest>,
    next_lease: u128,
}

impl Workload {
    /// A limiter with four limits for each of so many models.
    ///
    /// # Panics
    /// Never: the keys and amounts are well formed.
    pub fn new(models: usize) -> Self {
        Self::with_capacity(models, CAPACITY_MAX)
    }

    /// The same, with one unit left of the third limit of each model, which [`Workload::reserve`] has taken already.
    ///
    /// # Panics
    /// Never: the keys and amounts are well formed.
    pub fn without_room(models: usize) -> Self {
        let mut workload = Self::with_capacity(models, 1);
        for n in 0..models {
            workload.reserve(n);
        }
        workload
    }

    fn with_capacity(models: usize, concurrency: u64) -> Self {
        let limiter = MemoryLimiter::with_options(MemoryOptions {
            sweep_every: None,
            ..MemoryOptions::default()
        });
        let mut reserves = Vec::new();
        let mut completes = Vec::new();
        for model in 0..models {
            let keys = keys(model);
            for (n, key) in keys.iter().enumerate() {
                limiter.define_now(limit(key.clone(), n, concurrency)).expect("a new key");
            }
            let [rpm, tpm, concurrency, daily] = keys;
            let pairs = [(rpm, 1), (tpm.clone(), 1_800), (concurrency, 1), (daily.clone(), 1_800)];
            let requirements = Requirements::of(pairs).expect("four keys");
            let actuals = Actuals::of([(tpm, 740), (daily, 740)]).expect("two keys");
            reserves.push(ReserveRequest::new(LeaseId::from_u128(0), requirements));
            completes.push(CompleteRequest::new(LeaseId::from_u128(0), actuals));
        }
        let next_lease = LeaseId::generate(limiter.now()).as_u128();
        Self { limiter, reserves, completes, next_lease }
    }

    /// The keys of all requests, in their order.
    ///
    /// # Panics
    /// Never: every request has four requirements.
    pub fn keys(&self) -> impl Iterator<Item = [&str; 4]> {
        self.reserves.iter().map(|request| {
            let keys: Vec<_> = request.requirements.iter().map(|r| r.key.as_str()).collect();
            keys.try_into().expect("four requirements")
        })
    }

    /// Two workloads over the same limiter, each with every other model.
    pub fn halves(self) -> [Self; 2] {
        let half = |start: usize| Self {
            limiter: self.limiter.clone(),
            reserves: self.reserves.iter().skip(start).step_by(2).cloned().collect(),
            completes: self.completes.iter().skip(start).step_by(2).cloned().collect(),
            // Half of all IDs apart, so that the two never take the same one.
            next_lease: self.next_lease.wrapping_add((start as u128) << 127),
        };
        [half(0), half(1)]
    }

    /// One reserve of four limits, with a new lease, which is allowed.
    ///
    /// # Panics
    /// When it is not allowed.
    pub fn reserve(&mut self, n: usize) -> LeaseId {
        let (lease, decision) = self.ask(n);
        assert!(decision.is_allowed(), "the limits never run out of room");
        lease
    }

    /// One reserve of four limits, with a new lease, which is denied: see [`Workload::without_room`].
    ///
    /// # Panics
    /// When it is allowed.
    pub fn deny(&mut self, n: usize) {
        let (_, decision) = self.ask(n);
        assert!(!decision.is_allowed(), "one of the limits has no room");
    }

    fn ask(&mut self, n: usize) -> (LeaseId, Decision) {
        // Steps of an odd constant look random, as the low bits of a ULID are, and are found again by subtraction.
        self.next_lease = self.next_lease.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let lease = LeaseId::from_u128(self.next_lease);
        let at = n % self.reserves.len();
        let request = &mut self.reserves[at];
        request.lease = lease;
        (lease, self.limiter.reserve_now(request).expect("the keys are defined"))
    }

    /// The complete of a lease that [`Workload::reserve`] made for the same `n`.
    ///
    /// # Panics
    /// When it is refused.
    pub fn complete(&mut self, n: usize, lease: LeaseId) {
        let at = n % self.completes.len();
        let request = &mut self.completes[at];
        request.lease = lease;
        self.limiter.complete_now(request).expect("the lease holds these keys");
    }
}

fn keys(model: usize) -> [LimitKey; 4] {
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

fn limit(key: LimitKey, n: usize, concurrency: u64) -> Limit {
    let window =
        |seconds| LimitKind::Rolling { window: Window::from_seconds(seconds).expect("in range") };
    let kind = match n {
        2 => LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(300).expect("in range") },
        3 => window(86_400),
        _ => window(60),
    };
    let capacity = if n == 2 { concurrency } else { CAPACITY_MAX };
    Limit::new(key, kind, Capacity::new(capacity).expect("in range"))
}
