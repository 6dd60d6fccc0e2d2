//! Waiting in virtual time, on the memory backend.

use std::sync::atomic::AtomicU64;

use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, Capacity, HoldTimeout, Limit, LimitKind, MemoryLimiter, NewAmounts, RenewNumber,
    Requirements, Wait, Window,
};
use ratelimiter_client::TokioClock;
use testkit::pass;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::unread::given_up;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A limiter whose reserves may wait.
struct World {
    memory: MemoryLimiter,
    waiting: Waiting<MemoryLimiter>,
    limits_changed: Arc<Notify>,
    leases: AtomicU64,
}

impl World {
    fn new(waiters_max: usize) -> Arc<Self> {
        let clock = Arc::new(TokioClock::new());
        let memory = MemoryLimiter::with_options(MemoryOptions::for_tests(clock.clone()));
        let limits_changed = Arc::new(Notify::new());
        let waiting = Waiting::new(
            Arc::new(memory.clone()),
            clock,
            &(Arc::new(TokioRuntime) as Arc<dyn Runtime>),
            waiters_max,
            Arc::clone(&limits_changed),
        );
        Arc::new(Self { memory, waiting, limits_changed, leases: AtomicU64::new(1) })
    }

    /// A concurrency limit, or with a window a rolling one.
    fn define(&self, name: &str, capacity: u64, window: Option<Duration>) {
        let kind = match window {
            Some(window) => {
                LimitKind::Rolling { window: Window::from_seconds(window.as_secs()).unwrap() }
            }
            None => LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(3_600).unwrap() },
        };
        let limit = Limit::new(key(name), kind, Capacity::new(capacity).unwrap());
        self.memory.define_now(limit).unwrap();
        self.limits_changed.notify_one();
    }

    fn used(&self, name: &str) -> u128 {
        let state = self.memory.state_now(&key(name)).unwrap();
        u128::from(state.usage.used)
    }

    fn request(&self, needs: &[(&str, u64)], wait: Option<Wait>) -> ReserveRequest {
        let lease = self.leases.fetch_add(1, Ordering::Relaxed);
        let needs = Requirements::of(needs.iter().map(|(name, amount)| (key(name), *amount)));
        let request = ReserveRequest::new(LeaseId::from_u128(lease.into()), needs.unwrap());
        ReserveRequest { wait, ..request }
    }

    async fn take(&self, needs: &[(&str, u64)]) -> LeaseId {
        let request = self.request(needs, None);
        let (decision, waited) = self.waiting.reserve(&request).await.unwrap();
        assert!(decision.is_allowed() && waited.is_none(), "{decision:?}");
        request.lease
    }

    async fn complete(&self, lease: LeaseId) {
        let none = Actuals::new(Vec::new()).unwrap();
        self.waiting.complete(&CompleteRequest::new(lease, none)).await.unwrap();
    }

    async fn renew(&self, lease: LeaseId, number: u64, slots: u64) -> Result<Renewal, RenewError> {
        let amounts = NewAmounts::of([(key("slots"), slots)]).unwrap();
        let request = RenewRequest::new(lease, RenewNumber::new(number).unwrap(), amounts);
        self.waiting.renew(&request).await
    }

    /// A batch whose first item waits for a full limit, and whose second one gets one of two slots.
    async fn batch_that_waits(&self) -> [ReserveRequest; 2] {
        self.define("full", 1, None);
        self.define("slots", 2, None);
        self.take(&[("full", 1)]).await;
        [self.request(&[("full", 1)], Some(wait(60, ""))), self.request(&[("slots", 1)], None)]
    }

    /// A caller in the background, which has begun to wait when this returns.
    async fn wait(self: &Arc<Self>, queue: &str, needs: &[(&str, u64)]) -> Asked {
        self.wait_with(self.request(needs, Some(wait(60, queue)))).await
    }

    async fn wait_with(self: &Arc<Self>, request: ReserveRequest) -> Asked {
        let (world, lease) = (Arc::clone(self), request.lease);
        let answer = tokio::spawn(async move { world.waiting.reserve(&request).await });
        settle().await;
        Asked { lease, answer }
    }
}

