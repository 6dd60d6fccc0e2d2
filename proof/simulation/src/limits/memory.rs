//! The world of one server with the memory backend.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, CompleteRequest, Decision, HintPolicy, LeaseId, Limit, LimitKey, LimitStatus,
    MemoryLimiter, Overage, RegisteredLimit, Requirements, ReserveRequest,
};

use super::client::schedule;
use super::context::{SimContext, group};
use super::flawed_memory::{FlawedMemory, flawed_bounds};
use super::host::FaultInjector;
use super::oracle::{AllowedLag, Reading};
use super::plan::{
    InstanceBounds, LimitChoices, LimitSetup, LimitsPlan, MATCHED, OTHER_KEYS, QUIET_MS, SetupKind,
    TEMPLATES, Topology, complete_request, key, key_of, lease_id, reserve_request, templates_of,
};
use super::server::{self, Processes};
use crate::executor::Executor;
use crate::flaw::Flaw;
use crate::outcome::{Invariant, Outcome, Violation};
use crate::world::World;

/// How often something is done to limits beside those of the plan. In a run there are several hundred leases there.
const CHANGE_EVERY: Duration = Duration::from_millis(31);
/// So few that all leases share one shard, and a new one is looked for in several chunks of past ones.
const REMEMBER_MAX: usize = 8_000;
/// Longer than a run with all its leaps.
const REMEMBER_FOR: Duration = Duration::from_hours(30 * 24);
/// Longer than the longest period.
const OUTLAST_MS: u64 = 26 * 3_600_000;
/// A limit that is not in use is swept after so long.
const SWEPT_WITHIN: Duration = Duration::from_secs(16);
/// Time for the regular work of a server.
const SETTLE_MS: u64 = 2_000;
/// The memory backend is exact.
const ON_TIME: AllowedLag = AllowedLag {
    expiry_lag: Duration::ZERO,
    reconciled: Duration::ZERO,
    noticed: Duration::ZERO,
    waits_at_once: true,
    failed_changes_linger: false,
};

/// One process that keeps everything in memory, with a deliberate bug or without.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryWorld {
    /// The bug.
    pub flaw: Option<Flaw>,
}

/// The limiter of the process that runs; another one after a crash.
type Current = Arc<Mutex<MemoryLimiter>>;

struct MemorySite {
    context: SimContext,
    current: Current,
    processes: Arc<Processes>,
    flaw: Option<Flaw>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn new_limiter(executor: &Executor, seed: u64, bounds: InstanceBounds) -> MemoryLimiter {
    // Each part of the limiter has a jitter of its own, and which key is in which part differs from process to process.
    let mut hints = HintPolicy::default();
    (hints.rolling.jitter, hints.concurrency.jitter) = (Duration::ZERO, Duration::ZERO);
    let options = MemoryOptions::for_tests(executor.clock(0));
    MemoryLimiter::with_options(MemoryOptions {
        seed,
        hints,
        remember_for: REMEMBER_FOR,
        remember_max: REMEMBER_MAX,
        instances_max: bounds.count_max,
        new_instances_per_second_max: bounds.new_per_second_max,
        ..options
    })
}

/// Defines and deletes limits of the group that the last limit is in, and has leases there: nobody is told of them, and whatever
/// becomes of them, the limit beside them stays as it is.
fn churn_other_limits(limiter: &MemoryLimiter, random: &mut fastrand::Rng, nth: u128) {
    let is_concurrency = random.bool();
    let seconds = random.u64(1..=2);
    let kind = match is_concurrency {
        true => SetupKind::Concurrency { seconds },
        false => SetupKind::Rolling { seconds },
    };
    let setup = LimitSetup {
        kind,
        capacity: 5,
        overage: Overage::Debt,
        is_shadow: false,
        is_defined: true,
    };
    let key = key_of(OTHER_KEYS[usize::from(random.bool())]);
    // All of these may be refused: the kind is the other one, the limit or the lease is gone.
    match random.u8(..6) {
        0 => drop(limiter.delete_now(&key)),
        1 => drop(limiter.define_now(Limit { key, ..setup.limit(0, setup.definition()) })),
        2..=4 => {
            let requirements = Requirements::of([(key, random.u64(1..=3))]).expect("one key");
            let lease = LeaseId::from_u128(u128::MAX - nth);
            drop(limiter.reserve_now(&ReserveRequest::new(lease, requirements)));
        }
        _ => {
            let lease = LeaseId::from_u128(u128::MAX - nth + random.u128(1..=20).min(nth));
            drop(limiter.complete_now(&CompleteRequest::new(lease, Actuals::default())));
        }
    }
}

fn readings(limiter: &MemoryLimiter, limits: usize) -> Vec<Reading> {
    let by_template = limiter.instances_by_template();
    let instances = |template: &LimitKey| {
        let counted = by_template.iter().find(|(key, _)| key == template);
        counted.map_or(0, |(_, count)| *count)
    };
    let reading = |number| {
        limiter.state_now(&key(number)).map_or(Reading::default(), |state| Reading {
            instances: instances(&state.limit.key),
            capacity: u128::from(state.limit.capacity.get()),
            used: u128::from(state.usage.used),
            debt: state.usage.debt,
            is_closed: state.status != LimitStatus::Active,
            resets_at: state.resets_at,
        })
    };
    (0..limits).map(reading).collect()
}

impl World for MemoryWorld {
    type Plan = LimitsPlan;
    const NAME: &'static str = "memory";

