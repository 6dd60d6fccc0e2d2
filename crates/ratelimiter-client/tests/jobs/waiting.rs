//! Waiting costs nothing, and ends in time.

use std::time::Duration;

use coordination::{CancellationToken, Outbox, Timestamp};
use ratelimiter_client::jobs::{JobRunner, LlmJob, RunnerSettings};

use crate::crashing::Steps;
use crate::world::{ModelLimits, ROOMY, World, call, secs};
use crate::{Jobs, is_done, pass};

/// A runner that nobody has to tell the time.
fn unhurried() -> RunnerSettings {
    let hours = Duration::from_secs(12 * 3600);
    RunnerSettings { poll_interval: hours, upkeep_interval: hours, ..RunnerSettings::default() }
}

#[tokio::test(start_paused = true)]
async fn an_idle_runner_asks_nobody() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let steps = Steps::until(usize::MAX);
    let outbox = steps.of_outbox(jobs.outbox.clone());
    let runner = JobRunner::new(outbox, world, unhurried(), jobs.lasting(secs(1)));
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(runner.unwrap().run(shutdown.clone()));
    pass(secs(3600)).await;
    let idle = steps.uses();
    assert!(idle < 10, "{idle} calls in an hour");
    let id = jobs.submit(&call("p", "acme", 10)).await;
    assert!(is_done(&jobs.ended(&[id]).await[0]));
    assert!(jobs.calls()[0].after < secs(3601), "told at once");
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_for_later_runs_when_it_is_due() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let runner = jobs.run_with(&world, jobs.lasting(secs(1)), unhurried());
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

/// Every look at the outbox is a query to a database: the gates wake the runner when there is something to claim, and only then.
#[tokio::test(start_paused = true)]
async fn a_model_with_a_gate_is_worked_off_in_few_calls() {
    let limits = ModelLimits { rpm: 1_000, tpm: 1_000_000, slots: 4 };
    let (jobs, world) = (Jobs::new(), World::new().with_model("p", limits));
    let ids = jobs.submit_all(&call("p", "acme", 10), 100).await;
    let steps = Steps::until(usize::MAX);
    let outbox = steps.of_outbox(jobs.outbox.clone());
    let settings = RunnerSettings { jitter: Duration::ZERO, ..unhurried() };
    let runner = JobRunner::new(outbox, world, settings, jobs.lasting(secs(1))).unwrap();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(runner.run(shutdown.clone()));
    assert!(jobs.ended(&ids).await.iter().all(is_done));
    let (calls, last) = (steps.uses(), jobs.calls().last().unwrap().after);
    assert!((1_200..1_300).contains(&calls), "{calls} calls");
    assert!(last < secs(30), "and in time: {last:?}");
    shutdown.cancel();
    running.await.unwrap();
}

/// A gate whose time is over is no reason to look while nobody could take the job: tokio's paused time passes only while the
/// runner sleeps.
#[tokio::test(start_paused = true)]
async fn a_gate_that_opens_while_all_workers_are_busy_waits_for_one() {
    let saturated = ModelLimits { rpm: 1, ..ROOMY };
    let world = World::new().with_model("full", saturated).with_model("p", ROOMY);
    let jobs = Jobs::new();
    let settings = RunnerSettings { workers: 2, model_workers: 2, ..unhurried() };
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
