//! A crash at any point leads to a retry, never to a loss.

use std::collections::HashMap;
use std::time::Duration;

use coordination::{CancellationToken, MessageId};
use ratelimiter_client::jobs::{
    HandlerError, JobCall, JobHandler, JobRunner, JobState, RunnerSettings,
};
use ratelimiter_client::{Done, LlmRequest};

use crate::crashing::{Steps, crashing_handler};
use crate::world::{ModelLimits, ROOMY, Scripted, World, call, secs};
use crate::{Jobs, is_done, pass};

/// Jobs that find room, one that has to wait, and one whose first attempt fails.
fn requests() -> Vec<LlmRequest> {
    let named = |provider: &str, prompt: &str| LlmRequest {
        prompt: prompt.to_owned(),
        ..call(provider, "acme", 10)
    };
    vec![named("p", "ok"), named("p", "flaky"), named("tight", "ok"), named("tight", "ok")]
}

fn limited() -> World {
    let tight = ModelLimits { rpm: 1, ..ROOMY };
    World::new().with_model("p", ROOMY).with_model("tight", tight)
}

/// A handler whose first attempt at a `flaky` prompt fails.
fn handler(jobs: &Jobs) -> impl JobHandler + use<> {
    let jobs = jobs.clone();
    move |call: JobCall| {
        let jobs = jobs.clone();
        async move {
            jobs.note(&call);
            pass(secs(1)).await;
            match call.job.request().prompt.as_str() {
                "flaky" if call.attempt == 1 => Err(HandlerError::retry("flaky")),
                _ => Ok(Done::using(5, format!("answer to {}", call.id))),
            }
        }
    }
}

/// Runs a runner until it crashes at this step. False if all jobs ended before.
async fn run_until_crash(jobs: &Jobs, world: &World, crash_at: usize, ids: &[MessageId]) -> bool {
    let steps = Steps::until(crash_at);
    let settings = RunnerSettings::default();
    let (outbox, limiter) = (steps.of_outbox(jobs.outbox.clone()), steps.of_limiter(world.clone()));
    let handler = crashing_handler(&steps, handler(jobs));
    let runner = JobRunner::new(outbox, limiter, settings, handler).unwrap();
    tokio::select! {
        biased;
        () = steps.crashed.cancelled() => true,
        () = runner.run(CancellationToken::new()) => unreachable!("it is not stopped"),
        _ = jobs.ended(ids) => false,
    }
}

/// All jobs are done, each with its own answer, and nothing is held any more.
async fn all_is_well(jobs: &Jobs, world: &World, ids: &[MessageId], what: &str) {
    for job in jobs.ended(ids).await {
        let JobState::Done(result) = &job.state else { panic!("{what}: {job:?}") };
        assert_eq!(result.output, format!("answer to {}", job.id), "{what}");
    }
    // Holds of crashed runners time out.
    pass(secs(301)).await;
    assert_eq!(world.use_of_p().2, 0, "{what}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_step_loses_no_job() {
    let mut crash_at = 0;
    let mut repeated = 0;
    loop {
        let (jobs, world) = (Jobs::new(), limited());
        let mut ids = Vec::new();
        for request in requests() {
            ids.push(jobs.submit(&request).await);
        }
        let has_crashed = run_until_crash(&jobs, &world, crash_at, &ids).await;
        let runner = jobs.run(&world, handler(&jobs));
        let what = format!("crashed at step {crash_at}");
        all_is_well(&jobs, &world, &ids, &what).await;
        runner.stop().await;
        let mut calls: HashMap<MessageId, usize> = HashMap::new();
        for call in jobs.calls() {
            *calls.entry(call.id).or_default() += 1;
        }
        // One attempt each, one more for the flaky one, and at most one more for the crash.
        assert!(calls.values().all(|count| (1..=3).contains(count)), "{what}: {calls:?}");
        repeated += jobs.calls().len() - 5;
        if !has_crashed {
            break;
        }
        crash_at += 1;
    }
    assert!(crash_at > 60, "only {crash_at} steps");
    assert!(repeated > 0, "no crash hit a call");
}

#[tokio::test(start_paused = true)]
async fn crashes_and_lost_answers_in_any_order_lose_no_job() {
    let own = testkit::RunSeed::for_command(
        "cargo test -p ratelimiter-client --all-features --test jobs in_any_order",
    );
    for seed in (0..40).chain(own.seeds(10)) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (jobs, world) = (Jobs::new(), limited());
        let mut ids = Vec::new();
        for _ in 0..5 {
            for request in requests() {
                ids.push(jobs.submit(&request).await);
            }
        }
        let what = format!("seed {seed}");
        for _ in 0..random.usize(1..5) {
            let outcomes = [
                Scripted::Answered,
                Scripted::Answered,
                Scripted::RequestLost,
                Scripted::AnswerLost,
                Scripted::Delayed,
            ];
            world.script_reserves((0..10).map(|_| outcomes[random.usize(..outcomes.len())]));
            world.script_completes((0..10).map(|_| outcomes[random.usize(..outcomes.len())]));
            // Two at a time: one crashes, the other is told to stop at about the same time.
            let other = jobs.run(&world, handler(&jobs));
            let crash_at = random.usize(..300);
            let crash = run_until_crash(&jobs, &world, crash_at, &ids);
            let limit = Duration::from_millis(random.u64(1..120_000));
            drop(tokio::time::timeout(limit, crash).await);
            if random.bool() {
                other.stop().await;
            } else {
                other.crash().await;
            }
        }
        let runner = jobs.run(&world, handler(&jobs));
        all_is_well(&jobs, &world, &ids, &what).await;
        runner.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_crashed_runner_wait_no_longer_than_its_claims() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let ids = jobs.submit_all(&call("p", "acme", 10), 10).await;
    let crashed = jobs.run(&world, jobs.lasting(secs(3600)));
    pass(secs(100)).await;
    crashed.crash().await;
    let crashed_at = jobs.started.elapsed();
    let runner = jobs.run(&world, jobs.lasting(secs(1)));
    assert!(jobs.ended(&ids).await.iter().all(is_done));
    let waited = jobs.started.elapsed() - crashed_at;
    assert!(waited < secs(30 + 5 + 2), "a claim, a reap and the call: {waited:?}");
    runner.stop().await;
}
