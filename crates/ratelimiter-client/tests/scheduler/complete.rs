//! A complete follows every allow, however the job ends.

use ratelimiter_client::{Done, Job, JobFailure, JobHandle, LimitKey, SchedulerOptions};
use tokio::sync::oneshot;

use crate::world::{Scripted, World, budgeted, call, job, lasting, secs};

/// A job that signals its start, reports 7 tokens if `known`, and then runs `then`.
fn reporting<F>(known: bool, then: F) -> (Job<()>, oneshot::Receiver<()>)
where
    F: Future<Output = Result<Done<()>, std::io::Error>> + Send + 'static,
{
    let (runs, running) = oneshot::channel();
    let job = Job::new(&call("p", "t", 100), move |permit| async move {
        runs.send(()).unwrap();
        if known {
            permit.report_tokens(7);
        }
        then.await
    });
    (job.unwrap(), running)
}

/// SCH-03
#[tokio::test(start_paused = true)]
async fn sch_03_a_success_completes_with_the_actual_tokens() {
    let world = World::roomy().with_budget("t", 1_000);
    let scheduler = world.scheduler(1);
    let job = job(&budgeted("p", "t", 100), || async { Done::using(30, "sky") });
    let report = scheduler.submit(job).await.unwrap().await;
    assert_eq!(report.result.unwrap(), "sky");
    assert_eq!(world.use_of_p(), (1, 30, 0));
    assert_eq!(world.used(&LimitKey::tenant_daily_tokens("t").unwrap()), 30);
}

/// SCH-03
#[tokio::test(start_paused = true)]
async fn sch_03_a_success_of_unknown_size_keeps_its_reservation_and_frees_its_slot() {
    let world = World::roomy();
    let job = job(&call("p", "t", 100), || async { Done::unmetered(()) });
    world.scheduler(1).submit(job).await.unwrap().await.result.unwrap();
    assert_eq!(world.use_of_p(), (1, 100, 0));
}

/// SCH-03
#[tokio::test(start_paused = true)]
async fn sch_03_an_error_completes_with_what_is_known() {
    for (known, tokens) in [(true, 7), (false, 100)] {
        let world = World::roomy();
        let (job, _running) = reporting(known, async { Err(std::io::Error::other("overloaded")) });
        let report = world.scheduler(1).submit(job).await.unwrap().await;
        let Err(JobFailure::Failed(error)) = report.result else {
            panic!("the job's own error");
        };
        assert_eq!(error.to_string(), "overloaded");
        assert_eq!(world.use_of_p(), (1, tokens, 0));
    }
}

/// SCH-03
#[tokio::test(start_paused = true)]
async fn sch_03_a_panic_completes_with_what_is_known() {
    for (known, tokens) in [(true, 7), (false, 100)] {
        let world = World::roomy();
        let (job, _running) = reporting(known, async { panic!("a bug of {}", "the job") });
        let scheduler = world.scheduler(1);
        let report = scheduler.submit(job).await.unwrap().await;
        assert!(matches!(
            report.result,
            Err(JobFailure::Panicked { message }) if message == "a bug of the job"
        ));
        assert_eq!(world.use_of_p(), (1, tokens, 0));
        let next = scheduler.submit(lasting(&call("p", "t", 1), secs(0))).await.unwrap();
        next.await.result.unwrap();
        assert_eq!(scheduler.counters().panicked, 1);
    }
}

/// SCH-03
#[tokio::test(start_paused = true)]
async fn sch_03_a_closure_that_panics_is_a_job_that_panics() {
    let world = World::roomy();
    let job: Job<()> = Job::new(&call("p", "t", 100), |_permit| {
        assert!(world_is_flat(), "before the future");
        async { Err(std::io::Error::other("never")) }
    })
    .unwrap();
    let report = world.scheduler(1).submit(job).await.unwrap().await;
    assert!(matches!(
        report.result,
        Err(JobFailure::Panicked { message }) if message == "before the future"
    ));
    assert_eq!(world.use_of_p(), (1, 100, 0));
}

fn world_is_flat() -> bool {
    std::hint::black_box(false)
}

/// SCH-03
#[tokio::test(start_paused = true)]
async fn sch_03_a_cancelled_run_completes_with_what_is_known() {
    for (known, tokens) in [(true, 7), (false, 100)] {
        let world = World::roomy();
        let (job, running) = reporting(known, std::future::pending());
        let scheduler = world.scheduler(1);
        let handle: JobHandle<()> = scheduler.submit(job).await.unwrap();
        running.await.unwrap();
        handle.cancel();
        let report = handle.await;
        assert!(matches!(report.result, Err(JobFailure::Cancelled)));
        assert_eq!(world.use_of_p(), (1, tokens, 0));
    }
}

