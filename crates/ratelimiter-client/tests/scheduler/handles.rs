//! Submitting, waiting for room, and cancelling.

use ratelimiter_client::{Done, JobFailure, JobHandle, SchedulerOptions, SubmitError};
use tokio::sync::oneshot;

use crate::world::{ModelLimits, ROOMY, World, call, job, lasting, secs};

/// SCH-04
#[tokio::test(start_paused = true)]
async fn sch_04_a_handle_resolves_to_result_attempts_and_waiting_time() {
    let world = World::new().with_model("p", ModelLimits { rpm: 1, ..ROOMY });
    let scheduler = world.scheduler(2);
    let first =
        scheduler.submit(job(&call("p", "t", 5), || async { Done::using(5, 1) })).await.unwrap();
    let report = first.await;
    assert_eq!((report.result.unwrap(), report.attempts, report.waited), (1, 1, secs(0)));
    let second =
        scheduler.submit(job(&call("p", "t", 5), || async { Done::using(5, 2) })).await.unwrap();
    let report = second.await;
    assert_eq!((report.result.unwrap(), report.attempts), (2, 2));
    assert!(report.waited >= secs(60));
}

/// SCH-04
#[tokio::test(start_paused = true)]
async fn sch_04_the_queue_is_bounded() {
    let world = World::new().with_model("p", ModelLimits { rpm: 1, ..ROOMY });
    let options = SchedulerOptions { queue_max: 2, ..SchedulerOptions::with_workers(4) };
    let scheduler = world.scheduler_with(options);
    let running = scheduler.submit(lasting(&call("p", "t", 1), secs(5))).await.unwrap();
    while world.reserves().is_empty() {
        tokio::task::yield_now().await;
    }
    let quick = || lasting(&call("p", "t", 1), secs(0));
    let waiting = [scheduler.try_submit(quick()).unwrap(), scheduler.try_submit(quick()).unwrap()];
    let refused = scheduler.try_submit(quick()).unwrap_err();
    assert!(matches!(refused, SubmitError::Full { .. }));
    assert_eq!(refused.to_string().split(';').next(), Some("the queue is full"));
    assert_eq!(refused.into_job().requirements().tenant(), "t");
    // The next one is accepted when one of those that wait is allowed, a minute later.
    let begun = tokio::time::Instant::now();
    let last = scheduler.submit(quick()).await.unwrap();
    assert!(begun.elapsed() >= secs(60));
    for handle in [running].into_iter().chain(waiting).chain([last]) {
        handle.await.result.unwrap();
    }
}

/// SCH-04
#[tokio::test(start_paused = true)]
async fn sch_04_dropping_a_handle_does_not_cancel() {
    let world = World::roomy();
    let scheduler = world.scheduler(1);
    let (ran, has_run) = oneshot::channel();
    let job = job(&call("p", "t", 1), move || async move {
        ran.send(()).unwrap();
        Done::using(1, ())
    });
    drop(scheduler.submit(job).await.unwrap());
    has_run.await.unwrap();
}

/// SCH-04
#[tokio::test(start_paused = true)]
async fn sch_04_dropping_the_scheduler_lets_its_jobs_go_on() {
    let world = World::new().with_model("p", ModelLimits { slots: 1, ..ROOMY });
    let scheduler = world.scheduler(4);
    let mut handles = Vec::new();
    for _ in 0..5 {
        handles.push(scheduler.submit(lasting(&call("p", "t", 1), secs(1))).await.unwrap());
    }
    drop(scheduler);
    for handle in handles {
        handle.await.result.unwrap();
    }
}

/// SCH-04
#[tokio::test(start_paused = true)]
async fn sch_04_a_job_that_waits_is_cancelled_at_once() {
    let world = World::new().with_model("p", ModelLimits { slots: 1, ..ROOMY });
    let scheduler = world.scheduler(4);
    let running = scheduler.submit(lasting(&call("p", "t", 1), secs(100))).await.unwrap();
    let waiting: JobHandle<()> =
        scheduler.submit(lasting(&call("p", "t", 1), secs(1))).await.unwrap();
    let after_it = scheduler.submit(lasting(&call("p", "t", 1), secs(1))).await.unwrap();
    tokio::time::advance(secs(10)).await;
    let before = tokio::time::Instant::now();
    waiting.cancel();
    let report = waiting.await;
    assert!(matches!(report.result, Err(JobFailure::Cancelled)));
    assert_eq!(before.elapsed(), secs(0));
    assert!(report.attempts >= 1);
    running.await.result.unwrap();
    after_it.await.result.unwrap();
    let counters = scheduler.counters();
    assert_eq!((counters.succeeded, counters.cancelled), (2, 1));
    assert_eq!((counters.waiting, world.use_of_p().2), (0, 0));
}

/// SCH-04
#[tokio::test(start_paused = true)]
async fn sch_04_cancelling_a_job_that_has_ended_changes_nothing() {
    let world = World::roomy();
    let scheduler = world.scheduler(1);
    let mut handle = scheduler.submit(lasting(&call("p", "t", 1), secs(0))).await.unwrap();
    let report = (&mut handle).await;
    handle.cancel();
    report.result.unwrap();
    assert_eq!(scheduler.counters().cancelled, 0);
}