/// A request that was sent.
struct Asked {
    lease: LeaseId,
    answer: JoinHandle<Result<TimedDecision, ReserveError>>,
}

impl Asked {
    fn is_answered(&self) -> bool {
        self.answer.is_finished()
    }

    async fn answer(self) -> TimedDecision {
        self.answer.await.unwrap().unwrap()
    }

    /// The lease, and how long it waited.
    async fn allowed(self) -> (LeaseId, Duration) {
        let lease = self.lease;
        let (decision, waited) = self.answer().await;
        assert!(decision.is_allowed(), "{decision:?}");
        (lease, waited.unwrap())
    }

    /// The denial, and how long it waited.
    async fn denied(self) -> (Denial, Duration) {
        match self.answer().await {
            (Decision::Denied(denial), waited) => (denial, waited.unwrap()),
            (decision, _) => panic!("{decision:?}"),
        }
    }
}

fn key(name: &str) -> LimitKey {
    LimitKey::new(name).unwrap()
}

fn wait(seconds: u64, queue: &str) -> Wait {
    Wait::new(Duration::from_secs(seconds), queue).unwrap()
}

/// Lets all tasks run until they wait; the time stands still.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// WAIT-01, WAIT-06
#[tokio::test(start_paused = true)]
async fn wait_01_a_complete_admits_who_waits() {
    let world = World::new(10);
    world.define("slots", 1, None);
    let held = world.take(&[("slots", 1)]).await;
    let asked = world.wait("", &[("slots", 1)]).await;
    pass(3 * SECOND).await;
    assert!(!asked.is_answered());
    assert_eq!(world.waiting.count(), 1);
    world.complete(held).await;
    let (lease, waited) = asked.allowed().await;
    assert_eq!(waited, 3 * SECOND);
    assert_eq!((world.waiting.count(), world.used("slots")), (0, 1));
    world.complete(lease).await;
    assert_eq!(world.used("slots"), 0);
}

/// WAIT-06, REN-01: also what a renew gives back, and only that.
#[tokio::test(start_paused = true)]
async fn wait_06_a_renew_that_gives_back_admits_who_waits() {
    let world = World::new(10);
    world.define("slots", 3, None);
    let held = world.take(&[("slots", 3)]).await;
    let asked = world.wait("", &[("slots", 2)]).await;
    for (number, amount) in [(1, 3), (2, 2)] {
        assert!(world.renew(held, number, amount).await.unwrap().is_renewed());
        pass(SECOND).await;
        assert!(!asked.is_answered(), "there is not enough room");
    }
    assert!(world.renew(held, 3, 1).await.unwrap().is_renewed());
    let (_, waited) = asked.allowed().await;
    assert_eq!((waited, world.used("slots")), (2 * SECOND, 3));
}

/// WAIT-01
#[tokio::test(start_paused = true)]
async fn wait_01_when_the_time_is_over_it_gets_the_ordinary_denial() {
    let world = World::new(10);
    world.define("slots", 1, None);
    world.take(&[("slots", 1)]).await;
    let request = world.request(&[("slots", 1)], Some(wait(5, "")));
    let asked = world.wait_with(request.clone()).await;
    let (denial, waited) = asked.denied().await;
    assert_eq!(waited, 5 * SECOND);
    assert_eq!(denial.reason, DenialReason::NoRoom { keys: vec![key("slots")] });
    assert_eq!(world.waiting.count(), 0);
    // As any denied lease it stays denied.
    world.define("slots", 2, None);
    let (decision, waited) = world.waiting.reserve(&request).await.unwrap();
    assert!(!decision.is_allowed());
    assert_eq!(waited, Some(Duration::ZERO), "asking again would not help");
}

