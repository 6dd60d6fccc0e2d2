//! Fairness between models and tenants.

use std::time::Duration;

use ratelimiter_client::jobs::{Models, RunnerSettings};
use ratelimiter_client::{
    CompleteError, CompleteRequest, Decision, Limiter, Refused, ReserveError, ReserveRequest,
};

use crate::world::{ModelLimits, ROOMY, World, budgeted, call, secs};
use crate::{Jobs, is_done};

#[tokio::test(start_paused = true)]
async fn a_batch_full_of_a_saturated_model_starves_no_other() {
    let saturated = ModelLimits { rpm: 1, ..ROOMY };
    let world = World::new().with_model("full", saturated).with_model("p", ROOMY);
    let jobs = Jobs::new();
    let full = jobs.submit_all(&call("full", "acme", 10), 500).await;
    let others = jobs.submit_all(&call("p", "acme", 10), 50).await;
    let runner = jobs.run(&world, jobs.lasting(Duration::from_millis(100)));
    assert!(jobs.ended(&others).await.iter().all(is_done));
    assert!(jobs.started.elapsed() < secs(5), "{:?}", jobs.started.elapsed());
    assert!(is_done(&jobs.job(full[0]).await), "and it continues itself");
    let counters = runner.stop().await;
    assert!(counters.denied < 20, "jobs behind a closed gate do not ask: {counters:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_model_leaves_room_for_the_others() {
    let world = World::new().with_model("slow", ROOMY).with_model("p", ROOMY);
    let jobs = Jobs::new();
    let slow = jobs.submit_all(&call("slow", "acme", 10), 500).await;
    let others = jobs.submit_all(&call("p", "acme", 10), 50).await;
    let noting = jobs.clone();
    let handler = move |call: ratelimiter_client::jobs::JobCall| {
        let noting = noting.clone();
        async move {
            noting.note(&call);
            let is_slow = call.job.request().provider == "slow";
            crate::pass(if is_slow { secs(300) } else { Duration::from_millis(100) }).await;
            Ok(ratelimiter_client::Done::using(1, String::new()))
        }
    };
    let runner = jobs.run(&world, handler);
    assert!(jobs.ended(&others).await.iter().all(is_done));
    assert!(jobs.started.elapsed() < secs(10), "{:?}", jobs.started.elapsed());
    assert!(!is_done(&jobs.job(slow[499]).await));
    runner.crash().await;
}

/// A limiter that refuses to look at whatever asks for so many tokens.
#[derive(Debug, Clone)]
struct Choosy {
    world: World,
    refuses: u64,
}

impl Limiter for Choosy {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        if request.requirements.iter().any(|needed| needed.amount.get() == self.refuses) {
            return Err(Refused { reason: "a word of a newer server".to_owned() }.into());
        }
        self.world.reserve(request).await
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        self.world.complete(request).await
    }
}

/// PAUSE-02: a job that is postponed because of itself does not delay others, however often it asks.
#[tokio::test(start_paused = true)]
async fn pause_02_jobs_that_are_refused_alone_do_not_stop_their_model() {
    let (jobs, limiter) = (Jobs::new(), Choosy { world: World::roomy(), refuses: 13 });
    let refused = jobs.submit_all(&call("p", "acme", 13), 3).await;
    let runner = jobs.run(&limiter, jobs.lasting(Duration::from_millis(100)));
    // Long enough for them to have been refused more often than a job is denied before it goes first.
    crate::pass(secs(300)).await;
    let begun_at = jobs.started.elapsed();
    let others = jobs.submit_all(&call("p", "acme", 10), 2_000).await;
    assert!(jobs.ended(&others).await.iter().all(is_done));
    let took = jobs.started.elapsed() - begun_at;
    assert!(took < secs(60), "{took:?}");
    for id in refused {
        assert!(!is_done(&jobs.job(id).await));
    }
    assert_eq!(runner.stop().await.failed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_without_budget_delays_no_other_tenant() {
    let world = World::roomy().with_budget("poor", 10).with_budget("rich", 1_000_000);
    let jobs = Jobs::new();
    let poor = jobs.submit_all(&budgeted("p", "poor", 10), 500).await;
    let rich = jobs.submit_all(&budgeted("p", "rich", 10), 50).await;
    let runner = jobs.run(&world, jobs.lasting(Duration::from_millis(100)));
    assert!(jobs.ended(&rich).await.iter().all(is_done));
    assert!(jobs.started.elapsed() < secs(10), "{:?}", jobs.started.elapsed());
    assert!(is_done(&jobs.job(poor[0]).await), "within the budget");
    assert!(!is_done(&jobs.job(poor[1]).await));
    let counters = runner.stop().await;
    assert!(counters.denied < 20, "one asks for all of a tenant: {counters:?}");
}

#[tokio::test(start_paused = true)]
async fn a_large_job_is_not_starved_by_a_stream_of_small_ones() {
    let limits = ModelLimits { rpm: 1_000_000, tpm: 1_000, slots: 1_000 };
    let (jobs, world) = (Jobs::new(), World::new().with_model("p", limits));
    let first = jobs.submit_all(&call("p", "acme", 100), 10).await;
    let runner = jobs.run(&world, jobs.lasting(secs(1)));
    jobs.ended(&first).await;
    let large = jobs.submit(&call("p", "acme", 1_000)).await;
    let small = jobs.submit_all(&call("p", "acme", 100), 1_000).await;
    assert!(is_done(&jobs.ended(&[large]).await[0]));
    let left = async {
        let mut left = 0;
        for id in &small {
            left += usize::from(!is_done(&jobs.job(*id).await));
        }
        left
    };
    assert!(left.await > 800, "it did not wait for the stream to end");
    runner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn runners_of_other_models_leave_each_others_jobs_alone() {
    let world = World::new().with_model("a", ROOMY).with_model("b", ROOMY);
    let jobs = Jobs::new();
    let of_a = jobs.submit_all(&call("a", "acme", 10), 20).await;
    let of_b = jobs.submit_all(&call("b", "acme", 10), 30).await;
    let models = Models::only([("a", "m")]).unwrap();
    let settings = RunnerSettings { models, ..RunnerSettings::default() };
    let runner = jobs.run_with(&world, jobs.lasting(secs(1)), settings);
    assert!(jobs.ended(&of_a).await.iter().all(is_done));
    assert_eq!(runner.stop().await.claimed, 20);
    assert!(!is_done(&jobs.job(of_b[0]).await));
}