    fn plan(&self, seed: u64) -> LimitsPlan {
        LimitsPlan::random(seed, Topology::OneProcess, LimitChoices::ALL)
    }

    fn play(&self, plan: &LimitsPlan, traced: bool) -> Outcome {
        let executor = Executor::starting_at(plan.starts_at);
        let limiter = new_limiter(&executor, plan.seed, plan.instance_bounds);
        let current = Arc::new(Mutex::new(limiter));
        let (read, limits) = (Arc::clone(&current), plan.limits.len());
        let read = move || readings(&lock(&read), limits);
        let context = SimContext::new(plan, executor, ON_TIME, traced, read);
        let processes = Processes::new(&context);
        let site =
            Arc::new(MemorySite { context: context.clone(), current, processes, flaw: self.flaw });
        site.start();
        schedule(&context, &site);
        if context.run_until_ms(QUIET_MS) && site.outlast_periods() {
            site.final_checks();
        }
        drop(site);
        context.finish()
    }
}

impl MemorySite {
    fn start(self: &Arc<Self>) {
        let context = &self.context;
        let limiter = self.new_limiter(context.plan().seed);
        *lock(&self.current) = limiter.clone();
        let (beside, executor) = (limiter.clone(), context.executor().clone());
        let mut random = fastrand::Rng::with_seed(context.plan().seed);
        context.executor().spawn(group(0), context.upkeep(0), async move {
            for nth in 0.. {
                executor.sleep(CHANGE_EVERY).await;
                churn_other_limits(&beside, &mut random, nth);
            }
        });
        let (_, file) = self.processes.begin(0, self, self.flaw);
        let limiter = FlawedMemory::around(limiter, self.flaw);
        server::run(context, 0, limiter, file, self.flaw);
    }

    /// The process ends, and with it all that was reserved.
    fn end(&self) {
        self.processes.end(0);
        self.context.oracle().forget(self.context.now());
        *lock(&self.current) = self.new_limiter(0);
    }

    fn new_limiter(&self, seed: u64) -> MemoryLimiter {
        let context = &self.context;
        let bounds = flawed_bounds(context.plan().instance_bounds, self.flaw);
        new_limiter(context.executor(), seed, bounds)
    }

    /// Waits until all calendar limits have reset; false after a violation.
    fn outlast_periods(&self) -> bool {
        let context = &self.context;
        if !context.plan().has_calendar() {
            return true;
        }
        context.executor().leap(Duration::from_millis(OUTLAST_MS));
        context.check();
        context.run_until_ms(QUIET_MS + OUTLAST_MS + SETTLE_MS)
    }

