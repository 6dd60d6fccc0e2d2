//! MEM-03, MEM-04: memory per lease, and its release. A counting allocator measures it.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use peak_alloc::PeakAlloc;
use ratelimiter::clock::{Clock, FakeClock, MonotonicClock};
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, Capacity, CompleteRequest, HoldTimeout, JobId, LeaseId, Limit, LimitKey, LimitKind,
    MemoryLimiter, NewAmounts, RenewNumber, RenewRequest, Requirements, ReserveRequest, ResetDay,
    ResetSchedule, ResetTime, TimeZone, Window,
};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The tests of this program count the same bytes, so one runs at a time.
static COUNTING: Mutex<()> = Mutex::new(());

const MODELS: usize = 1_000;
const LEASES: u128 = 100_000;
/// What the test harness may allocate in the meantime.
const SLACK_BYTES: usize = 64 * 1_024;
/// A limit that was busy keeps up to this much memory for reservations.
const ROOM_KEPT_BYTES: usize = 64 * 24;
const KEPT_BYTES_MAX: usize = SLACK_BYTES + 4 * MODELS * ROOM_KEPT_BYTES;
const WINDOW: Duration = Duration::from_secs(60);
const LEASE_BYTES_MAX: usize = 400;
/// A lease of four requirements that was renewed.
const RENEWED_LEASE_BYTES_MAX: usize = 650;
/// A part that a renew added to a rolling reservation, with its place in a list that is half full.
const PART_BYTES_MAX: usize = 160;
/// A limit that was made from a template, with a reservation of an open lease.
const INSTANCE_BYTES_MAX: usize = 1_000;

/// 1 000 models with four limits each, and the bytes in use before the first lease.
struct World {
    clock: Arc<FakeClock>,
    limiter: MemoryLimiter,
    keys: Vec<[LimitKey; 4]>,
    baseline: usize,
    _alone: MutexGuard<'static, ()>,
}

/// A ULID is of the time and of random bits. Bare numbers in a row are shared out unevenly by some seeds of the hash, which takes more memory.
fn lease_id(number: u128) -> LeaseId {
    let random = u128::from(u64::try_from(number).unwrap().wrapping_mul(0x9E37_79B9_7F4A_7C15));
    LeaseId::from_u128(number << 80 | random)
}

impl World {
    fn new(change: impl FnOnce(&mut MemoryOptions)) -> Self {
        let alone = COUNTING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let clock = Arc::new(FakeClock::new());
        let mut options = MemoryOptions::for_tests(clock.clone());
        change(&mut options);
        let limiter = MemoryLimiter::with_options(options);
        let keys: Vec<_> = (0..MODELS).map(keys_of).collect();
        for four in &keys {
            for (at, key) in four.iter().enumerate() {
                let window = Window::from_seconds(WINDOW.as_secs()).unwrap();
                let timeout = HoldTimeout::from_seconds(WINDOW.as_secs()).unwrap();
                let kind = match at {
                    3 => LimitKind::Concurrency { timeout },
                    _ => LimitKind::Rolling { window },
                };
                let capacity = Capacity::new(1_000_000).unwrap();
                limiter.define_now(Limit::new(key.clone(), kind, capacity)).unwrap();
            }
        }
        let mut world = Self { clock, limiter, keys, baseline: 0, _alone: alone };
        world.baseline = ALLOCATOR.current_usage();
        world
    }

    fn reserve(&self, lease: u128) {
        self.reserve_for(None, lease);
    }

    fn reserve_for(&self, job: Option<JobId>, lease: u128) {
        let four = &self.keys[usize::try_from(lease % MODELS as u128).unwrap()];
        let needs = Requirements::of(four.iter().map(|key| (key.clone(), 1))).unwrap();
        let request = ReserveRequest { job, ..ReserveRequest::new(lease_id(lease), needs) };
        assert!(self.limiter.reserve_now(&request).unwrap().is_allowed());
    }

    fn complete(&self, lease: u128, actual: u64) {
        let four = &self.keys[usize::try_from(lease % MODELS as u128).unwrap()];
        let actuals = Actuals::of(four[..3].iter().map(|key| (key.clone(), actual))).unwrap();
        self.limiter.complete_now(&CompleteRequest::new(lease_id(lease), actuals)).unwrap();
    }