/// WAIT-01, WAIT-06
#[tokio::test(start_paused = true)]
async fn wait_06_what_lapses_admits_who_waits_at_that_moment() {
    let world = World::new(10);
    world.define("rpm", 2, Some(10 * SECOND));
    world.take(&[("rpm", 1)]).await;
    pass(2 * SECOND).await;
    world.take(&[("rpm", 1)]).await;
    let (first, second) =
        (world.wait("", &[("rpm", 1)]).await, world.wait("", &[("rpm", 1)]).await);
    assert_eq!(first.allowed().await.1, 8 * SECOND);
    assert_eq!(second.allowed().await.1, 10 * SECOND);
}

/// WAIT-06
#[tokio::test(start_paused = true)]
async fn wait_06_what_lapses_admits_who_had_room_for_a_part() {
    let world = World::new(10);
    world.define("rpm", 10, Some(3 * SECOND));
    world.take(&[("rpm", 5)]).await;
    pass(SECOND / 2).await;
    let asked = world.wait("", &[("rpm", 6)]).await;
    assert_eq!(asked.allowed().await.1, 5 * SECOND / 2);
}

/// WAIT-03, WAIT-06: however the one in front goes away.
#[tokio::test(start_paused = true)]
async fn wait_06_who_fits_is_admitted_when_the_one_in_front_goes_away() {
    for way in 0..3 {
        let world = World::new(10);
        world.define("slots", 7, None);
        world.take(&[("slots", 4)]).await;
        let large = world.request(&[("slots", 4)], Some(wait(5, "a")));
        let large = world.wait_with(large).await;
        let small = world.wait("b", &[("slots", 3)]).await;
        pass(SECOND).await;
        assert!(!small.is_answered(), "way {way}");
        let after = match way {
            0 => {
                large.answer.abort();
                SECOND
            }
            1 => {
                world.complete(large.lease).await;
                SECOND
            }
            _ => 5 * SECOND,
        };
        assert_eq!(small.allowed().await.1, after, "way {way}");
    }
}

/// WAIT-01, WAIT-06, PAUSE-01
#[tokio::test(start_paused = true)]
async fn wait_06_a_change_of_a_limit_admits_who_waits() {
    let world = World::new(10);
    world.define("paused", 0, None);
    world.define("full", 1, None);
    world.take(&[("full", 1)]).await;
    let (paused, full) =
        (world.wait("", &[("paused", 1)]).await, world.wait("", &[("full", 1)]).await);
    pass(SECOND / 2).await;
    world.define("paused", 1, None);
    assert_eq!(paused.allowed().await.1, SECOND / 2);
    world.define("full", 2, None);
    assert_eq!(full.allowed().await.1, SECOND / 2);
}

/// WAIT-01
#[tokio::test(start_paused = true)]
async fn wait_01_every_other_refusal_is_immediate() {
    let world = World::new(10);
    world.define("slots", 1, None);
    let ask = async |needs: &[(&str, u64)], seconds| {
        let request = world.request(needs, Some(wait(seconds, "")));
        world.waiting.reserve(&request).await
    };
    let unknown = ask(&[("unknown", 1)], 60).await.unwrap_err();
    assert_eq!(unknown, ReserveError::UnknownKey { key: key("unknown") });
    let too_much = ask(&[("slots", 2)], 60).await.unwrap_err();
    assert_eq!(too_much, ReserveError::AmountExceedsCapacity { key: key("slots") });
    world.take(&[("slots", 1)]).await;
    let (at_once, waited) = ask(&[("slots", 1)], 0).await.unwrap();
    assert!(!at_once.is_allowed());
    assert_eq!(waited, Some(Duration::ZERO));
    // Also while others wait for the same limit.
    let waiter = world.wait("", &[("slots", 1)]).await;
    let unknown = ask(&[("slots", 1), ("unknown", 1)], 60).await.unwrap_err();
    assert_eq!(unknown, ReserveError::UnknownKey { key: key("unknown") });
    assert!(!waiter.is_answered());
}

