//! Outcomes of jobs.

use std::time::Duration;

use coordination::{
    BatchSize, ErrorText, LeaseDuration, NewOutboxMessage, Outbox, OutboxStatus, OwnerToken,
    Payload, Topic, TopicSet, Topics,
};
use ratelimiter_client::jobs::{HandlerError, JobCall, JobResult, JobState, RunnerSettings};
use ratelimiter_client::{Batcher, Capacity, Done, JobEnd, JobView, LimitKey, LimitMode, Observer};

use crate::world::{ModelLimits, ROOMY, Scripted, World, budgeted, call, secs};
use crate::{Jobs, is_done, pass, reason};

#[tokio::test(start_paused = true)]
async fn a_job_returns_its_result_and_releases_its_hold() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let runner = jobs.run(&world, jobs.lasting(secs(1)));
    let id = jobs.submit(&call("p", "acme", 100)).await;
    let job = jobs.ended(&[id]).await.remove(0);
    let result = JobResult { output: format!("answer to {id}"), tokens: Some(100) };
    assert_eq!(job.state, JobState::Done(result));
    assert_eq!((job.attempts, job.retries, job.last_error), (1, 0, None));
    let counters = runner.stop().await;
    assert_eq!(
        (counters.claimed, counters.asked, counters.allowed, counters.succeeded),
        (1, 1, 1, 1)
    );
    assert_eq!(world.use_of_p(), (1, 100, 0));
}

#[tokio::test(start_paused = true)]
async fn unused_tokens_are_released() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let handler = jobs.answering(|_| Ok(Done::using(7, "short".to_owned())));
    let runner = jobs.run(&world, handler);
    let id = jobs.submit(&call("p", "acme", 100)).await;
    jobs.ended(&[id]).await;
    runner.stop().await;
    assert_eq!(world.use_of_p(), (1, 7, 0));
}

#[tokio::test(start_paused = true)]
async fn a_denied_job_is_put_off_by_the_hint_and_counts_no_attempt() {
    let limits = ModelLimits { rpm: 1, tpm: 1_000_000, slots: 10 };
    let (jobs, world) = (Jobs::new(), World::new().with_model("p", limits));
    let runner = jobs.run(&world, jobs.lasting(Duration::ZERO));
    let ids = jobs.submit_all(&call("p", "acme", 100), 8).await;
    let ended = jobs.ended(&ids).await;
    for job in &ended {
        assert!(is_done(job), "{job:?}");
        assert_eq!((job.attempts, job.retries, &job.last_error), (1, 0, &None));
    }
    let calls = jobs.calls();
    assert_eq!(calls.iter().map(|call| call.id).collect::<Vec<_>>(), ids, "oldest first");
    for (number, call) in (0..).zip(&calls) {
        // The hint is exact, so only jitter delays a job.
        let expected = secs(60) * number;
        assert!(call.after >= expected, "{calls:?}");
        assert!(call.after < expected + secs(3), "{calls:?}");
    }
    let counters = runner.stop().await;
    assert!(counters.denied >= 7, "{counters:?}");
    assert!(counters.denied < 80, "who is denied waits: {counters:?}");
    assert_eq!(counters.retried, 0);
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_the_same_lease_asks_again() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    world.script_reserves([Scripted::RequestLost, Scripted::AnswerLost, Scripted::RequestLost]);
    let runner = jobs.run(&world, jobs.lasting(secs(1)));
    let id = jobs.submit(&call("p", "acme", 100)).await;
    assert!(is_done(&jobs.ended(&[id]).await[0]));
    let reserves = world.reserves();
    assert_eq!(reserves.len(), 4);
    assert!(reserves.iter().all(|lease| *lease == reserves[0]), "{reserves:?}");
    assert_eq!(world.use_of_p(), (1, 100, 0), "counted once");
    assert_eq!(runner.stop().await.unanswered, 3);
}