    /// Sets what the lease holds of its four limits.
    fn renew(&self, lease: u128, number: RenewNumber, amount: u64) {
        let four = &self.keys[usize::try_from(lease % MODELS as u128).unwrap()];
        let amounts = NewAmounts::of(four.iter().map(|key| (key.clone(), amount))).unwrap();
        let request = RenewRequest::new(lease_id(lease), number, amounts);
        assert!(self.limiter.renew_now(&request).unwrap().is_renewed());
    }

    /// Lets all reservations expire, then lets their leases be forgotten.
    fn forget_all(&self) {
        for passed in [WINDOW, MemoryOptions::default().remember_for] {
            self.clock.advance(passed);
            self.limiter.sweep();
        }
        assert_eq!(self.limiter.open_leases(), 0);
        assert_eq!(self.limiter.past_leases(), 0);
    }

    fn bytes(&self) -> usize {
        ALLOCATOR.current_usage().saturating_sub(self.baseline)
    }

    #[track_caller]
    fn assert_back_to_baseline(&self) {
        let bytes = self.bytes();
        assert!(bytes <= KEPT_BYTES_MAX, "{bytes} bytes above the baseline");
    }
}

fn keys_of(model: usize) -> [LimitKey; 4] {
    let model = format!("model-{model}");
    [
        LimitKey::llm_rpm("openai", &model).unwrap(),
        LimitKey::llm_tpm("openai", &model).unwrap(),
        LimitKey::tenant_daily_tokens(&model).unwrap(),
        LimitKey::llm_concurrency("openai", &model).unwrap(),
    ]
}

/// MEM-03
#[test]
fn mem_03_a_live_lease_of_four_requirements_takes_at_most_400_bytes() {
    let world = World::new(|_| {});
    let mut worst = 0;
    for lease in 1..=2 * LEASES {
        world.reserve(lease);
        // Lists grow in steps, so the worst moment counts.
        if lease >= LEASES / 4 && lease % 500 == 0 {
            worst = worst.max(world.bytes() / usize::try_from(lease).unwrap());
        }
    }
    assert!(worst <= LEASE_BYTES_MAX, "{worst} bytes a lease");
}

/// MEM-03
#[test]
fn mem_03_memory_returns_when_leases_are_completed() {
    let world = World::new(|_| {});
    for lease in 0..LEASES {
        world.reserve(lease);
    }
    let live = world.bytes();
    for lease in 0..LEASES {
        world.complete(lease, 0);
    }
    let remembered = world.bytes();
    assert!(
        remembered < live / 2,
        "{remembered} of {live} bytes are left while the leases are remembered"
    );
    world.forget_all();
    world.assert_back_to_baseline();
}

/// MEM-03, OPS-01: only leases with a job ID pay for it, and its memory returns.
#[test]
fn mem_03_the_memory_of_job_ids_returns_when_leases_end() {
    let job_bytes = |has_job: bool| {
        let world = World::new(|_| {});
        for lease in 0..LEASES {
            let job = has_job.then(|| JobId::new("a job of 16 byte").unwrap());
            world.reserve_for(job, lease);
        }
        let live = world.bytes();
        (0..LEASES / 2).for_each(|lease| world.complete(lease, 0));
        world.forget_all();
        world.assert_back_to_baseline();
        live
    };
    let (without, with) = (job_bytes(false), job_bytes(true));
    let each = (with - without) / usize::try_from(LEASES).unwrap();
    // Its text and a place in a table that is half full.
    assert!((16..=16 + 2 * 33).contains(&each), "{each} bytes a job ID");
}

/// MEM-03
#[test]
fn mem_03_memory_returns_when_leases_expire() {
    let world = World::new(|_| {});
    for lease in 0..LEASES {
        world.reserve(lease);
    }
    world.forget_all();
    world.assert_back_to_baseline();
}