/// WAIT-02
#[tokio::test(start_paused = true)]
async fn wait_02_queues_take_turns_and_each_is_first_come_first_served() {
    let world = World::new(10);
    world.define("slots", 1, None);
    let mut held = world.take(&[("slots", 1)]).await;
    let mut asked = Vec::new();
    for (queue, name) in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1")] {
        asked.push((name, world.wait(queue, &[("slots", 1)]).await));
    }
    let mut order = Vec::new();
    while !asked.is_empty() {
        world.complete(held).await;
        settle().await;
        let at = asked.iter().position(|(_, asked)| asked.is_answered()).unwrap();
        let (name, next) = asked.remove(at);
        order.push(name);
        held = next.allowed().await.0;
    }
    assert_eq!(order, ["a1", "b1", "c1", "a2", "a3"]);
}

/// WAIT-02
#[tokio::test(start_paused = true)]
async fn wait_02_who_does_not_wait_does_not_overtake() {
    let world = World::new(10);
    world.define("slots", 4, None);
    world.define("others", 1, None);
    let held = world.take(&[("slots", 3)]).await;
    // One slot is free, which is too little for the waiter.
    let asked = world.wait("", &[("slots", 3)]).await;
    let request = world.request(&[("slots", 3)], None);
    let (decision, _) = world.waiting.reserve(&request).await.unwrap();
    assert!(!decision.is_allowed());
    // There is room for this one.
    let small = world.request(&[("slots", 1)], None);
    let (decision, _) = world.waiting.reserve(&small).await.unwrap();
    let Decision::Denied(denial) = decision else { panic!("{decision:?}") };
    assert_eq!(denial.reason, DenialReason::NoRoom { keys: vec![key("slots")] });
    assert!(denial.retry_after > Duration::ZERO);
    // Who needs other limits goes ahead.
    world.take(&[("others", 1)]).await;
    world.complete(held).await;
    asked.allowed().await;
}

/// WAIT-02, REN-01: only reserves queue.
#[tokio::test(start_paused = true)]
async fn wait_02_a_renew_that_asks_for_more_does_not_queue_behind_waiters() {
    let world = World::new(10);
    world.define("slots", 4, None);
    let held = world.take(&[("slots", 3)]).await;
    let asked = world.wait("", &[("slots", 3)]).await;
    let small = world.request(&[("slots", 1)], None);
    assert!(!world.waiting.reserve(&small).await.unwrap().0.is_allowed());
    assert!(world.renew(held, 1, 4).await.unwrap().is_renewed());
    assert!(!asked.is_answered() && world.used("slots") == 4);
    world.complete(held).await;
    asked.allowed().await;
}

/// WAIT-02: 50 callers of one queue and one of another on 8 slots, for a simulated hour.
#[tokio::test(start_paused = true)]
async fn wait_02_a_light_queue_waits_at_most_two_service_times() {
    const SLOTS: u64 = 8;
    let world = World::new(100);
    world.define("slots", SLOTS, None);
    let until = Instant::now() + 3_600 * SECOND;
    let call = async |world: &Arc<World>, queue: &str| {
        let request = world.request(&[("slots", 1)], Some(wait(60, queue)));
        let (decision, waited) = world.waiting.reserve(&request).await.unwrap();
        assert!(decision.is_allowed(), "{decision:?}");
        pass(SECOND).await;
        world.complete(request.lease).await;
        waited.unwrap()
    };
    let mut heavy = Vec::new();
    for _ in 0..50 {
        let world = Arc::clone(&world);
        heavy.push(tokio::spawn(async move {
            let mut calls = 0;
            while Instant::now() < until {
                call(&world, "heavy").await;
                calls += 1;
            }
            calls
        }));
    }
    let mut waits = Vec::new();
    while Instant::now() < until {
        waits.push(call(&world, "light").await);
        pass(SECOND / 3).await;
    }
    let mut calls = waits.len();
    for heavy in heavy {
        calls += heavy.await.unwrap();
    }
    assert!(calls as u64 >= 3_600 * SLOTS * 99 / 100, "the slots are busy: {calls}");
    waits.sort_unstable();
    let p99 = waits[waits.len() * 99 / 100];
    assert!(p99 <= 2 * SECOND, "{p99:?}");
}

