//! The outbox and the inbox dispatcher: what becomes of a message, and of a worker's leavings.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coordination::{
    Delay, ErrorText, HandlerError, Inbox, InboxDispatcher, InboxKey, InboxMessage, InboxStatus,
    Joins, MemoryProvider, NewJoin, Outbox, OutboxDispatcher, OutboxMessage, OutboxStatus,
    TopicHandlers, WorkerMetrics, WorkerSettings,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::unreliable::Unreliable;
use crate::{eventually, inbox_message, key, outbox_message, pass, provider, topic};

type Log = Arc<Mutex<Vec<(String, Duration)>>>;

/// Runs an inbox dispatcher over one message until it is finished, and shows it.
async fn handle_one(handlers: TopicHandlers<InboxMessage>) -> (InboxMessage, WorkerMetrics) {
    let inbox = provider();
    let added = Inbox::enqueue(&inbox, inbox_message("order", "1")).await.unwrap();
    assert_eq!(added, coordination::Enqueued::Added);
    let worker = InboxDispatcher::new(inbox.clone(), handlers, WorkerSettings::default()).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    let seen = metrics.clone();
    eventually("the message is finished", || {
        let snapshot = seen.snapshot();
        snapshot.acknowledged + snapshot.failed > 0
    })
    .await;
    stop.cancel();
    running.await.unwrap();
    (inbox.get(&key("1")).await.unwrap(), metrics)
}