/// MEM-03
#[test]
fn mem_03_memory_returns_when_reconciled_reservations_expire() {
    let world = World::new(|_| {});
    for lease in 0..LEASES {
        world.reserve(lease);
        world.complete(lease, u64::try_from(lease % 3).unwrap());
    }
    world.forget_all();
    world.assert_back_to_baseline();
}

/// MEM-03: one lasting hold does not keep the slots of the holds that ended.
#[test]
fn mem_03_a_lasting_lease_does_not_keep_the_memory_of_those_that_ended() {
    let world = World::new(|options| options.remember_max = 1_000);
    world.reserve(0);
    for n in 1..=LEASES {
        let lease = n * MODELS as u128;
        world.reserve(lease);
        world.complete(lease, 0);
    }
    let bytes = world.bytes();
    assert!(bytes <= 4 * SLACK_BYTES, "{bytes} bytes above the baseline");
    assert_eq!(world.limiter.open_leases(), 1);
}

/// MEM-03, REN-01: the parts of renewed leases, and what renews leave of their answers, go with the lease: when it is completed, and when it
/// lapses.
#[test]
fn mem_03_a_renewed_lease_returns_its_memory() {
    let bytes_each = |amounts: &[u64]| {
        let world = World::new(|_| {});
        (0..LEASES).for_each(|lease| world.reserve(lease));
        let mut number = RenewNumber::FIRST;
        for amount in amounts {
            world.clock.advance(Duration::from_secs(1));
            (0..LEASES).for_each(|lease| world.renew(lease, number, *amount));
            number = number.next();
        }
        let live = world.bytes();
        (0..LEASES / 2).for_each(|lease| world.complete(lease, 0));
        assert_eq!(world.limiter.open_leases() as u128, LEASES / 2);
        world.forget_all();
        world.assert_back_to_baseline();
        live / usize::try_from(LEASES).unwrap()
    };
    let (once, thrice) = (bytes_each(&[0]), bytes_each(&[2, 3, 4]));
    assert!(once <= RENEWED_LEASE_BYTES_MAX, "{once} bytes a lease");
    // Three rolling reservations have two parts before the last.
    let part = thrice.saturating_sub(once) / 6;
    assert!(part <= PART_BYTES_MAX, "{part} bytes a part");
}

/// MEM-03, CAL-01: until the reset, calls that ended leave nothing but their sum.
#[test]
fn mem_03_the_calls_of_a_calendar_period_take_no_memory_once_they_ended() {
    let world = World::new(|options| options.remember_max = 1_000);
    let key = LimitKey::new("budget").unwrap();
    let at = ResetTime::MIDNIGHT;
    let resets = ResetSchedule::Monthly { day: ResetDay::FIRST, at, zone: TimeZone::utc() };
    let kind = LimitKind::Calendar { resets };
    world.limiter.define_now(Limit::new(key.clone(), kind, Capacity::MAX)).unwrap();
    for n in 1..=LEASES {
        let lease = lease_id(n);
        let needs = Requirements::of([(key.clone(), 2)]).unwrap();
        assert!(
            world.limiter.reserve_now(&ReserveRequest::new(lease, needs)).unwrap().is_allowed()
        );
        let actuals = Actuals::of([(key.clone(), 1)]).unwrap();
        world.limiter.complete_now(&CompleteRequest::new(lease, actuals)).unwrap();
        world.clock.advance(Duration::from_secs(1));
    }
    let bytes = world.bytes();
    assert!(bytes <= 4 * SLACK_BYTES, "{bytes} bytes above the baseline");
    let used = world.limiter.state_now(&key).unwrap().usage.used;
    assert_eq!(u128::from(used), LEASES);
}