/// WAIT-03
#[tokio::test(start_paused = true)]
async fn wait_03_a_waiter_delays_only_those_that_need_what_it_lacks() {
    let world = World::new(10);
    world.define("full", 1, None);
    world.define("free", 9, None);
    world.take(&[("full", 1)]).await;
    let both = world.wait("a", &[("full", 1), ("free", 1)]).await;
    let free = world.wait("a", &[("free", 1)]).await;
    assert_eq!(free.allowed().await.1, Duration::ZERO);
    assert!(!both.is_answered());
}

/// WAIT-03
#[tokio::test(start_paused = true)]
async fn wait_03_a_large_waiter_is_not_starved_by_small_ones() {
    let world = World::new(100);
    world.define("slots", 8, None);
    let until = Instant::now() + 600 * SECOND;
    for number in 0..20 {
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            pass(SECOND * number / 20).await;
            while Instant::now() < until {
                let request = world.request(&[("slots", 1)], Some(wait(60, "small")));
                let (decision, _) = world.waiting.reserve(&request).await.unwrap();
                assert!(decision.is_allowed(), "{decision:?}");
                pass(SECOND).await;
                world.complete(request.lease).await;
            }
        });
    }
    pass(10 * SECOND).await;
    // It needs all slots at once, which never are free together by chance.
    let (lease, waited) = world.wait("large", &[("slots", 8)]).await.allowed().await;
    assert!(waited < 60 * SECOND, "{waited:?}");
    world.complete(lease).await;
}

/// WAIT-04
#[tokio::test(start_paused = true)]
async fn wait_04_a_caller_that_goes_away_holds_nothing() {
    let world = World::new(10);
    world.define("slots", 1, None);
    let held = world.take(&[("slots", 1)]).await;
    let gone = world.wait("", &[("slots", 1)]).await;
    let stays = world.wait("", &[("slots", 1)]).await;
    assert_eq!(world.waiting.count(), 2);
    gone.answer.abort();
    settle().await;
    assert_eq!(world.waiting.count(), 1);
    world.complete(held).await;
    stays.allowed().await;
    assert_eq!(world.used("slots"), 1);
}

/// WAIT-04: it goes away between its admission and its answer.
#[tokio::test(start_paused = true)]
async fn wait_04_what_nobody_waits_for_any_more_is_returned() {
    let world = World::new(10);
    world.define("slots", 1, None);
    world.define("tpm", 10, Some(60 * SECOND));
    let held = world.take(&[("slots", 1)]).await;
    let request = world.request(&[("slots", 1), ("tpm", 10)], Some(wait(60, "")));
    let mut asked = Box::pin(world.waiting.reserve(&request));
    assert!(futures::poll!(&mut asked).is_pending());
    settle().await;
    world.complete(held).await;
    settle().await;
    assert_eq!((world.used("slots"), world.used("tpm")), (1, 10));
    drop(asked);
    settle().await;
    assert_eq!((world.used("slots"), world.used("tpm")), (0, 0));
}

/// WAIT-04: two callers of one lease go away after it was admitted, before either has read that.
#[tokio::test(start_paused = true)]
async fn wait_04_the_last_caller_that_goes_away_unanswered_returns_the_lease() {
    for reads in [false, true] {
        let world = World::new(10);
        world.define("slots", 1, None);
        let held = world.take(&[("slots", 1)]).await;
        let request = world.request(&[("slots", 1)], Some(wait(60, "")));
        let mut first = Box::pin(world.waiting.reserve(&request));
        let mut second = Box::pin(world.waiting.reserve(&request));
        assert!(
            futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending()
        );
        world.complete(held).await;
        settle().await;
        drop(first);
        settle().await;
        assert_eq!(world.used("slots"), 1, "the other caller may still read it");
        if reads {
            assert!(second.await.unwrap().0.is_allowed());
        } else {
            drop(second);
        }
        settle().await;
        assert_eq!(world.used("slots"), u128::from(reads));
    }
}

