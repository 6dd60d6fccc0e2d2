//! Shutdown with jobs in every state.

use std::time::Duration;

use ratelimiter_client::{Actuals, CompleteRequest, Done, JobFailure, JobHandle, SubmitError};
use testkit::pass;

use crate::world::{ModelLimits, ROOMY, Scripted, World, call, id, job, lasting, secs};

/// SCH-06
#[tokio::test(start_paused = true)]
async fn sch_06_running_jobs_finish_and_the_others_are_handed_back_in_order() {
    let world = World::new().with_model("p", ModelLimits { slots: 2, ..ROOMY });
    let scheduler = world.scheduler(4);
    let mut handles = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        let job = lasting(&call("p", "t", 1), secs(10)).named(id(name));
        handles.push(scheduler.submit(job).await.unwrap());
    }
    tokio::time::advance(secs(5)).await;
    let unrun = scheduler.shutdown(secs(60)).await;
    let names: Vec<_> = unrun.iter().map(|job| job.id().unwrap().as_str()).collect();
    assert_eq!(names, ["c", "d", "e"]);
    let refused = scheduler.submit(lasting(&call("p", "t", 1), secs(0))).await.unwrap_err();
    assert!(matches!(refused, SubmitError::ShutDown { .. }));
    let refused = scheduler.try_submit(refused.into_job()).unwrap_err();
    assert!(matches!(refused, SubmitError::ShutDown { .. }));
    drop(unrun);
    let mut handles = handles.into_iter();
    for handle in handles.by_ref().take(2) {
        handle.await.result.unwrap();
    }
    for handle in handles {
        assert!(matches!(handle.await.result, Err(JobFailure::NotRun)));
    }
    assert_eq!(world.use_of_p().2, 0);
    assert!(scheduler.shutdown(secs(0)).await.is_empty(), "a second shutdown returns nothing");
}