/// TPL-05
#[test]
fn tpl_05_a_million_tenants_seen_once_leave_nothing_behind() {
    const ROUNDS: usize = 10;
    const TENANTS_PER_ROUND: usize = 100_000;
    let world = World::new(|options| options.new_instances_per_second_max = usize::MAX);
    let window = Window::from_seconds(WINDOW.as_secs()).unwrap();
    let timeout = HoldTimeout::from_seconds(WINDOW.as_secs()).unwrap();
    let templates = [
        ("tenant:*:tokens", LimitKind::Rolling { window }),
        ("tenant:*:slots", LimitKind::Concurrency { timeout }),
    ];
    for (key, kind) in templates {
        let key = LimitKey::new(key).unwrap();
        world.limiter.define_now(Limit::new(key, kind, Capacity::new(10).unwrap())).unwrap();
    }
    let mut worst = 0;
    for round in 0..ROUNDS {
        for n in 0..TENANTS_PER_ROUND {
            let tenant = round * TENANTS_PER_ROUND + n;
            let key = |name: &str| LimitKey::new(format!("tenant:{tenant}:{name}")).unwrap();
            let lease = lease_id(tenant as u128 + 1);
            let amount = if tenant.is_multiple_of(2) { 10 } else { 1 };
            let needs = Requirements::of([(key("tokens"), amount), (key("slots"), 1)]).unwrap();
            let reserve = |lease| world.limiter.reserve_now(&ReserveRequest::new(lease, needs));
            assert!(reserve(lease).unwrap().is_allowed());
            if tenant.is_multiple_of(3) {
                let actuals = Actuals::of([(key("tokens"), amount)]).unwrap();
                world.limiter.complete_now(&CompleteRequest::new(lease, actuals)).unwrap();
            }
        }
        assert_eq!(world.limiter.instances(), 2 * TENANTS_PER_ROUND);
        worst = worst.max(world.bytes() / (2 * TENANTS_PER_ROUND));
        world.forget_all();
        assert_eq!(world.limiter.instances(), 0);
        let bytes = ALLOCATOR.current_usage();
        let kept_max = world.baseline + world.baseline / 10;
        assert!(bytes <= kept_max, "{bytes} bytes, at first {}", world.baseline);
    }
    assert!(worst <= INSTANCE_BYTES_MAX, "{worst} bytes an instance in use");
}

/// MEM-03, RES-09
#[test]
fn mem_03_three_million_denied_leases_take_no_more_than_one_million() {
    let world = World::new(|_| {});
    let key = &world.keys[0][0];
    let full = Requirements::of([(key.clone(), 1_000_000)]).unwrap();
    let first = ReserveRequest::new(lease_id(0), full);
    assert!(world.limiter.reserve_now(&first).unwrap().is_allowed());
    let one = Requirements::of([(key.clone(), 1)]).unwrap();
    let mut request = ReserveRequest::new(lease_id(1), one);
    let mut peak = 0;
    for lease in 1..=3_000_000 {
        request.lease = lease_id(lease);
        assert!(!world.limiter.reserve_now(&request).unwrap().is_allowed());
        if lease % 10_000 == 0 {
            peak = peak.max(world.bytes());
        }
    }
    assert!(world.limiter.past_leases() <= 1_000_000);
    assert!(world.limiter.past_leases() > 990_000, "nearly `remember_max` leases are remembered");
    // 37 bytes for a lease and its place in the index, plus the unused capacity of growing lists.
    assert!(peak <= 64_000_000, "{peak} bytes");
    world.forget_all();
    world.assert_back_to_baseline();
}

/// MEM-04
#[test]
fn mem_04_usage_and_memory_fall_without_traffic() {
    let every = Duration::from_millis(1);
    let world = World::new(|options| options.sweep_every = Some(every));
    for lease in 0..LEASES {
        world.reserve(lease);
    }
    let live = world.bytes();
    assert!(live > 2 * KEPT_BYTES_MAX, "{live} bytes are in use");
    let until = |is_so: &dyn Fn() -> bool| {
        let deadline = Duration::from_secs(60);
        let watch = MonotonicClock::new();
        let began = watch.now();
        while !is_so() {
            assert!(watch.now().since(began) < deadline, "the sweep never came");
            std::thread::yield_now();
        }
    };
    world.clock.advance(WINDOW);
    until(&|| world.limiter.open_leases() == 0);
    assert!(world.limiter.past_leases() > 0, "ended leases are remembered");
    world.clock.advance(MemoryOptions::default().remember_for);
    until(&|| world.limiter.past_leases() == 0 && world.bytes() <= KEPT_BYTES_MAX);
}