/// WAIT-04: a repeat is told that the lease is allowed, so that it is not returned when the first caller goes away.
#[tokio::test(start_paused = true)]
async fn wait_04_a_lease_that_a_repeat_has_is_not_returned() {
    let world = World::new(10);
    world.define("slots", 1, None);
    let held = world.take(&[("slots", 1)]).await;
    let request = world.request(&[("slots", 1)], Some(wait(60, "")));
    let mut first = Box::pin(world.waiting.reserve(&request));
    assert!(futures::poll!(&mut first).is_pending());
    world.complete(held).await;
    settle().await;
    let (decision, _) = world.waiting.reserve(&request).await.unwrap();
    assert!(decision.is_allowed());
    drop(first);
    settle().await;
    assert_eq!(world.used("slots"), 1);
}

/// WAIT-04: a batch goes away while one of its items waits.
#[tokio::test(start_paused = true)]
async fn wait_04_a_batch_that_goes_away_returns_what_its_other_items_got() {
    let world = World::new(10);
    for limit in ["full", "slots", "later"] {
        world.define(limit, 1, None);
    }
    world.define("tpm", 10, Some(60 * SECOND));
    world.take(&[("full", 1)]).await;
    let later = world.take(&[("later", 1)]).await;
    let known = world.request(&[("tpm", 3)], None);
    assert!(world.waiting.reserve(&known).await.unwrap().0.is_allowed());
    pass(SECOND).await;
    let requests = [
        world.request(&[("full", 1)], Some(wait(60, ""))),
        world.request(&[("slots", 1), ("tpm", 5)], None),
        known,
        world.request(&[("later", 1)], Some(wait(60, ""))),
    ];
    let mut batch = Box::pin(world.waiting.reserve_batch(&requests));
    assert!(futures::poll!(&mut batch).is_pending());
    world.complete(later).await;
    settle().await;
    assert!(futures::poll!(&mut batch).is_pending(), "one still waits");
    assert_eq!((world.used("slots"), world.used("tpm"), world.used("later")), (1, 8, 1));
    drop(batch);
    settle().await;
    let used = (world.used("slots"), world.used("tpm"), world.used("later"));
    assert_eq!(used, (0, 3, 0), "what was allowed before the batch stays");
    assert!(!world.waiting.waiters.any());
}

/// WAIT-04, REN-01: whoever renews a lease was told of it.
#[tokio::test(start_paused = true)]
async fn wait_04_a_batch_that_goes_away_leaves_a_lease_that_was_renewed() {
    let world = World::new(10);
    let requests = world.batch_that_waits().await;
    let mut batch = Box::pin(world.waiting.reserve_batch(&requests));
    assert!(futures::poll!(&mut batch).is_pending());
    assert!(world.renew(requests[1].lease, 1, 2).await.unwrap().is_renewed());
    drop(batch);
    settle().await;
    assert_eq!((world.used("full"), world.used("slots")), (1, 2));
    assert!(!world.waiting.waiters.any());
}

/// WAIT-04, REN-01: nobody is told that a lease is renewed, and then loses it.
#[tokio::test(start_paused = true)]
async fn wait_04_a_renew_of_a_lease_that_is_being_returned_gets_no_answer() {
    let world = World::new(10);
    let requests = world.batch_that_waits().await;
    let mut batch = Box::pin(world.waiting.reserve_batch(&requests));
    assert!(futures::poll!(&mut batch).is_pending());
    drop(batch);
    let renewed = world.renew(requests[1].lease, 1, 2).await;
    assert_eq!(renewed, Err(given_up().into()));
    assert_eq!(world.used("slots"), 1, "it is returned later");
    settle().await;
    assert_eq!((world.used("full"), world.used("slots")), (1, 0));
    assert_eq!(world.renew(requests[1].lease, 1, 2).await, Err(RenewError::LeaseEnded));
    assert!(!world.waiting.waiters.any());
}