#[tokio::test(start_paused = true)]
async fn a_complete_without_an_answer_is_repeated_and_the_result_is_there_before() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    world.script_completes([Scripted::RequestLost, Scripted::AnswerLost, Scripted::RequestLost]);
    let runner = jobs.run(&world, jobs.lasting(secs(1)));
    let id = jobs.submit(&call("p", "acme", 100)).await;
    assert!(is_done(&jobs.ended(&[id]).await[0]));
    runner.stop().await;
    assert_eq!(world.completes().len(), 4);
    assert_eq!(world.use_of_p(), (1, 100, 0));
}

/// PAUSE-02: what can never succeed fails; it is listed, and revived it runs when the capacity allows it.
#[tokio::test(start_paused = true)]
async fn pause_02_more_than_a_capacity_above_0_fails_the_job_which_can_be_revived() {
    let limits = ModelLimits { rpm: 10, tpm: 1_000, slots: 10 };
    let (jobs, world) = (Jobs::new(), World::new().with_model("p", limits));
    let runner = jobs.run(&world, jobs.lasting(secs(1)));
    let too_large = jobs.submit(&call("p", "acme", 1_001)).await;
    let fine = jobs.submit(&call("p", "acme", 1)).await;
    let ended = jobs.ended(&[too_large, fine]).await;
    assert!(reason(&ended[0]).contains("whole capacity"), "{}", reason(&ended[0]));
    assert_eq!(jobs.calls().len(), 1);

    let queue = jobs.queue();
    let max = BatchSize::new(10).unwrap();
    assert_eq!(queue.failed(None, max).await.unwrap(), ended[..1]);
    assert_eq!(queue.failed(Some(too_large), max).await.unwrap(), []);
    let world = world.with_model("p", ModelLimits { tpm: 2_000, ..limits });
    assert_eq!(queue.revive(&[too_large, fine]).await.unwrap(), 1);
    assert!(is_done(&jobs.ended(&[too_large]).await[0]));
    assert_eq!(queue.failed(None, max).await.unwrap(), []);
    let counters = runner.stop().await;
    assert_eq!((counters.refused, counters.failed, counters.succeeded), (1, 1, 2));
    drop(world);
}

/// PAUSE-02, PAUSE-01
#[tokio::test(start_paused = true)]
async fn pause_02_jobs_wait_through_a_pause_and_report_it() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    world.set_rpm("p", 0);
    let runner = jobs.run(&world, jobs.lasting(secs(1)));
    let ids = jobs.submit_all(&call("p", "acme", 100), 20).await;
    pass(secs(3600)).await;
    let first = jobs.job(ids[0]).await;
    assert!(matches!(first.state, JobState::Waiting { .. }), "{first:?}");
    assert_eq!((first.attempts, first.retries), (0, 0));
    let why = first.last_error.unwrap();
    assert!(why.contains("global:llm:p:m:rpm is paused"), "{why}");
    assert!(jobs.calls().is_empty());

    world.set_rpm("p", 1_000);
    assert!(jobs.ended(&ids).await.iter().all(is_done));
    let counters = runner.stop().await;
    assert_eq!(counters.failed, 0);
    assert!(counters.paused >= 300, "asked every ten seconds: {counters:?}");
    assert!(counters.paused < 800, "and one for all: {counters:?}");
}

/// PAUSE-02: a token that is not accepted, a proxy's error page and a client that was shut down are all refusals.
#[tokio::test(start_paused = true)]
async fn pause_02_a_job_whose_request_is_refused_is_postponed_with_the_reason() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    world.script_reserves(std::iter::repeat_n(Scripted::Refused, 50));
    let runner = jobs.run(&world, jobs.lasting(secs(1)));
    let ids = jobs.submit_all(&call("p", "acme", 100), 20).await;
    pass(secs(30)).await;
    let first = jobs.job(ids[0]).await;
    assert!(matches!(first.state, JobState::Waiting { .. }), "{first:?}");
    assert_eq!(first.last_error.as_deref(), Some("postponed: refused: no such token"));
    assert!(jobs.ended(&ids).await.iter().all(is_done));
    let counters = runner.stop().await;
    assert_eq!((counters.postponed, counters.failed, counters.refused), (50, 0, 0));
    assert_eq!(counters.succeeded, 20);
}