/// SCH-03
#[tokio::test(start_paused = true)]
async fn sch_03_a_job_that_is_cancelled_while_it_is_allowed_does_not_run_and_uses_nothing() {
    let world = World::roomy();
    world.script_reserves([Scripted::Delayed]);
    let scheduler = world.scheduler(1);
    let job = job(&call("p", "t", 100), || async { panic!("it must not run") });
    let handle: JobHandle<()> = scheduler.submit(job).await.unwrap();
    while world.reserves().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.use_of_p(), (1, 100, 1), "allowed, and the answer is delayed");
    handle.cancel();
    assert!(matches!(handle.await.result, Err(JobFailure::Cancelled)));
    assert_eq!(world.use_of_p(), (0, 0, 0));
    assert_eq!(world.memory.open_leases(), 0);
}

/// SCH-03
#[tokio::test(start_paused = true)]
async fn sch_03_a_job_that_is_cancelled_before_it_asks_asks_for_nothing() {
    let world = World::roomy();
    let scheduler = world.scheduler(1);
    let job = job(&call("p", "t", 100), || async { panic!("it must not run") });
    let handle: JobHandle<()> = scheduler.submit(job).await.unwrap();
    // The driver has not run yet.
    handle.cancel();
    assert!(matches!(handle.await.result, Err(JobFailure::Cancelled)));
    assert_eq!(world.reserves().len(), 0);
}

/// SCH-03
#[tokio::test(start_paused = true)]
async fn sch_03_a_job_cancelled_after_a_lost_answer_gives_its_lease_back() {
    let world = World::roomy();
    world.script_reserves([Scripted::AnswerLost]);
    let scheduler = world.scheduler(1);
    let handle = scheduler.submit(lasting(&call("p", "t", 100), secs(0))).await.unwrap();
    while world.reserves().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.use_of_p(), (1, 100, 1), "allowed, and the answer was lost");
    handle.cancel();
    assert!(matches!(handle.await.result, Err(JobFailure::Cancelled)));
    assert!(scheduler.shutdown(secs(1)).await.is_empty());
    assert_eq!(world.use_of_p(), (0, 0, 0));
}

/// SCH-03
#[tokio::test(start_paused = true)]
async fn sch_03_a_complete_without_an_answer_is_repeated_and_the_owner_does_not_wait_for_it() {
    let world = World::roomy();
    world.script_completes([Scripted::RequestLost, Scripted::AnswerLost, Scripted::RequestLost]);
    let scheduler = world.scheduler(1);
    let handle = scheduler.submit(lasting(&call("p", "t", 100), secs(0))).await.unwrap();
    handle.await.result.unwrap();
    assert_eq!(world.completes().len(), 1, "the owner knows after the first");
    assert!(scheduler.shutdown(secs(60)).await.is_empty());
    let completes = world.completes();
    assert_eq!(completes.len(), 4);
    assert!(completes.iter().all(|complete| *complete == completes[0]));
    assert_eq!(world.use_of_p(), (1, 100, 0));
}

/// SCH-03
#[tokio::test(start_paused = true)]
async fn sch_03_a_complete_that_is_never_answered_is_given_up() {
    let world = World::roomy();
    world.script_completes([Scripted::RequestLost; 1_000]);
    let options = SchedulerOptions { complete_for: secs(30), ..SchedulerOptions::with_workers(1) };
    let scheduler = world.scheduler_with(options);
    let handle = scheduler.submit(lasting(&call("p", "t", 100), secs(0))).await.unwrap();
    handle.await.result.unwrap();
    assert!(scheduler.shutdown(secs(120)).await.is_empty());
    assert_eq!(scheduler.counters().completes_given_up, 1);
    tokio::time::advance(secs(301)).await;
    assert_eq!(world.use_of_p(), (0, 0, 0), "the hold timed out");
}

/// SCH-03
#[tokio::test(start_paused = true)]
async fn sch_03_an_actual_that_is_refused_does_not_keep_the_slot() {
    let world = World::new();
    // Here tokens are a concurrency limit, whose holds take no actual.
    let kind = ratelimiter_client::LimitKind::Concurrency {
        timeout: ratelimiter_client::HoldTimeout::from_seconds(300).unwrap(),
    };
    for key in [
        LimitKey::llm_rpm("p", "m").unwrap(),
        LimitKey::llm_tpm("p", "m").unwrap(),
        LimitKey::llm_concurrency("p", "m").unwrap(),
    ] {
        let capacity = ratelimiter_client::Capacity::new(100).unwrap();
        world.memory.define_now(ratelimiter_client::Limit::new(key, kind, capacity)).unwrap();
    }
    let job = job(&call("p", "t", 100), || async { Done::using(30, ()) });
    world.scheduler(1).submit(job).await.unwrap().await.result.unwrap();
    assert_eq!(world.use_of_p(), (0, 0, 0));
}
