//! Waiting jobs use no CPU.

use ratelimiter_client::{JobReport, SchedulerOptions};
use testkit::pass;

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
