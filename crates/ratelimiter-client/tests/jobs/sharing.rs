//! Several runners on one queue and one limiter, and stopping a runner.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coordination::{
    Answer, BatchSize, CancellationToken, LeaseDuration, NewOutboxMessage, Outbox, OwnerToken,
    Payload, ProviderError, Retention, Topic,
};
use ratelimiter_client::jobs::{JobRunner, JobState, Models, RunnerSettings};
use testkit::coordination::{Between, Call, Hook};

use crate::crashing::Steps;
use crate::world::{ModelLimits, Scripted, World, call, secs};
use crate::{Jobs, is_done, pass};

#[tokio::test(start_paused = true)]
async fn several_runners_run_each_job_once_and_exceed_no_limit() {
    let limits = ModelLimits { rpm: 60, tpm: 1_000_000, slots: 7 };
    let (jobs, world) = (Jobs::new(), World::new().with_model("p", limits));
    let ids = jobs.submit_all(&call("p", "acme", 10), 200).await;
    let runners: Vec<_> = (0..3).map(|_| jobs.run(&world, jobs.lasting(secs(1)))).collect();
    let ended = jobs.ended(&ids).await;
    assert!(ended.iter().all(is_done));
    assert!(ended.iter().all(|job| job.attempts == 1), "each once");
    let calls = jobs.calls();
    assert_eq!(calls.iter().map(|call| call.id).collect::<HashSet<_>>().len(), 200);
    for (earlier, later) in calls.iter().zip(&calls[60..]) {
        assert!(later.after - earlier.after >= secs(60), "60 a minute");
    }
    assert!(jobs.started.elapsed() < secs(250), "and they use it: {:?}", jobs.started.elapsed());
    let mut succeeded = 0;
    for runner in runners {
        succeeded += runner.stop().await.succeeded;
    }
    assert_eq!(succeeded, 200, "each by one of the runners");
}

#[tokio::test(start_paused = true)]
async fn runners_with_busy_workers_leave_jobs_to_the_others() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let settings = RunnerSettings { workers: 2, model_workers: 2, ..RunnerSettings::default() };
    let run = |_| jobs.run_with(&world, jobs.lasting(secs(10)), settings.clone());
    let runners: Vec<_> = (0..3).map(run).collect();
    let ids = jobs.submit_all(&call("p", "acme", 10), 60).await;
    assert!(jobs.ended(&ids).await.iter().all(is_done));
    let elapsed = jobs.started.elapsed();
    assert!(elapsed < secs(110), "60 calls of 10 s on 6 workers: {elapsed:?}");
    for runner in runners {
        assert!(runner.stop().await.succeeded > 0, "each runner has its share");
    }
}