/// PAUSE-02: an invalid request cannot be fixed by an operator.
#[tokio::test(start_paused = true)]
async fn pause_02_a_job_that_the_server_calls_invalid_fails_and_stops_no_other() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    world.script_reserves([Scripted::Invalid]);
    let ids = jobs.submit_all(&call("p", "acme", 100), 2).await;
    let runner = jobs.run(&world, jobs.lasting(secs(1)));
    let ended = jobs.ended(&ids).await;
    assert!(reason(&ended[0]).contains("not valid: duplicate_key:k"), "{}", reason(&ended[0]));
    assert!(is_done(&ended[1]));
    let counters = runner.stop().await;
    assert_eq!((counters.refused, counters.postponed, counters.succeeded), (1, 0, 1));
}

/// PAUSE-02
#[tokio::test(start_paused = true)]
async fn pause_02_a_job_of_an_unknown_model_waits_until_it_is_defined() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let runner = jobs.run(&world, jobs.lasting(secs(1)));
    let unknown = jobs.submit(&call("unheard-of", "acme", 100)).await;
    let poor = jobs.submit(&budgeted("p", "nobody", 100)).await;
    let known = jobs.submit(&call("p", "acme", 100)).await;
    assert!(
        is_done(&jobs.ended(&[known]).await[0]),
        "a tenant's unknown key stops no other tenant"
    );
    pass(secs(60)).await;
    for (id, key) in
        [(unknown, "global:llm:unheard-of:m:rpm"), (poor, "tenant:nobody:llm:daily_tokens")]
    {
        let job = jobs.job(id).await;
        assert!(matches!(job.state, JobState::Waiting { .. }), "{job:?}");
        let why = job.last_error.unwrap();
        assert!(why.contains(key), "{why}");
    }
    let world = world.with_model("unheard-of", ROOMY).with_budget("nobody", 1_000);
    assert!(jobs.ended(&[unknown, poor]).await.iter().all(is_done));
    assert_eq!(runner.stop().await.failed, 0);
    drop(world);
}