/// WAIT-01, WAIT-04: a batch that is answered keeps all that it got.
#[tokio::test(start_paused = true)]
async fn wait_04_a_batch_that_is_answered_keeps_what_it_got() {
    let world = World::new(10);
    world.define("full", 1, None);
    world.define("slots", 1, None);
    let held = world.take(&[("full", 1)]).await;
    let requests =
        [world.request(&[("full", 1)], Some(wait(60, ""))), world.request(&[("slots", 1)], None)];
    let mut batch = Box::pin(world.waiting.reserve_batch(&requests));
    assert!(futures::poll!(&mut batch).is_pending());
    world.complete(held).await;
    let answers = batch.await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().0.is_allowed()), "{answers:?}");
    settle().await;
    assert_eq!((world.used("full"), world.used("slots")), (1, 1));
    assert!(!world.waiting.waiters.any());
}

/// WAIT-04
#[tokio::test(start_paused = true)]
async fn wait_04_a_shutdown_answers_all_waiters_with_their_denial() {
    let world = World::new(10);
    world.define("slots", 1, None);
    world.take(&[("slots", 1)]).await;
    let (first, second) =
        (world.wait("a", &[("slots", 1)]).await, world.wait("b", &[("slots", 1)]).await);
    pass(SECOND).await;
    world.waiting.shut_down();
    for asked in [first, second] {
        let (denial, waited) = asked.denied().await;
        assert_eq!(denial.keys(), [key("slots")]);
        assert_eq!(waited, SECOND);
    }
    let (denial, waited) = world.wait("", &[("slots", 1)]).await.denied().await;
    assert_eq!((denial.keys(), waited), (&[key("slots")][..], Duration::ZERO));
    assert_eq!(world.waiting.count(), 0);
}

/// WAIT-04
#[tokio::test(start_paused = true)]
async fn wait_04_a_repeated_lease_joins_the_same_wait() {
    let world = World::new(1);
    world.define("slots", 1, None);
    world.define("others", 1, None);
    let held = world.take(&[("slots", 1)]).await;
    let request = world.request(&[("slots", 1)], Some(wait(60, "")));
    let first = world.wait_with(request.clone()).await;
    let shorter = ReserveRequest { wait: Some(wait(2, "")), ..request.clone() };
    let (short, joined) = (world.wait_with(shorter).await, world.wait_with(request.clone()).await);
    assert_eq!(world.waiting.count(), 1);
    for wait in [request.wait.clone(), None] {
        let both = world.request(&[("slots", 1), ("others", 1)], wait);
        let conflict = ReserveRequest { lease: request.lease, ..both };
        let conflict = world.waiting.reserve(&conflict).await.unwrap_err();
        assert_eq!(conflict, ReserveError::LeaseConflict, "RES-04");
    }
    let (_, waited) = short.denied().await;
    assert_eq!(waited, 2 * SECOND, "its own time");
    first.answer.abort();
    settle().await;
    assert_eq!(world.waiting.count(), 1, "another waits for it");
    world.complete(held).await;
    let (lease, _) = joined.allowed().await;
    assert_eq!(lease, request.lease);
    assert_eq!(world.used("slots"), 1);
}

