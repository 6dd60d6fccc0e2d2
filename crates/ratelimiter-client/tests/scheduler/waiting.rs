//! Waiting jobs use no CPU, and wait at the limiter where it lets them.

use ratelimiter_client::{JobReport, SchedulerOptions};
use testkit::{eventually, pass};

use crate::world::{ModelLimits, ROOMY, Scripted, World, call, lasting, secs};

/// SCH-08
#[tokio::test(start_paused = true)]
async fn sch_08_ten_thousand_blocked_jobs_ask_only_when_something_is_due() {
    let world = World::new().with_model("p", ModelLimits { rpm: 1, ..ROOMY });
    let scheduler = world.scheduler(32);
    scheduler.submit(lasting(&call("p", "t", 1), secs(0))).await.unwrap().await.result.unwrap();
    for tenant in 0..10_000 {
        let job = lasting(&call("p", &format!("t{}", tenant % 100), 1), secs(0));
        drop(scheduler.submit(job).await.unwrap());
    }
    tokio::time::advance(secs(1)).await;
    let before = scheduler.counters();
    assert_eq!(before.waiting, 10_000);
    // The driver wakes when something is due, and only then: an hour is some sixty allows, each with a denial.
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < secs(3_600) {
        pass(secs(60)).await;
    }
    let after = scheduler.counters();
    let allowed = after.allowed - before.allowed;
    assert!((50..=60).contains(&allowed), "{after:?}");
    let attempts = after.attempts - before.attempts;
    assert!(attempts <= 10 * allowed, "{attempts} attempts for {allowed} allows");
}

/// SCH-08
#[tokio::test(start_paused = true)]
async fn sch_08_a_submit_wakes_a_sleeping_scheduler() {
    let world =
        World::new().with_model("full", ModelLimits { tpm: 10, ..ROOMY }).with_model("free", ROOMY);
    let scheduler = world.scheduler_with(SchedulerOptions::with_workers(4));
    scheduler.submit(lasting(&call("full", "t", 10), secs(0))).await.unwrap().await.result.unwrap();
    let blocked = scheduler.submit(lasting(&call("full", "t", 10), secs(0))).await.unwrap();
    tokio::time::advance(secs(1)).await;
    let free = scheduler.submit(lasting(&call("free", "t", 10), secs(0))).await.unwrap();
    let JobReport { result, waited, .. } = free.await;
    result.unwrap();
    assert_eq!(waited, secs(0));
    assert!(blocked.await.waited >= secs(60));
}

/// PAUSE-02, SCH-02: a job waits through a pause, whatever it asks for, and fails at once on an unknown key.
#[tokio::test(start_paused = true)]
async fn pause_02_a_job_waits_through_a_pause_and_fails_at_once_on_an_unknown_key() {
    let world = World::roomy();
    let scheduler = world.scheduler(4);
    for outcome in [Scripted::Refused, Scripted::Invalid] {
        world.script_reserves([outcome]);
        let refused = scheduler.submit(lasting(&call("p", "t", 1), secs(0))).await.unwrap();
        assert!(refused.await.result.is_err(), "and when the limiter refuses the request");
    }
    world.set_rpm("p", 0);
    let waiting = scheduler.submit(lasting(&call("p", "t", 1), secs(0))).await.unwrap();
    let unknown = scheduler.submit(lasting(&call("unheard-of", "t", 1), secs(0))).await.unwrap();
    assert!(unknown.await.result.is_err());
    pass(secs(3_600)).await;
    let counters = scheduler.counters();
    assert_eq!(counters.waiting, 1, "{counters:?}");
    assert!((300..=400).contains(&counters.denied), "every ten seconds: {counters:?}");
    world.set_rpm("p", 10);
    let JobReport { result, waited, .. } = waiting.await;
    result.unwrap();
    assert!(waited < secs(3_615), "{waited:?}");
}

const ONE_SLOT: ModelLimits = ModelLimits { slots: 1, ..ROOMY };

/// WAIT-07: a job that was denied waits at the limiter, one at a time for each limit.
#[tokio::test(start_paused = true)]
async fn wait_07_one_denied_job_waits_at_the_limiter() {
    let world = World::new().with_model("p", ONE_SLOT).letting_wait();
    let scheduler = world.scheduler(8);
    let held = scheduler.submit(lasting(&call("p", "t", 1), secs(10))).await.unwrap();
    pass(secs(1)).await;
    world.script_reserves([Scripted::Answered, Scripted::NeverAnswered]);
    let waits = scheduler.submit(lasting(&call("p", "t", 1), secs(0))).await.unwrap();
    eventually("it waits", async || world.waits.lock().unwrap().len() == 1).await;
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(scheduler.submit(lasting(&call("p", "t", 1), secs(0))).await.unwrap());
    }
    pass(secs(5)).await;
    assert_eq!(world.reserves().len(), 3, "the others ask when it has its answer");
    waits.cancel();
    held.await.result.unwrap();
    for other in others {
        other.await.result.unwrap();
    }
}

/// WAIT-07: a cancelled job that waits at the limiter lets others ask at once, however long its complete takes.
#[tokio::test(start_paused = true)]
async fn wait_07_a_cancelled_job_holds_up_nobody_while_it_completes() {
    let world = World::new().with_model("p", ONE_SLOT).letting_wait();
    let scheduler = world.scheduler(8);
    let held = scheduler.submit(lasting(&call("p", "t", 1), secs(10))).await.unwrap();
    pass(secs(1)).await;
    world.script_reserves([Scripted::Answered, Scripted::NeverAnswered]);
    let waits = scheduler.submit(lasting(&call("p", "t", 1), secs(0))).await.unwrap();
    eventually("it waits", async || world.waits.lock().unwrap().len() == 1).await;
    let next = scheduler.submit(lasting(&call("p", "t", 1), secs(0))).await.unwrap();
    world.script_completes([Scripted::NeverAnswered]);
    waits.cancel();
    held.await.result.unwrap();
    let JobReport { result, waited, .. } = next.await;
    result.unwrap();
    assert!(waited <= secs(10), "{waited:?}");
    assert_eq!(scheduler.counters().busy, 1, "the complete of the cancelled one");
}

/// WAIT-04, WAIT-07: the server ended the lease of a request that was repeated while it waited.
#[tokio::test(start_paused = true)]
async fn wait_07_a_job_whose_waiting_lease_has_ended_asks_again() {
    let world = World::new().with_model("p", ONE_SLOT).letting_wait();
    let scheduler = world.scheduler(8);
    let held = scheduler.submit(lasting(&call("p", "t", 1), secs(10))).await.unwrap();
    pass(secs(1)).await;
    world.script_reserves([Scripted::Answered, Scripted::LeaseEnded]);
    let next = scheduler.submit(lasting(&call("p", "t", 1), secs(0))).await.unwrap();
    held.await.result.unwrap();
    next.await.result.unwrap();
}