/// PAUSE-02
#[tokio::test(start_paused = true)]
async fn pause_02_a_job_behind_a_batcher_that_was_shut_down_is_postponed() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let batcher = Batcher::new(world.clone());
    batcher.shutdown().await;
    let runner = jobs.run(&batcher, jobs.lasting(secs(1)));
    let id = jobs.submit(&call("p", "acme", 100)).await;
    pass(secs(60)).await;
    assert_eq!(runner.stop().await.failed, 0);
    let job = jobs.job(id).await;
    assert!(job.last_error.as_ref().is_some_and(|why| why.contains("shut down")), "{job:?}");
    let runner = jobs.run(&world, jobs.lasting(secs(1)));
    assert!(is_done(&jobs.ended(&[id]).await[0]));
    runner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_handler_is_called_again_after_a_backoff() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let handler = jobs.answering(|call| match call {
        1 | 2 => Err(HandlerError::retry("overloaded")),
        _ => Ok(Done::using(5, "late".to_owned())),
    });
    let runner = jobs.run(&world, handler);
    let id = jobs.submit(&call("p", "acme", 100)).await;
    let job = jobs.ended(&[id]).await.remove(0);
    assert!(is_done(&job));
    assert_eq!((job.attempts, job.retries, job.last_error.as_deref()), (3, 2, Some("overloaded")));
    let calls = jobs.calls();
    assert_eq!(calls.iter().map(|call| call.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(calls[1].after - calls[0].after >= Duration::from_millis(250), "{calls:?}");
    assert!(calls[2].after - calls[1].after >= Duration::from_millis(500), "{calls:?}");
    assert_eq!(runner.stop().await.retried, 2);
    assert_eq!(world.use_of_p().2, 0, "no hold is left");
}

#[tokio::test(start_paused = true)]
async fn a_poison_job_ends_as_failed_after_its_attempts_with_the_reason() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let runner = jobs.run(&world, jobs.answering(|_| Err(HandlerError::retry("bad prompt"))));
    let id = jobs.submit(&call("p", "acme", 100)).await;
    let job = jobs.ended(&[id]).await.remove(0);
    assert_eq!(reason(&job), "gave up after 5 failed attempts: bad prompt");
    assert_eq!(job.attempts, 5);
    let counters = runner.stop().await;
    assert_eq!((counters.retried, counters.failed, counters.refused), (4, 1, 0));
    assert_eq!(world.use_of_p().2, 0);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_fails_the_job_at_once() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let runner =
        jobs.run(&world, jobs.answering(|_| Err(HandlerError::permanent("no such model"))));
    let id = jobs.submit(&call("p", "acme", 100)).await;
    assert_eq!(reason(&jobs.ended(&[id]).await[0]), "no such model");
    assert_eq!(jobs.calls().len(), 1);
    runner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_counts_as_a_failure() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let handler = jobs.answering(|call| match call {
        1 => panic!("a bug of {}", "the handler"),
        _ => Ok(Done::using(5, "fine".to_owned())),
    });
    let runner = jobs.run(&world, handler);
    let id = jobs.submit(&call("p", "acme", 100)).await;
    let job = jobs.ended(&[id]).await.remove(0);
    assert!(is_done(&job));
    assert_eq!(job.last_error.as_deref(), Some("handler panicked: a bug of the handler"));
    assert_eq!(runner.stop().await.panicked, 1);
}

