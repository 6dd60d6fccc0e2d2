//! The cost of a reserve and a complete with few and with many live leases, and the memory of a lease while it is open and afterwards.

use std::sync::Arc;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{CompleteRequest, LeaseId, Limit, Limiter, ReserveRequest};
use ratelimiter_redis::{RedisLimiter, RedisOptions};
use ratelimiterd::load::Call;
use testkit::redis::{Persistence, TestRedis};
use tokio::runtime::Runtime;

use super::{SECONDS_MIN, limiter_with, redis_workload, runtime};
use crate::progress::Progress;
use crate::rounds::{Comparison, float, itself};
use crate::summary::{Summary, count, number};

/// Requests that are sent together.
const BATCH: usize = 128;

#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Few, and many.
    pub(super) leases: [usize; 2],
    pub(super) models: usize,
    /// Reserves and completes of one measurement.
    pub(super) pairs: usize,
    pub(super) rounds: usize,
    /// Leases that are completed, to measure what they leave.
    pub(super) completed: usize,
}

#[derive(Debug)]
pub(super) struct Measured {
    sizes: Sizes,
    /// Processor time of Redis for a pair, in microseconds, with few and with many leases.
    micros: [Summary; 2],
    /// That with many, × that with few.
    pub(super) ratio: Summary,
    /// Of Redis, for a live lease.
    lease_bytes: f64,
    /// The same for a completed one.
    completed_bytes: f64,
}

/// A Redis with live leases.
pub(super) struct Filled {
    runtime: Runtime,
    pub(super) redis: TestRedis,
    pub(super) limiter: Arc<RedisLimiter>,
    calls: Arc<[Call]>,
    clock: MonotonicClock,
    next: usize,
}

pub(super) fn measure(sizes: Sizes, progress: &Progress) -> Measured {
    let mut lease_bytes = 0.0;
    let mut comparison = Comparison::new();
    for leases in sizes.leases {
        progress.step(format_args!("Redis: making {} leases", count(leases)));
        let mut filled = with_models(sizes.models);
        lease_bytes = filled.bytes_of(leases, |filled| filled.add(leases));
        comparison.add(leases.to_string(), move || filled.pair_micros(sizes.pairs));
    }
    let rounds = comparison.run(sizes.rounds, progress, "Redis, live leases");
    let [few, many] = sizes.leases.map(|leases| leases.to_string());
    let micros = [&few, &many].map(|name| rounds.summary(name, itself));
    progress.step(format_args!("Redis: completing {} leases", count(sizes.completed)));
    let completed_bytes = with_models(sizes.models)
        .bytes_of(sizes.completed, |filled| filled.add_completed(sizes.completed));
    let ratio = rounds.ratio(&many, &few, itself);
    Measured { sizes, micros, ratio, lease_bytes, completed_bytes }
}

/// A Redis with the limits of so many models, whose windows are longer than a run.
fn with_models(models: usize) -> Filled {
    let workload = redis_workload(SECONDS_MIN);
    let limits = (0..models).flat_map(|model| workload.limits(model)).collect();
    Filled::new(RedisOptions::default(), limits, workload.calls(models))
}

impl Measured {
    pub(super) fn describe(&self) -> String {
        let [few, many] = self.sizes.leases.map(count);
        format!(
            "Processor time of Redis for a reserve and a complete of four limits, {BATCH} at a time, on {} models: {} µs with {few} live leases, {} µs with {many}; {} × that. \
             A live lease of four limits takes {} bytes in Redis, a completed one {} until its windows and the time for which it is remembered have passed.",
            count(self.sizes.models),
            self.micros[0],
            self.micros[1],
            self.ratio,
            number(self.lease_bytes),
            number(self.completed_bytes),
        )
    }
}

impl Filled {
    pub(super) fn new(options: RedisOptions, limits: Vec<Limit>, calls: Arc<[Call]>) -> Self {
        let (runtime, redis) = (runtime(), TestRedis::start(Persistence::None));
        let limiter = runtime.block_on(limiter_with(&redis, options, limits));
        Self { runtime, redis, limiter, calls, clock: MonotonicClock::new(), next: 0 }
    }

    /// Bytes.
    pub(super) fn used_memory(&self) -> f64 {
        let info = self.redis.command(&["INFO", "memory"]);
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        line.and_then(|value| value.trim().parse().ok()).expect("Redis says it")
    }

    pub(super) fn keys(&self) -> usize {
        self.redis.command(&["DBSIZE"]).parse().expect("a number")
    }

    /// Makes leases that stay.
    pub(super) fn add(&mut self, leases: usize) {
        let mut left = leases;
        while left > 0 {
            let made = self.reserve(left.min(BATCH)).len();
            left -= made;
        }
    }

    pub(super) fn tick(&self) {
        self.runtime.block_on(self.limiter.tick());
    }

    /// Memory for each of so many leases.
    fn bytes_of(&mut self, leases: usize, make: impl FnOnce(&mut Self)) -> f64 {
        let before = self.used_memory();
        make(self);
        (self.used_memory() - before) / float(leases)
    }

    fn pair_micros(&mut self, pairs: usize) -> f64 {
        let before = self.redis.process().cpu_seconds();
        self.add_completed(pairs);
        (self.redis.process().cpu_seconds() - before) * 1e6 / float(pairs)
    }

    /// Makes leases and completes them.
    fn add_completed(&mut self, leases: usize) {
        let mut left = leases;
        while left > 0 {
            let completes = self.reserve(left.min(BATCH));
            left -= completes.len();
            let completed = self.runtime.block_on(self.limiter.complete_batch(&completes));
            assert!(completed.iter().all(Result::is_ok), "the leases are open");
        }
    }

    /// Returns what completes the leases.
    fn reserve(&mut self, leases: usize) -> Vec<CompleteRequest> {
        let (mut reserves, mut completes) = (Vec::new(), Vec::new());
        for _ in 0..leases {
            let Call { requirements, actuals } = &self.calls[self.next % self.calls.len()];
            self.next += 1;
            let lease = LeaseId::generate(self.clock.now());
            reserves.push(ReserveRequest::new(lease, requirements.clone()));
            completes.push(CompleteRequest::new(lease, actuals.clone()));
        }
        let decisions = self.runtime.block_on(self.limiter.reserve_batch(&reserves));
        let all_allowed =
            decisions.into_iter().all(|decision| decision.is_ok_and(|it| it.is_allowed()));
        assert!(all_allowed, "the limits never deny");
        completes
    }
}