/// WAIT-05
#[tokio::test(start_paused = true)]
async fn wait_05_beyond_the_bound_the_denial_is_immediate() {
    let world = World::new(2);
    world.define("slots", 1, None);
    let held = world.take(&[("slots", 1)]).await;
    let (first, _second) =
        (world.wait("", &[("slots", 1)]).await, world.wait("", &[("slots", 1)]).await);
    let third = world.request(&[("slots", 1)], Some(wait(60, "")));
    let (denial, waited) = world.wait_with(third.clone()).await.denied().await;
    assert_eq!(denial.reason, DenialReason::TooManyWaiters { keys: vec![key("slots")] });
    assert_eq!((denial.retry_after, waited), (TOO_MANY_RETRY_AFTER, Duration::ZERO));
    // It is not remembered.
    world.complete(held).await;
    first.allowed().await;
    let third = world.wait_with(third).await;
    assert!(!third.is_answered());
    assert_eq!(world.waiting.count(), 2);
}

/// A waiter that a change of its limits refuses leaves with that.
#[tokio::test(start_paused = true)]
async fn a_limit_that_is_deleted_ends_the_wait() {
    let world = World::new(10);
    world.define("slots", 1, None);
    world.take(&[("slots", 1)]).await;
    let asked = world.wait("", &[("slots", 1)]).await;
    world.memory.delete_now(&key("slots")).unwrap();
    world.limits_changed.notify_one();
    let answer = asked.answer.await.unwrap();
    assert_eq!(answer.unwrap_err(), ReserveError::UnknownKey { key: key("slots") });
    assert_eq!(world.waiting.count(), 0);
}

/// WAIT-04: the complete of a lease that waits ends its wait, so that it is not admitted for nobody.
#[tokio::test(start_paused = true)]
async fn wait_04_a_complete_of_a_lease_that_waits_ends_its_wait() {
    let world = World::new(10);
    world.define("slots", 1, None);
    let held = world.take(&[("slots", 1)]).await;
    let asked = world.wait("", &[("slots", 1)]).await;
    world.complete(asked.lease).await;
    asked.denied().await;
    assert_eq!(world.waiting.count(), 0);
    world.complete(held).await;
    settle().await;
    assert_eq!(world.used("slots"), 0);
}

/// WAIT-04: a repeat that does not wait itself is denied, and the wait goes on.
#[tokio::test(start_paused = true)]
async fn wait_04_a_repeat_that_does_not_wait_harms_no_waiter() {
    let world = World::new(10);
    world.define("slots", 1, None);
    let held = world.take(&[("slots", 1)]).await;
    let request = world.request(&[("slots", 1)], Some(wait(60, "")));
    let asked = world.wait_with(request.clone()).await;
    let at_once = ReserveRequest { wait: None, ..request };
    let (decision, _) = world.waiting.reserve(&at_once).await.unwrap();
    assert!(!decision.is_allowed());
    world.complete(held).await;
    asked.allowed().await;
}

/// WAIT-03, WAIT-06: a limit that denied a waiter together with another one is free for others when it has room.
#[tokio::test(start_paused = true)]
async fn wait_06_room_that_lapses_is_not_held_for_who_lacks_another_limit() {
    let world = World::new(10);
    world.define("slots", 1, None);
    world.define("rpm", 1, Some(2 * SECOND));
    world.take(&[("slots", 1), ("rpm", 1)]).await;
    let both = world.wait("a", &[("rpm", 1), ("slots", 1)]).await;
    let rpm = world.wait("b", &[("rpm", 1)]).await;
    assert_eq!(rpm.allowed().await.1, 2 * SECOND);
    assert!(!both.is_answered());
}

/// WAIT-04: the hint at a shutdown is that of an ordinary denial (`HINT-03`), not the time until a hold lapses.
#[tokio::test(start_paused = true)]
async fn wait_04_the_hint_at_a_shutdown_is_the_ordinary_one() {
    let world = World::new(10);
    world.define("slots", 1, None);
    world.take(&[("slots", 1)]).await;
    let asked = world.wait("", &[("slots", 1)]).await;
    world.waiting.shut_down();
    let (denial, _) = asked.denied().await;
    assert!(denial.retry_after <= 3 * SECOND, "{denial:?}");
}