#[tokio::test(start_paused = true)]
async fn a_hang_counts_as_a_failure_and_its_claim_lasts_until_then() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let settings = RunnerSettings { attempts_max: 2, ..RunnerSettings::default() };
    let runner = jobs.run_with(&world, jobs.lasting(secs(24 * 3600)), settings);
    let id = jobs.submit(&call("p", "acme", 100)).await;
    let job = jobs.ended(&[id]).await.remove(0);
    assert_eq!(reason(&job), "gave up after 2 failed attempts: handler timed out after 600s");
    assert_eq!(jobs.calls().len(), 2);
    let counters = runner.stop().await;
    assert_eq!((counters.timed_out, counters.reaped, counters.claims_lost), (2, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_too_large_fails_the_job_and_is_not_paid_for_again() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let runner = jobs.run(&world, jobs.answering(|_| Ok(Done::using(5, "x".repeat(1 << 20)))));
    let id = jobs.submit(&call("p", "acme", 100)).await;
    let job = jobs.ended(&[id]).await.remove(0);
    assert!(reason(&job).contains("payload_too_large"), "{}", reason(&job));
    assert_eq!(jobs.calls().len(), 1);
    runner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_no_job_is_left_alone_or_fails_with_the_reason() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let enqueue = async |topic: &str, payload: &str| {
        let (topic, payload) = (Topic::new(topic).unwrap(), Payload::new(payload).unwrap());
        jobs.outbox.enqueue(NewOutboxMessage::new(topic, payload)).await.unwrap()
    };
    let mail = enqueue("mail", "hello").await;
    let broken = enqueue("llm.job:p:m", "{").await;
    let newer = enqueue("llm.job:p:m", r#"{"version":2}"#).await;
    let runner = jobs.run(&world, jobs.lasting(secs(1)));
    let id = jobs.submit(&call("p", "acme", 100)).await;
    assert!(is_done(&jobs.ended(&[id]).await[0]));
    let record = async |id| jobs.outbox.record(id).await.unwrap().unwrap();
    assert_eq!(record(mail).await.status, OutboxStatus::Ready);
    assert_eq!(record(newer).await.status, OutboxStatus::Ready, "a newer runner will know");
    assert_eq!(record(broken).await.status, OutboxStatus::Dead);
    assert!(record(broken).await.last_error.as_str().starts_with("not_a_job"));
    assert_eq!(runner.stop().await.failed, 1);

    let mails = Topics::Only(TopicSet::of([Topic::new("mail").unwrap()]).unwrap());
    let (owner, lease) = (OwnerToken::random(), LeaseDuration::new(secs(60)).unwrap());
    let max = BatchSize::new(1).unwrap();
    assert_eq!(jobs.outbox.claim_due_of(&owner, lease, max, &mails).await.unwrap().len(), 1);
    jobs.outbox.fail(&owner, &[mail], &ErrorText::new("no such address")).await.unwrap();
    assert_eq!(jobs.queue().revive(&[mail, broken]).await.unwrap(), 1);
    assert_eq!(record(mail).await.status, OutboxStatus::Dead, "not a job, so not the queue's");
    assert_eq!(record(broken).await.status, OutboxStatus::Ready);
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_every_event() {
    #[derive(Debug, Default)]
    struct Notes(std::sync::Mutex<Vec<String>>);

    impl Observer for Notes {
        fn shadow_denied(&self, _job: &JobView<'_>, keys: &[LimitKey]) {
            self.0.lock().unwrap().push(format!("{} would have denied", keys[0]));
        }

        fn allowed(&self, job: &JobView<'_>) {
            let words = format!("{} {} {} allowed", job.tenant, job.provider, job.attempts);
            self.0.lock().unwrap().push(words);
        }

        fn done(&self, _job: &JobView<'_>, end: JobEnd) {
            self.0.lock().unwrap().push(format!("{end:?}"));
        }
    }

    let (jobs, world) = (Jobs::new(), World::roomy().with_budget("acme", 1_000));
    let mut rpm = world.memory.state_now(&LimitKey::llm_rpm("p", "m").unwrap()).unwrap().limit;
    (rpm.capacity, rpm.mode) = (Capacity::new(1).unwrap(), LimitMode::Shadow);
    world.memory.define_now(rpm).unwrap();
    let notes = std::sync::Arc::new(Notes::default());
    let settings = RunnerSettings { observer: notes.clone(), ..RunnerSettings::default() };
    let handler = jobs.answering(|call| match call {
        1 => Err(HandlerError::retry("busy")),
        _ => Ok(Done::unmetered("fine".to_owned())),
    });
    let runner = jobs.run_with(&world, handler, settings);
    let id = jobs.submit(&budgeted("p", "acme", 100)).await;
    jobs.ended(&[id]).await;
    runner.stop().await;
    let notes = notes.0.lock().unwrap().clone();
    assert_eq!(
        notes,
        [
            "acme p 1 allowed",
            "Failed",
            "global:llm:p:m:rpm would have denied",
            "acme p 2 allowed",
            "Succeeded",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_crashes_its_runners_fails() {
    let (jobs, world) = (Jobs::new(), World::roomy());
    let id = jobs.submit(&call("p", "acme", 100)).await;
    let settings = RunnerSettings { lost_attempts_max: 3, ..RunnerSettings::default() };
    for round in 1..=3 {
        let noting = jobs.clone();
        let (began, begins) = tokio::sync::oneshot::channel::<()>();
        let began = std::sync::Mutex::new(Some(began));
        let handler = move |call: JobCall| {
            noting.note(&call);
            drop(began.lock().unwrap().take());
            std::future::pending::<Result<Done<String>, HandlerError>>()
        };
        let runner = jobs.run_with(&world, handler, settings.clone());
        assert!(begins.await.is_err(), "the handler began");
        runner.crash().await;
        assert_eq!(jobs.calls().len(), round);
        pass(secs(60)).await;
    }
    let runner = jobs.run_with(&world, jobs.lasting(secs(1)), settings);
    let job = jobs.ended(&[id]).await.remove(0);
    assert_eq!(reason(&job), "gave up: 3 attempts began and never ended");
    runner.stop().await;
}