    fn final_checks(&self) {
        let context = &self.context;
        let expect = |invariant, detail| context.record(Err(Violation { invariant, detail }));
        if let Some(operation) = context.oracle().open_operations().first() {
            let detail = format!("[{}] has heard nothing", operation.0);
            expect(Invariant::EveryRequestAnswered, detail);
        }
        let Some(registry) = self.processes.check_file() else {
            return;
        };
        let limiter = lock(&self.current).clone();
        let readings = context.readings();
        // An instance that owes a debt stays.
        let owes = |number: &usize| readings.get(*number).is_some_and(|reading| reading.debt > 0);
        for debtor in MATCHED.filter(owes) {
            drop(limiter.forgive_now(&key(debtor)));
        }
        self.expect_no_instances(&limiter);
        for (number, reading) in readings.into_iter().enumerate() {
            let (name, Reading { capacity, used, .. }) = (key(number), reading);
            if used != 0 {
                expect(Invariant::BackToZero, format!("{used} units of {name} are still held"));
            }
            let templates = templates_of(number).iter().map(|template| key(*template));
            let mut keys = std::iter::once(name.clone()).chain(templates);
            let target = keys.find_map(|key| registry.get(&key)).map(RegisteredLimit::target);
            if target.is_none() && limiter.state_now(&name).is_none() {
                continue;
            }
            if target.is_none_or(|target| u128::from(target.get()) != capacity) {
                let detail = format!("{name} has {capacity}, the file says {target:?}");
                expect(Invariant::ProgressResumes, detail);
            }
            let Ok(capacity @ 1..) = u64::try_from(capacity) else {
                continue;
            };
            if !TEMPLATES.contains(&number) {
                self.reserve_all(&limiter, number, capacity);
            }
        }
    }

    /// The whole capacity of a limit can be reserved. An instance goes after that, and leaves room for another.
    fn reserve_all(&self, limiter: &MemoryLimiter, number: usize, capacity: u64) {
        let context = &self.context;
        let lease = lease_id(context.start_ms(), !context.plan().seed, number);
        let answer = limiter.reserve_now(&reserve_request(lease, &[(number, capacity)]));
        if !answer.as_ref().is_ok_and(Decision::is_allowed) {
            let (invariant, name) = (Invariant::ProgressResumes, key(number));
            let detail = format!("all of {name}: {answer:?}");
            context.record(Err(Violation { invariant, detail }));
        }
        if MATCHED.contains(&number) {
            let is_hold = context.plan().limits[number].is_concurrency();
            let actuals = if is_hold { &[][..] } else { &[(number, 0)] };
            drop(limiter.complete_now(&complete_request(lease, actuals)));
            context.executor().leap(SWEPT_WITHIN);
            limiter.sweep();
            self.expect_no_instances(limiter);
        }
    }

    /// `TPL-05`: nothing is reserved or owed of what templates match.
    fn expect_no_instances(&self, limiter: &MemoryLimiter) {
        let instances = limiter.instances_by_template();
        if limiter.instances() != 0 {
            let (invariant, detail) =
                (Invariant::IdleInstancesGo, format!("there are instances left: {instances:?}"));
            self.context.record(Err(Violation { invariant, detail }));
        }
    }
}

impl FaultInjector for MemorySite {
    fn crash(self: &Arc<Self>, server: usize, down_ms: u64, _skew_ms: i64) {
        if self.context.host(server).is_none() {
            return;
        }
        self.context.trace(|| "    the process crashes, and all reservations with it".to_owned());
        self.end();
        let site = Arc::clone(self);
        self.processes.start_later(server, down_ms, move || site.start());
    }

    fn power_loss(self: &Arc<Self>, seed: u64, down_ms: u64, _skew_ms: i64) {
        self.end();
        self.processes.lose_power(seed);
        let site = Arc::clone(self);
        self.processes.start_later(0, down_ms, move || site.start());
    }

    fn ledger_down(self: &Arc<Self>, _down_ms: u64) {}
}
