//! Fairness between models and tenants.

use std::time::Duration;

use ratelimiter_client::JobReport;
use testkit::pass;

use crate::world::{ModelLimits, ROOMY, World, budgeted, call, lasting, secs};

/// SCH-01
#[tokio::test(start_paused = true)]
async fn sch_01_a_saturated_model_never_delays_another() {
    let world = World::new()
        .with_model("full", ModelLimits { tpm: 100, ..ROOMY })
        .with_model("free", ROOMY);
    let scheduler = world.scheduler(1);
    let mut saturated = Vec::new();
    for _ in 0..50 {
        let job = lasting(&call("full", "t", 60), secs(0));
        saturated.push(scheduler.submit(job).await.unwrap());
    }
    let mut free = Vec::new();
    for _ in 0..50 {
        let job = lasting(&call("free", "t", 60), secs(0));
        free.push(scheduler.submit(job).await.unwrap());
    }
    for handle in free {
        let JobReport { result, waited, .. } = handle.await;
        result.unwrap();
        assert_eq!(waited, secs(0));
    }
    let mut last = secs(0);
    for handle in saturated {
        let JobReport { result, waited, .. } = handle.await;
        result.unwrap();
        assert!(waited >= last, "in their order");
        last = waited;
    }
    assert!(last >= secs(49 * 60), "one a minute");
}

/// SCH-01
#[tokio::test(start_paused = true)]
async fn sch_01_a_tenant_out_of_budget_never_delays_another() {
    let world = World::roomy().with_budget("poor", 100).with_budget("rich", 1_000_000);
    let scheduler = world.scheduler(1);
    let mut poor = Vec::new();
    for _ in 0..3 {
        let job = lasting(&budgeted("p", "poor", 60), secs(0));
        poor.push(scheduler.submit(job).await.unwrap());
    }
    let mut rich = Vec::new();
    for _ in 0..50 {
        let job = lasting(&budgeted("p", "rich", 60), secs(0));
        rich.push(scheduler.submit(job).await.unwrap());
    }
    for handle in rich {
        let JobReport { result, waited, .. } = handle.await;
        result.unwrap();
        assert_eq!(waited, secs(0));
    }
    for (handle, days) in poor.into_iter().zip(0..) {
        let JobReport { result, waited, .. } = handle.await;
        result.unwrap();
        assert!(waited >= secs(86_400) * days, "one a day");
    }
}

/// SCH-05
#[tokio::test(start_paused = true)]
async fn sch_05_a_large_job_is_not_starved_by_a_stream_of_small_ones() {
    let world = World::new().with_model("p", ModelLimits { tpm: 100, ..ROOMY });
    let scheduler = world.scheduler(8);
    let first = lasting(&call("p", "many", 20), secs(0));
    scheduler.submit(first).await.unwrap().await.result.unwrap();
    let large = scheduler.submit(lasting(&call("p", "one", 90), secs(0))).await.unwrap();
    // For an hour there is always a small job that would fit.
    let stream = async {
        loop {
            let small = lasting(&call("p", "many", 20), Duration::from_millis(500));
            drop(scheduler.submit(small).await.unwrap());
            pass(secs(3)).await;
        }
    };
    let report = tokio::select! {
        report = large => report,
        () = stream => unreachable!("the stream has no end"),
    };
    report.result.unwrap();
    assert!(report.waited <= secs(10 * 60), "{:?}", report.waited);
    let small = scheduler.counters();
    assert!(small.succeeded > 5, "small ones ran in the meantime");
}

/// SCH-01
#[tokio::test(start_paused = true)]
async fn sch_01_a_slot_that_comes_free_is_taken_at_once() {
    let world = World::new().with_model("p", ModelLimits { slots: 4, ..ROOMY });
    let scheduler = world.scheduler(8);
    let begun = tokio::time::Instant::now();
    let mut handles = Vec::new();
    for _ in 0..40 {
        let job = lasting(&call("p", "t", 1), Duration::from_millis(250));
        handles.push(scheduler.submit(job).await.unwrap());
    }
    for handle in handles {
        handle.await.result.unwrap();
    }
    // Ten rounds of four; a timer's granularity is a millisecond.
    assert!(begun.elapsed() <= Duration::from_millis(2_520), "{:?}", begun.elapsed());
    let counters = scheduler.counters();
    assert!(counters.denied <= 4 * 40, "{counters:?}");
}
