//! Waiting runners make few calls, and wake up in time.

use std::time::Duration;

use coordination::{CancellationToken, Outbox, Timestamp};
use ratelimiter_client::jobs::{JobRunner, LlmJob, RunnerSettings};

use crate::crashing::Steps;
use crate::world::{ModelLimits, ROOMY, World, call, secs};
use crate::{Jobs, is_done, pass};

/// Settings without polling, so that the runner wakes up only when it has to.
fn without_polling() -> RunnerSettings {
    let hours = Duration::from_secs(12 * 3600);
    RunnerSettings { poll_interval: hours, upkeep_interval: hours, ..RunnerSettings::default() }
}

#[tokio::test(start_paused = true)]
async fn an_idle_runner_makes_few_calls() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let steps = Steps::until(usize::MAX);
    let outbox = steps.of_outbox(jobs.outbox.clone());
    let runner = JobRunner::new(outbox, world, without_polling(), jobs.lasting(secs(1)));
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(runner.unwrap().run(shutdown.clone()));
    pass(secs(3600)).await;
    let idle = steps.uses();
    assert!(idle < 10, "{idle} calls in an hour");
    let id = jobs.submit(&call("p", "acme", 10)).await;
    assert!(is_done(&jobs.ended(&[id]).await[0]));
    assert!(jobs.calls()[0].after < secs(3601), "notified at once");
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_for_later_runs_when_it_is_due() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let runner = jobs.run_with(&world, jobs.lasting(secs(1)), without_polling());
    let start: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
    let job = LlmJob::new(call("p", "acme", 10)).unwrap();
    let due = job.message().due_at(start.after(secs(3600)));
    let id = jobs.outbox.enqueue(due).await.unwrap();
    jobs.ended(&[id]).await;
    let after = jobs.calls()[0].after;
    assert!(after >= secs(3600), "{after:?}");
    assert!(after < secs(3601), "{after:?}");
    runner.stop().await;
}

/// Every call of the outbox is a database query, so the gates wake the runner only when there is something to claim.
#[tokio::test(start_paused = true)]
async fn a_gated_model_needs_few_outbox_calls() {
    let limits = ModelLimits { rpm: 1_000, tpm: 1_000_000, slots: 4 };
    let (jobs, world) = (Jobs::new(), World::new().with_model("p", limits));
    let ids = jobs.submit_all(&call("p", "acme", 10), 100).await;
    let steps = Steps::until(usize::MAX);
    let outbox = steps.of_outbox(jobs.outbox.clone());
    let settings = RunnerSettings { jitter: Duration::ZERO, ..without_polling() };
    let runner = JobRunner::new(outbox, world, settings, jobs.lasting(secs(1))).unwrap();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(runner.run(shutdown.clone()));
    assert!(jobs.ended(&ids).await.iter().all(is_done));
    let (calls, last) = (steps.uses(), jobs.calls().last().unwrap().after);
    assert!((1_200..=1_257).contains(&calls), "{calls} calls");
    assert!(last < secs(30), "and in time: {last:?}");
    shutdown.cancel();
    running.await.unwrap();
}

/// With all workers busy, an open gate must not make the runner spin: tokio's paused time passes only while it sleeps.
#[tokio::test(start_paused = true)]
async fn a_gate_that_opens_while_all_workers_are_busy_waits_for_one() {
    let saturated = ModelLimits { rpm: 1, ..ROOMY };
    let world = World::new().with_model("full", saturated).with_model("p", ROOMY);
    let jobs = Jobs::new();
    let settings = RunnerSettings { workers: 2, model_workers: 2, ..without_polling() };
    let runner = jobs.run_with(&world, jobs.lasting(secs(300)), settings);
    let full = jobs.submit_all(&call("full", "acme", 10), 2).await;
    pass(secs(1)).await;
    // One runs and one was denied for a minute.
    let other = jobs.submit(&call("p", "acme", 10)).await;
    jobs.ended(&[full[0], other, full[1]]).await;
    let begun: Vec<_> = jobs.calls().iter().map(|call| (call.id, call.after.as_secs())).collect();
    assert_eq!(begun, [(full[0], 0), (other, 1), (full[1], 300)]);
    runner.stop().await;
}