/// A handler that notes when it is called and answers by the number of the call.
fn noting(
    log: &Log,
    answer: fn(usize) -> Result<(), HandlerError>,
) -> impl Fn(InboxMessage) -> std::future::Ready<Result<(), HandlerError>> + Send + Sync + 'static {
    let (log, started) = (Arc::clone(log), Instant::now());
    move |message| {
        let mut log = log.lock().unwrap();
        log.push((message.key.to_string(), started.elapsed()));
        std::future::ready(answer(log.len()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_handled_message_is_acknowledged() {
    let log = Log::default();
    let handlers = TopicHandlers::new().on(topic("order"), noting(&log, |_| Ok(())));
    let (message, metrics) = handle_one(handlers).await;
    assert_eq!((message.status, message.attempts), (InboxStatus::Done, 1));
    let snapshot = metrics.snapshot();
    assert_eq!((snapshot.claimed, snapshot.acknowledged, snapshot.failed), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_transient_failure_is_tried_again_after_the_backoff() {
    let log = Log::default();
    let fails_twice = |call| if call < 3 { Err(HandlerError::retry("busy")) } else { Ok(()) };
    let handlers = TopicHandlers::new().on(topic("order"), noting(&log, fails_twice));
    let (message, metrics) = handle_one(handlers).await;
    assert_eq!((message.status, message.attempts), (InboxStatus::Done, 3));
    assert_eq!(message.last_error.as_str(), "busy");
    assert_eq!(metrics.snapshot().abandoned, 2);
    let log = log.lock().unwrap();
    assert!(log[1].1 - log[0].1 >= Duration::from_millis(250), "{log:?}");
    assert!(log[2].1 - log[1].1 >= Duration::from_millis(500), "{log:?}");
    assert!(log[2].1 < Duration::from_secs(3), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn after_five_attempts_a_message_is_failed() {
    let log = Log::default();
    let always = |_| Err(HandlerError::retry("busy"));
    let handlers = TopicHandlers::new().on(topic("order"), noting(&log, always));
    let (message, metrics) = handle_one(handlers).await;
    assert_eq!((message.status, message.attempts), (InboxStatus::Dead, 5));
    assert_eq!(message.last_error.as_str(), "gave up after 5 attempts: busy");
    let snapshot = metrics.snapshot();
    assert_eq!((snapshot.abandoned, snapshot.failed), (4, 1));
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_not_tried_again() {
    let log = Log::default();
    let never = |_| Err(HandlerError::permanent("no such order"));
    let handlers = TopicHandlers::new().on(topic("order"), noting(&log, never));
    let (message, _) = handle_one(handlers).await;
    assert_eq!((message.status, message.attempts), (InboxStatus::Dead, 1));
    assert_eq!(message.last_error.as_str(), "no such order");
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_handler_is_failed_with_that_reason() {
    let (message, _) = handle_one(TopicHandlers::new()).await;
    assert_eq!(message.status, InboxStatus::Dead);
    assert_eq!(message.last_error.as_str(), "no handler for topic order");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_is_a_transient_failure() {
    let handlers = TopicHandlers::new().on(topic("order"), |message: InboxMessage| async move {
        assert!(message.attempts > 1, "the first attempt breaks");
        Ok(())
    });
    let (message, metrics) = handle_one(handlers).await;
    assert_eq!((message.status, message.attempts), (InboxStatus::Done, 2));
    assert!(message.last_error.as_str().starts_with("handler panicked: the first attempt breaks"));
    assert_eq!(metrics.snapshot().abandoned, 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_is_timed_out() {
    let handlers = TopicHandlers::new().on(topic("order"), |message: InboxMessage| async move {
        if message.attempts == 1 {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    let (message, _) = handle_one(handlers).await;
    assert_eq!((message.status, message.attempts), (InboxStatus::Done, 2));
    assert_eq!(message.last_error.as_str(), "handler timed out after 30s");
}

/// `CRD-03`
#[tokio::test(start_paused = true)]
async fn a_message_that_takes_its_workers_down_is_failed_in_the_end() {
    let inbox = provider();
    let _added = Inbox::enqueue(&inbox, inbox_message("order", "1")).await.unwrap();
    for attempts in 1..=10 {
        let owner = coordination::OwnerToken::random();
        inbox.claim(&owner, crate::lease(1), coordination::BatchSize::ONE).await.unwrap();
        let begun = Inbox::begin(&inbox, &owner, &key("1"), crate::lease(1)).await.unwrap();
        assert_eq!(begun, Some(attempts));
        pass(Duration::from_secs(1)).await;
        assert_eq!(Inbox::reap(&inbox).await.unwrap(), 1);
    }
    let handlers = TopicHandlers::new().on(topic("order"), |_: InboxMessage| async { Ok(()) });
    let worker = InboxDispatcher::new(inbox.clone(), handlers, WorkerSettings::default()).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually("it is given up", || metrics.snapshot().failed == 1).await;
    stop.cancel();
    running.await.unwrap();
    let message = inbox.get(&key("1")).await.unwrap();
    assert_eq!(message.last_error.as_str(), "gave up: 10 attempts began and never ended");

    let keys = [key("1")];
    assert_eq!(
        Inbox::revive(&inbox, &keys, &ErrorText::new("fixed"), Delay::ZERO).await.unwrap(),
        1
    );
    let handlers = TopicHandlers::new().on(topic("order"), |_: InboxMessage| async { Ok(()) });
    let worker = InboxDispatcher::new(inbox, handlers, WorkerSettings::default()).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually("revived, it has its attempts again", || metrics.snapshot().acknowledged == 1).await;
    stop.cancel();
    running.await.unwrap();
}

/// PRIM-GEN-C: a crashed worker's items return without anyone's help.
#[tokio::test(start_paused = true)]
async fn what_a_killed_worker_had_claimed_comes_back_by_reaping() {
    let outbox = provider();
    let message = outbox_message("order", "1");
    let join = outbox.start_join(NewJoin::over([message.id]).unwrap()).await.unwrap();
    Outbox::enqueue(&outbox, message).await.unwrap();
    let hangs = TopicHandlers::new()
        .on(topic("order"), |_: OutboxMessage| std::future::pending::<Result<(), HandlerError>>());
    let killed = OutboxDispatcher::new(outbox.clone(), hangs, WorkerSettings::default()).unwrap();
    let claimed = killed.metrics();
    let running = tokio::spawn(killed.run(CancellationToken::new()));
    eventually("the message is claimed", || claimed.snapshot().claimed == 1).await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());

    let works = TopicHandlers::new().on(topic("order"), |_: OutboxMessage| async { Ok(()) });
    let other = OutboxDispatcher::new(outbox.clone(), works, WorkerSettings::default()).unwrap();
    let (metrics, stop) = (other.metrics(), CancellationToken::new());
    let running = tokio::spawn(other.run(stop.clone()));
    eventually("the other worker handles it", || metrics.snapshot().acknowledged == 1).await;
    assert_eq!(metrics.snapshot().reaped, 1);
    assert_eq!(outbox.join_progress(join).await.unwrap().completed, 1);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_workers_on_one_provider_handle_each_message_once() {
    let inbox = provider();
    for number in 0..100 {
        let message = inbox_message("order", &number.to_string());
        let _added = Inbox::enqueue(&inbox, message).await.unwrap();
    }
    let handled: Arc<Mutex<HashMap<InboxKey, usize>>> = Arc::default();
    let stop = CancellationToken::new();
    let mut workers = Vec::new();
    let mut metrics = Vec::new();
    for _ in 0..2 {
        let handled = Arc::clone(&handled);
        let handlers = TopicHandlers::new().on(topic("order"), move |message: InboxMessage| {
            let handled = Arc::clone(&handled);
            async move {
                pass(Duration::from_millis(20)).await;
                *handled.lock().unwrap().entry(message.key).or_default() += 1;
                Ok(())
            }
        });
        let worker =
            InboxDispatcher::new(inbox.clone(), handlers, WorkerSettings::default()).unwrap();
        metrics.push(worker.metrics());
        workers.push(tokio::spawn(worker.run(stop.clone())));
    }
    let acknowledged =
        || metrics.iter().map(|metrics| metrics.snapshot().acknowledged).sum::<u64>();
    eventually("all are handled", || acknowledged() == 100).await;
    stop.cancel();
    for worker in workers {
        worker.await.unwrap();
    }
    let handled = handled.lock().unwrap();
    assert_eq!(handled.len(), 100);
    assert!(handled.values().all(|count| *count == 1));
    assert!(metrics.iter().all(|metrics| metrics.snapshot().claimed > 0), "both had a share");
}

#[tokio::test(start_paused = true)]
async fn lost_answers_are_asked_for_again() {
    let memory: MemoryProvider = provider();
    let mut members = Vec::new();
    for number in 0..40 {
        let message = outbox_message("order", &number.to_string());
        members.push(Outbox::enqueue(&memory, message).await.unwrap());
    }
    let join = memory.start_join(NewJoin::over(members).unwrap()).await.unwrap();
    let outbox = Unreliable::every_third_answer_is_lost(memory.clone());
    let handlers = TopicHandlers::new().on(topic("order"), |_: OutboxMessage| async { Ok(()) });
    let worker = OutboxDispatcher::new(outbox, handlers, WorkerSettings::default()).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    // Lost claims come back by reaping, lost acknowledgements by asking again.
    pass(Duration::from_secs(600)).await;
    let progress = memory.join_progress(join).await.unwrap();
    assert_eq!((progress.completed, progress.failed), (40, 0), "{:?}", metrics.snapshot());
    assert!(metrics.snapshot().provider_errors > 0);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_dispatchers_share_one_outbox_by_topic() {
    let outbox = provider();
    let mut running = Vec::new();
    for name in ["order", "mail"] {
        let handlers = TopicHandlers::new().on(topic(name), |_: OutboxMessage| async { Ok(()) });
        let settings = WorkerSettings::default();
        let worker = OutboxDispatcher::new(outbox.clone(), handlers, settings).unwrap();
        let worker = worker.only_handled_topics();
        let (metrics, stop) = (worker.metrics(), CancellationToken::new());
        running.push((metrics, stop.clone(), tokio::spawn(worker.run(stop))));
    }
    let others = Outbox::enqueue(&outbox, outbox_message("other", "x")).await.unwrap();
    for number in 0..30 {
        let name = if number % 3 == 0 { "mail" } else { "order" };
        Outbox::enqueue(&outbox, outbox_message(name, "x")).await.unwrap();
    }
    for ((metrics, stop, worker), count) in running.into_iter().zip([20, 10]) {
        let seen = metrics.clone();
        eventually("its own are handled", || seen.snapshot().acknowledged == count).await;
        stop.cancel();
        worker.await.unwrap();
        let snapshot = metrics.snapshot();
        assert_eq!((snapshot.claimed, snapshot.failed), (count, 0));
    }
    let record = outbox.record(others).await.unwrap().unwrap();
    assert_eq!(record.status, OutboxStatus::Ready, "nobody's is left alone");
}