/// SCH-06
#[tokio::test(start_paused = true)]
async fn sch_06_a_job_that_was_asking_is_handed_back_in_its_place() {
    let world = World::roomy();
    world.script_reserves([Scripted::Delayed]);
    let scheduler = world.scheduler(1);
    let mut handles = Vec::new();
    for name in ["a", "b", "c"] {
        let job = lasting(&call("p", "t", 1), secs(1)).named(id(name));
        handles.push(scheduler.submit(job).await.unwrap());
    }
    while world.reserves().is_empty() {
        tokio::task::yield_now().await;
    }
    let unrun = scheduler.shutdown(secs(30)).await;
    let names: Vec<_> = unrun.iter().map(|job| job.id().unwrap().as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
}

/// SCH-06
#[tokio::test(start_paused = true)]
async fn sch_06_a_job_that_was_handed_back_runs_elsewhere_and_its_handle_stays_valid() {
    let world = World::new().with_model("p", ModelLimits { slots: 1, ..ROOMY });
    let old = world.scheduler(4);
    let first = old.submit(lasting(&call("p", "t", 1), secs(10))).await.unwrap();
    let second =
        old.submit(job(&call("p", "t", 1), || async { Done::using(1, "ran") })).await.unwrap();
    tokio::time::advance(secs(1)).await;
    let unrun = old.shutdown(secs(60)).await;
    first.await.result.unwrap();
    let new = world.scheduler(4);
    for job in unrun {
        new.resubmit(job).await.unwrap();
    }
    let report = second.await;
    assert_eq!(report.result.unwrap(), "ran");
    assert!(report.attempts >= 2, "those at the old scheduler count too");
}

/// SCH-06
#[tokio::test(start_paused = true)]
async fn sch_06_a_job_cancelled_between_two_schedulers_stays_cancelled() {
    let world = World::new().with_model("p", ModelLimits { slots: 1, ..ROOMY });
    let old = world.scheduler(4);
    let _first = old.submit(lasting(&call("p", "t", 1), secs(10))).await.unwrap();
    let second: JobHandle<()> =
        old.submit(job(&call("p", "t", 1), || async { panic!("it must not run") })).await.unwrap();
    tokio::time::advance(secs(1)).await;
    let mut unrun = old.shutdown(secs(60)).await;
    second.cancel();
    world.scheduler(4).resubmit(unrun.pop().unwrap()).await.unwrap();
    assert!(matches!(second.await.result, Err(JobFailure::Cancelled)));
}

/// SCH-06
#[tokio::test(start_paused = true)]
async fn sch_06_after_the_deadline_what_still_runs_is_cancelled_and_completed() {
    let world = World::roomy();
    let scheduler = world.scheduler(4);
    let quick = scheduler.submit(lasting(&call("p", "t", 10), secs(5))).await.unwrap();
    let slow: JobHandle<()> =
        scheduler.submit(lasting(&call("p", "t", 10), secs(500))).await.unwrap();
    tokio::time::advance(secs(1)).await;
    let unrun = scheduler.shutdown(secs(30)).await;
    assert!(unrun.is_empty());
    quick.await.result.unwrap();
    assert!(matches!(slow.await.result, Err(JobFailure::Cancelled)));
    assert_eq!(world.use_of_p(), (2, 20, 0));
}

/// SCH-06
#[tokio::test(start_paused = true)]
async fn sch_06_a_job_that_never_gets_an_answer_is_handed_back_after_the_deadline() {
    let world = World::roomy();
    world.script_reserves([Scripted::NeverAnswered]);
    world.script_completes([Scripted::NeverAnswered]);
    let scheduler = world.scheduler(1);
    let handle = scheduler.submit(lasting(&call("p", "t", 10), secs(0))).await.unwrap();
    while world.reserves().is_empty() {
        tokio::task::yield_now().await;
    }
    let unrun = scheduler.shutdown(secs(30)).await;
    assert_eq!(unrun.len(), 1);
    assert_eq!(world.completes().len(), 1, "it may have been allowed");
    drop(unrun);
    assert!(matches!(handle.await.result, Err(JobFailure::NotRun)));
}

/// SCH-06
#[tokio::test(start_paused = true)]
async fn sch_06_a_lease_with_an_unknown_outcome_is_completed() {
    let world = World::roomy();
    world.script_reserves([Scripted::AnswerLost]);
    let scheduler = world.scheduler(1);
    let _handle = scheduler.submit(lasting(&call("p", "t", 10), secs(0))).await.unwrap();
    while world.reserves().is_empty() {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
    assert_eq!(world.use_of_p(), (1, 10, 1));
    let unrun = scheduler.shutdown(secs(30)).await;
    assert_eq!(unrun.len(), 1);
    assert_eq!(world.use_of_p(), (0, 0, 0));
}

/// SCH-06
#[tokio::test(start_paused = true)]
async fn sch_06_a_waiting_submit_is_refused() {
    let world = World::new().with_model("p", ModelLimits { slots: 1, ..ROOMY });
    let options = ratelimiter_client::SchedulerOptions {
        queue_max: 1,
        ..ratelimiter_client::SchedulerOptions::with_workers(4)
    };
    let scheduler = world.scheduler_with(options);
    let quick = || lasting(&call("p", "t", 1), secs(10));
    let _running = scheduler.submit(quick()).await.unwrap();
    let _waiting = scheduler.submit(quick()).await.unwrap();
    let (refused, unrun) = tokio::join!(scheduler.submit(quick()), scheduler.shutdown(secs(60)));
    assert!(matches!(refused, Err(SubmitError::ShutDown { .. })));
    assert_eq!(unrun.len(), 1);
}

/// SCH-06
#[tokio::test(start_paused = true)]
async fn sch_06_a_job_that_is_allowed_during_shutdown_is_handed_back_and_uses_nothing() {
    let world = World::roomy();
    world.script_reserves([Scripted::Delayed]);
    let scheduler = world.scheduler(1);
    let never = job(&call("p", "t", 10), || async { panic!("it must not run") });
    let handle: JobHandle<()> = scheduler.submit(never).await.unwrap();
    while world.reserves().is_empty() {
        tokio::task::yield_now().await;
    }
    let unrun = scheduler.shutdown(secs(30)).await;
    assert_eq!(unrun.len(), 1);
    assert_eq!(world.use_of_p(), (0, 0, 0));
    drop(unrun);
    assert!(matches!(handle.await.result, Err(JobFailure::NotRun)));
}

/// SCH-06
#[tokio::test(start_paused = true)]
async fn sch_06_a_job_whose_lease_ended_while_it_asked_is_handed_back() {
    let world = World::roomy();
    world.script_reserves([Scripted::AnswerLost, Scripted::Delayed]);
    let scheduler = world.scheduler(1);
    let _handle = scheduler.submit(lasting(&call("p", "t", 10), secs(0))).await.unwrap();
    while world.reserves().is_empty() {
        tokio::task::yield_now().await;
    }
    let ended = CompleteRequest::new(world.reserves()[0], Actuals::none());
    world.memory.complete_now(&ended).unwrap();
    while world.reserves().len() < 2 {
        pass(Duration::from_millis(10)).await;
    }
    let unrun = scheduler.shutdown(secs(30)).await;
    assert_eq!(unrun.len(), 1);
    assert_eq!(world.reserves().len(), 2, "it does not ask again");
}
