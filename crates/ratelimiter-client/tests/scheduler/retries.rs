//! Denied, unanswered, refused.

use ratelimiter_client::{Done, JobFailure, ReserveError};

use crate::world::{ModelLimits, ROOMY, Scripted, World, call, job, lasting, secs};

/// SCH-02
#[tokio::test(start_paused = true)]
async fn sch_02_a_denied_job_waits_for_its_hint_and_asks_with_a_new_lease() {
    let world = World::new().with_model("p", ModelLimits { rpm: 1, ..ROOMY });
    let scheduler = world.scheduler(4);
    let begun = tokio::time::Instant::now();
    let first = scheduler.submit(lasting(&call("p", "t", 10), secs(0))).await.unwrap();
    first.await.result.unwrap();
    let second = scheduler.submit(lasting(&call("p", "t", 10), secs(0))).await.unwrap();
    let report = second.await;
    report.result.unwrap();
    assert_eq!(report.attempts, 2, "without open leases the hint is exact");
    assert!(begun.elapsed() >= secs(60));
    assert!(report.waited >= secs(60) && report.waited <= secs(61), "the hint and some jitter");
    let reserves = world.reserves();
    assert_eq!(reserves.len(), 3);
    assert_ne!(reserves[1], reserves[2]);
}

/// SCH-02
#[tokio::test(start_paused = true)]
async fn sch_02_a_job_without_an_answer_asks_again_with_the_same_lease_and_counts_once() {
    for outcome in [Scripted::RequestLost, Scripted::AnswerLost] {
        let world = World::roomy();
        world.script_reserves([outcome, outcome, outcome]);
        let scheduler = world.scheduler(4);
        let handle = scheduler.submit(lasting(&call("p", "t", 10), secs(0))).await.unwrap();
        let report = handle.await;
        report.result.unwrap();
        assert_eq!(report.attempts, 4);
        let reserves = world.reserves();
        assert!(reserves.iter().all(|lease| *lease == reserves[0]), "{reserves:?}");
        assert_eq!(world.use_of_p(), (1, 10, 0), "{outcome:?}");
    }
}

/// SCH-02
#[tokio::test(start_paused = true)]
async fn sch_02_a_job_whose_unanswered_lease_has_ended_uses_a_new_one() {
    let world = World::roomy();
    world.script_reserves([Scripted::AnswerLost]);
    let scheduler = world.scheduler(4);
    let handle = scheduler.submit(lasting(&call("p", "t", 10), secs(0))).await.unwrap();
    while world.reserves().is_empty() {
        tokio::task::yield_now().await;
    }
    // The lease is ended before the job asks again.
    let lease = world.reserves()[0];
    let complete =
        ratelimiter_client::CompleteRequest::new(lease, ratelimiter_client::Actuals::none());
    world.memory.complete_now(&complete).unwrap();
    handle.await.result.unwrap();
    let reserves = world.reserves();
    assert_eq!(reserves.len(), 3);
    assert_eq!(reserves[0], reserves[1]);
    assert_ne!(reserves[1], reserves[2]);
}

/// SCH-02
#[tokio::test(start_paused = true)]
async fn sch_02_a_permanent_refusal_fails_the_job_at_once_with_its_reason() {
    let world = World::new().with_model("p", ModelLimits { tpm: 100, ..ROOMY });
    let scheduler = world.scheduler(4);
    let too_large = scheduler.submit(lasting(&call("p", "t", 101), secs(0))).await.unwrap();
    let report = too_large.await;
    assert_eq!(report.attempts, 1);
    assert!(matches!(
        report.result,
        Err(JobFailure::Refused(ReserveError::AmountExceedsCapacity { .. }))
    ));
    let unknown = scheduler.submit(lasting(&call("nobody", "t", 1), secs(0))).await.unwrap();
    assert!(matches!(
        unknown.await.result,
        Err(JobFailure::Refused(ReserveError::UnknownKey { .. }))
    ));
    assert_eq!(world.completes().len(), 0, "nothing was allowed");
}

/// SCH-02
#[tokio::test(start_paused = true)]
async fn sch_02_an_unavailable_limiter_is_asked_by_one_job_at_a_time() {
    let world = World::roomy();
    world.script_reserves([Scripted::RequestLost; 20]);
    let scheduler = world.scheduler(16);
    let mut handles = Vec::new();
    for _ in 0..1_000 {
        let job = job(&call("p", "t", 10), || async { Done::using(10, ()) });
        handles.push(scheduler.submit(job).await.unwrap());
    }
    for handle in handles {
        handle.await.result.unwrap();
    }
    let counters = scheduler.counters();
    assert_eq!(counters.succeeded, 1_000);
    assert_eq!(counters.unanswered, 20);
    assert_eq!(counters.attempts, 1_020);
    assert_eq!(world.use_of_p(), (1_000, 10_000, 0));
}