/// CRD-07: other messages of the outbox, and jobs of other models, are purged by their own workers.
#[tokio::test(start_paused = true)]
async fn crd_07_a_runner_purges_only_jobs_of_its_own_models() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let (keep, request) = (Retention::of_all(secs(60)), call("p", "acme", 10));
    let its_model = [(request.provider.as_str(), request.model.as_str())];
    for models in [Models::all(), Models::only(its_model).unwrap()] {
        // Dispatched by another worker, before any runner is there.
        let topic = Topic::new("order.placed").unwrap();
        let other = NewOutboxMessage::new(topic, Payload::empty());
        let other = jobs.outbox.enqueue(other).await.unwrap();
        let (me, lease) = (OwnerToken::random(), LeaseDuration::new(secs(60)).unwrap());
        jobs.outbox.claim_due(&me, lease, BatchSize::ONE).await.unwrap();
        assert_eq!(jobs.outbox.mark_dispatched(&me, &[other]).await.unwrap(), 1);

        let settings = RunnerSettings { keep, models, ..RunnerSettings::default() };
        let runner = jobs.run_with(&world, jobs.lasting(secs(1)), settings);
        let id = jobs.submit(&request).await;
        assert!(is_done(&jobs.ended(&[id]).await[0]));
        pass(secs(120)).await;
        assert!(jobs.outbox.record(id).await.unwrap().is_none(), "its own is purged");
        assert!(jobs.outbox.record(other).await.unwrap().is_some(), "the other is not its own");
        assert_eq!(runner.stop().await.purged, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_call_keeps_its_claim() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let runners: Vec<_> = (0..2).map(|_| jobs.run(&world, jobs.lasting(secs(500)))).collect();
    let id = jobs.submit(&call("p", "acme", 10)).await;
    assert!(is_done(&jobs.ended(&[id]).await[0]));
    assert_eq!(jobs.calls().len(), 1);
    for runner in runners {
        assert_eq!(runner.stop().await.reaped, 0);
    }
}

/// Answers the first `count` begins late.
#[derive(Debug, Clone)]
struct LateBegins {
    count: usize,
    late: Duration,
    begins: Arc<AtomicUsize>,
}

impl LateBegins {
    fn new(count: usize, late: Duration) -> Self {
        Self { count, late, begins: Arc::default() }
    }
}

impl Hook for LateBegins {
    async fn around<T: Send + 'static, E: From<ProviderError> + Send>(
        &self,
        call: Call<'_>,
        answer: impl Answer<T, E>,
    ) -> Result<T, E> {
        let answer = answer.await;
        if matches!(call, Call::OutboxBegin { .. })
            && self.begins.fetch_add(1, Ordering::SeqCst) < self.count
        {
            pass(self.late).await;
        }
        answer
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_start_is_confirmed_after_its_claim_expired_is_not_called() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let id = jobs.submit(&call("p", "acme", 10)).await;
    let outbox = Between { inner: jobs.outbox.clone(), hook: LateBegins::new(1, secs(40)) };
    let (settings, handler) = (RunnerSettings::default(), jobs.lasting(secs(1)));
    let runner = JobRunner::new(outbox, world.clone(), settings, handler).unwrap();
    let (counters, shutdown) = (runner.counters(), CancellationToken::new());
    let running = tokio::spawn(runner.run(shutdown.clone()));
    let other = jobs.run(&world, jobs.lasting(secs(1)));
    assert!(is_done(&jobs.ended(&[id]).await[0]));
    pass(secs(60)).await;
    assert_eq!(jobs.calls().len(), 1, "whoever claimed it next");
    assert_eq!(counters.snapshot().claims_lost, 1);
    assert_eq!(world.use_of_p().2, 0, "its slot is free");
    other.stop().await;
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_start_is_confirmed_too_late_is_postponed_without_an_attempt() {
    for (late, given_back) in [(1, 0), (2, 1), (4, 2)] {
        let (jobs, world) = (Jobs::new(), World::roomy());
        let id = jobs.submit(&call("p", "acme", 10)).await;
        // The claim lasts 30 s, and is extended every 10 s.
        let hook = LateBegins::new(late, secs(25));
        let outbox = Between { inner: jobs.outbox.clone(), hook };
        let (settings, handler) = (RunnerSettings::default(), jobs.lasting(secs(1)));
        let runner = JobRunner::new(outbox, world.clone(), settings, handler).unwrap();
        let (counters, shutdown) = (runner.counters(), CancellationToken::new());
        let running = tokio::spawn(runner.run(shutdown.clone()));
        let job = jobs.ended(&[id]).await.remove(0);
        assert!(is_done(&job));
        assert_eq!((job.attempts, jobs.calls().len()), (1, 1), "{late} late begins");
        shutdown.cancel();
        running.await.unwrap();
        let counted = counters.snapshot();
        assert_eq!((counted.given_back, counted.claims_lost), (given_back, 0), "{late} late");
        assert_eq!(world.use_of_p().2, 0, "its slot is free");
    }
}

/// CRD-04
#[tokio::test(start_paused = true)]
async fn a_runner_that_is_stopped_before_a_start_is_confirmed_gives_the_job_back() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let id = jobs.submit(&call("p", "acme", 10)).await;
    let outbox = Between { inner: jobs.outbox.clone(), hook: LateBegins::new(1, secs(5)) };
    let (settings, handler) = (RunnerSettings::default(), jobs.lasting(secs(1)));
    let runner = JobRunner::new(outbox, world.clone(), settings, handler).unwrap();
    let (counters, shutdown) = (runner.counters(), CancellationToken::new());
    let running = tokio::spawn(runner.run(shutdown.clone()));
    pass(secs(2)).await;
    shutdown.cancel();
    running.await.unwrap();
    assert_eq!((jobs.calls().len(), counters.snapshot().given_back), (0, 1));
    assert_eq!(world.use_of_p(), (0, 0, 0));
    let other = jobs.run(&world, jobs.lasting(secs(1)));
    let job = jobs.ended(&[id]).await.remove(0);
    assert!(is_done(&job));
    assert_eq!(job.attempts, 1);
    other.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_lost_its_claim_drops_the_call_and_its_result() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    // It cannot reach the outbox after it has begun, so its claim expires.
    let steps = Steps::until(usize::MAX);
    let id = jobs.submit(&call("p", "acme", 10)).await;
    let cut_off = steps.of_outbox(jobs.outbox.clone());
    let handler = jobs.lasting(secs(500));
    let runner =
        JobRunner::new(cut_off, world.clone(), RunnerSettings::default(), handler).unwrap();
    let counters = runner.counters();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(runner.run(shutdown));
    pass(secs(10)).await;
    assert_eq!(jobs.calls().len(), 1, "it has begun");
    steps.crash();
    let other = jobs.run(&world, jobs.lasting(secs(1)));
    let job = jobs.ended(&[id]).await.remove(0);
    assert!(is_done(&job));
    assert_eq!(job.attempts, 2);
    assert!(jobs.started.elapsed() < secs(60), "{:?}", jobs.started.elapsed());
    other.stop().await;
    pass(secs(1_000)).await;
    assert_eq!(counters.snapshot().succeeded, 0);
    let JobState::Done(result) = jobs.job(id).await.state else { panic!("it was done") };
    assert_eq!(result.output, format!("answer to {id}"));
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_stops_gives_back_jobs_that_have_not_run() {
    let limits = ModelLimits { rpm: 1_000, tpm: 1_000_000, slots: 2 };
    let (jobs, world) = (Jobs::new(), World::new().with_model("p", limits));
    let ids = jobs.submit_all(&call("p", "acme", 10), 10).await;
    world.script_reserves([
        Scripted::Answered,
        Scripted::Answered,
        Scripted::RequestLost,
        Scripted::RequestLost,
        Scripted::RequestLost,
    ]);
    let runner = jobs.run(&world, jobs.lasting(secs(20)));
    pass(Duration::from_millis(50)).await;
    let counters = runner.stop().await;
    assert_eq!(counters.succeeded, 2, "those that ran finish");
    assert!(counters.given_back > 0, "{counters:?}");
    let stopped_at = jobs.started.elapsed();
    assert!(stopped_at < secs(25), "{stopped_at:?}");
    assert_eq!(jobs.outbox.reap().await.unwrap(), 0);
    for id in &ids[2..] {
        let job = jobs.job(*id).await;
        assert!(matches!(job.state, JobState::Waiting { .. }), "{job:?}");
        assert_eq!((job.attempts, job.retries), (0, 0));
    }
    assert_eq!(world.use_of_p().2, 0, "nothing is held");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_outlasts_the_drain_is_dropped_and_its_job_given_back() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let id = jobs.submit(&call("p", "acme", 10)).await;
    let runner = jobs.run(&world, jobs.lasting(secs(500)));
    pass(secs(5)).await;
    let counters = runner.stop().await;
    assert_eq!((counters.given_back, counters.succeeded), (1, 0));
    let elapsed = jobs.started.elapsed();
    assert!(elapsed < secs(40), "{elapsed:?}");
    let job = jobs.job(id).await;
    assert!(matches!(job.state, JobState::Waiting { .. }), "{job:?}");
    assert_eq!((job.attempts, job.retries, job.last_error), (0, 0, None), "without an attempt");
    assert_eq!(world.use_of_p().2, 0, "the hold is gone");
    let runner = jobs.run(&world, jobs.lasting(secs(1)));
    assert!(is_done(&jobs.ended(&[id]).await[0]));
    assert!(jobs.started.elapsed() < elapsed + secs(3), "without waiting for the claim to expire");
    runner.stop().await;
}
