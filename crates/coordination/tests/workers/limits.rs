//! Bounds: how much at a time, how long to stop, how old.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coordination::{
    BatchSize, ErrorText, HandlerError, Inbox, InboxDispatcher, InboxMessage, InboxStatus,
    InvalidSettings, Outbox, OutboxDispatcher, OutboxMessage, OwnerToken, Retention, TOPICS_MAX,
    TooManyTopics, TopicHandlers, WorkerSettings,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::unreliable::Unreliable;
use crate::{eventually, inbox_message, key, lease, outbox_message, pass, provider, topic};

/// Counts how many calls run at once.
#[derive(Debug, Default)]
struct Gauge {
    started: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
}

impl Gauge {
    async fn hold(&self, span: Duration) {
        self.started.fetch_add(1, Ordering::SeqCst);
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        pass(span).await;
        self.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_is_handled_within_its_bound_and_another_is_not_held_up() {
    let outbox = provider();
    for number in 0..12 {
        Outbox::enqueue(&outbox, outbox_message("slow", &number.to_string())).await.unwrap();
    }
    Outbox::enqueue(&outbox, outbox_message("fast", "1")).await.unwrap();
    let (slow, started) = (Arc::new(Gauge::default()), Instant::now());
    let fast_after = Arc::new(std::sync::Mutex::new(None));
    let handlers = TopicHandlers::new()
        .on(topic("slow"), {
            let slow = Arc::clone(&slow);
            move |_: OutboxMessage| {
                let slow = Arc::clone(&slow);
                async move {
                    slow.hold(Duration::from_secs(1)).await;
                    Ok(())
                }
            }
        })
        .on(topic("fast"), {
            let fast_after = Arc::clone(&fast_after);
            move |_: OutboxMessage| {
                *fast_after.lock().unwrap() = Some(started.elapsed());
                async { Ok(()) }
            }
        });
    let settings = WorkerSettings { topic_concurrency_max: 3, ..Default::default() };
    let worker = OutboxDispatcher::new(outbox, handlers, settings).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually("all are handled", || metrics.snapshot().acknowledged == 13).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(slow.most.load(Ordering::SeqCst), 3);
    assert!(started.elapsed() >= Duration::from_secs(4), "12 messages, 3 at a time, 1 s each");
    assert!(fast_after.lock().unwrap().unwrap() < Duration::from_secs(1));
}

#[test]
fn a_worker_has_handlers_of_up_to_a_thousand_topics() {
    let worker = |count: usize| {
        let mut handlers = TopicHandlers::new();
        for number in 0..count {
            handlers = handlers.on(topic(&number.to_string()), |_: InboxMessage| async { Ok(()) });
        }
        InboxDispatcher::new(provider(), handlers, WorkerSettings::default()).map(|_| ())
    };
    assert_eq!(worker(TOPICS_MAX), Ok(()));
    let refused = TooManyTopics { count: TOPICS_MAX + 1 };
    assert_eq!(worker(TOPICS_MAX + 1), Err(InvalidSettings::TooManyTopics(refused)));
}

#[tokio::test(start_paused = true)]
async fn a_worker_holds_no_more_than_its_bound() {
    let inbox = provider();
    for number in 0..50 {
        let message = inbox_message("order", &number.to_string());
        let _added = Inbox::enqueue(&inbox, message).await.unwrap();
    }
    let hangs = TopicHandlers::new()
        .on(topic("order"), |_: InboxMessage| std::future::pending::<Result<(), HandlerError>>());
    let settings = WorkerSettings { in_flight_max: 7, ..Default::default() };
    let worker = InboxDispatcher::new(inbox, hangs, settings).unwrap();
    let metrics = worker.metrics();
    let running = tokio::spawn(worker.run(CancellationToken::new()));
    pass(Duration::from_secs(10)).await;
    assert_eq!(metrics.snapshot().claimed, 7);
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
}

/// `CRD-02`: an attempt whose beginning takes too long to tell is told of again, and counted once.
#[tokio::test(start_paused = true)]
async fn a_handler_is_not_started_under_a_claim_that_may_run_out() {
    let memory = provider();
    let id = Outbox::enqueue(&memory, outbox_message("order", "1")).await.unwrap();
    let outbox = Unreliable::first_beginning_takes(memory.clone(), Duration::from_secs(31));
    let gauge = Arc::new(Gauge::default());
    let seen = Arc::clone(&gauge);
    let handlers = TopicHandlers::new().on(topic("order"), move |_: OutboxMessage| {
        let gauge = Arc::clone(&gauge);
        async move {
            gauge.hold(Duration::from_secs(29)).await;
            Ok(())
        }
    });
    let worker = OutboxDispatcher::new(outbox, handlers, WorkerSettings::default()).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually("it is handled", || metrics.snapshot().acknowledged == 1).await;
    stop.cancel();
    running.await.unwrap();
    let snapshot = metrics.snapshot();
    assert_eq!((snapshot.given_back, snapshot.claimed), (0, 1), "{snapshot:?}");
    assert_eq!((snapshot.reaped, snapshot.too_late), (0, 0), "{snapshot:?}");
    assert_eq!(seen.started.load(Ordering::SeqCst), 1);
    assert_eq!(memory.record(id).await.unwrap().unwrap().attempts, 1);
}

/// `CRD-02`: one whose beginning always takes too long goes back untried, and not to come again at once.
#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_started_in_time_is_not_claimed_without_pause() {
    let memory = provider();
    let id = Outbox::enqueue(&memory, outbox_message("order", "1")).await.unwrap();
    let outbox = Unreliable::every_beginning_takes(memory.clone(), Duration::from_millis(20));
    let handlers = TopicHandlers::new()
        .on(topic("order"), |_: OutboxMessage| async { panic!("its claim would run out") });
    let handler_timeout = Duration::from_millis(59_990);
    let settings = WorkerSettings { handler_timeout, ..Default::default() };
    let worker = OutboxDispatcher::new(outbox, handlers, settings).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    pass(Duration::from_secs(30)).await;
    stop.cancel();
    running.await.unwrap();
    let snapshot = metrics.snapshot();
    assert!((10..=30).contains(&snapshot.claimed), "{snapshot:?}");
    assert_eq!(snapshot.given_back, snapshot.claimed, "{snapshot:?}");
    assert_eq!(memory.record(id).await.unwrap().unwrap().attempts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_told_to_stop_finishes_what_it_has_started() {
    let inbox = provider();
    for message_id in ["1", "2"] {
        let _added = Inbox::enqueue(&inbox, inbox_message("order", message_id)).await.unwrap();
    }
    let started = Arc::new(Gauge::default());
    let gauge = Arc::clone(&started);
    let handlers = TopicHandlers::new().on(topic("order"), move |_: InboxMessage| {
        let gauge = Arc::clone(&gauge);
        async move {
            gauge.hold(Duration::from_secs(20)).await;
            Ok(())
        }
    });
    let settings = WorkerSettings { topic_concurrency_max: 2, ..Default::default() };
    let worker = InboxDispatcher::new(inbox.clone(), handlers, settings).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually("they are started", || started.started.load(Ordering::SeqCst) == 2).await;
    let _added = Inbox::enqueue(&inbox, inbox_message("order", "later")).await.unwrap();
    stop.cancel();
    running.await.unwrap();
    assert_eq!(inbox.get(&key("1")).await.unwrap().status, InboxStatus::Done);
    assert_eq!(inbox.get(&key("2")).await.unwrap().status, InboxStatus::Done);
    assert_ne!(inbox.get(&key("later")).await.unwrap().status, InboxStatus::Done);
}

#[tokio::test(start_paused = true)]
async fn a_worker_told_to_stop_waits_no_longer_than_its_drain_timeout() {
    let inbox = provider();
    let _added = Inbox::enqueue(&inbox, inbox_message("order", "1")).await.unwrap();
    let hangs = TopicHandlers::new()
        .on(topic("order"), |_: InboxMessage| std::future::pending::<Result<(), HandlerError>>());
    let settings = WorkerSettings { drain_timeout: Duration::from_secs(3), ..Default::default() };
    let worker = InboxDispatcher::new(inbox.clone(), hangs, settings).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually("it is claimed", || metrics.snapshot().claimed == 1).await;
    pass(Duration::from_secs(1)).await;
    assert_eq!(inbox.get(&key("1")).await.unwrap().attempts, 1, "it is started");
    let stopped_at = Instant::now();
    stop.cancel();
    running.await.unwrap();
    assert!(stopped_at.elapsed() < Duration::from_secs(4));
    let message = inbox.get(&key("1")).await.unwrap();
    assert_eq!(
        (message.status, message.attempts),
        (InboxStatus::Ready, 0),
        "it comes back at once"
    );
}

#[tokio::test(start_paused = true)]
async fn the_age_of_the_oldest_ready_message_is_measured() {
    let inbox = provider();
    for number in 0..3 {
        let message = inbox_message("order", &number.to_string());
        let _added = Inbox::enqueue(&inbox, message).await.unwrap();
    }
    let hangs = TopicHandlers::new()
        .on(topic("order"), |_: InboxMessage| std::future::pending::<Result<(), HandlerError>>());
    let settings = WorkerSettings { in_flight_max: 1, ..Default::default() };
    let worker = InboxDispatcher::new(inbox, hangs, settings).unwrap();
    let metrics = worker.metrics();
    let running = tokio::spawn(worker.run(CancellationToken::new()));
    pass(Duration::from_secs(21)).await;
    let age = metrics.snapshot().oldest_ready_age.unwrap();
    assert!(Duration::from_secs(15) <= age && age <= Duration::from_secs(21), "{age:?}");
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn finished_messages_are_purged_by_age() {
    let inbox = provider();
    let _added = Inbox::enqueue(&inbox, inbox_message("order", "1")).await.unwrap();
    let handlers = TopicHandlers::new().on(topic("order"), |_: InboxMessage| async { Ok(()) });
    let keep = Retention::of_all(Duration::from_secs(60));
    let settings = WorkerSettings { keep, ..Default::default() };
    let worker = InboxDispatcher::new(inbox.clone(), handlers, settings).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    pass(Duration::from_secs(50)).await;
    assert!(inbox.get(&key("1")).await.is_ok());
    pass(Duration::from_secs(20)).await;
    assert!(inbox.get(&key("1")).await.is_err());
    assert_eq!(metrics.snapshot().purged, 1);
    stop.cancel();
    running.await.unwrap();
}

/// CRD-07: each topic as long as its worker says, dead ones apart, and nothing of others' topics.
#[tokio::test(start_paused = true)]
async fn crd_07_a_worker_purges_its_own_topics_each_after_its_time() {
    let outbox = provider();
    let (a, text) = (OwnerToken::random(), ErrorText::new("broken"));
    let mut ids = Vec::new();
    for name in ["log", "log", "order", "another worker's"] {
        ids.push(Outbox::enqueue(&outbox, outbox_message(name, "x")).await.unwrap());
    }
    outbox.claim_due(&a, lease(60), BatchSize::new(10).unwrap()).await.unwrap();
    outbox.mark_dispatched(&a, &[ids[0], ids[2], ids[3]]).await.unwrap();
    Outbox::fail(&outbox, &a, &ids[1..2], &text).await.unwrap();
    let handlers = TopicHandlers::new()
        .on(topic("log"), |_: OutboxMessage| async { Ok(()) })
        .on(topic("order"), |_: OutboxMessage| async { Ok(()) });
    let seconds = Duration::from_secs;
    let settings = WorkerSettings {
        keep: Retention::of_all(seconds(600)),
        keep_topics: [(topic("log"), Retention { done: seconds(60), dead: seconds(300) })].into(),
        ..Default::default()
    };
    let worker = OutboxDispatcher::new(outbox.clone(), handlers, settings).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    let kept = async || {
        let mut kept = Vec::new();
        for id in &ids {
            kept.push(outbox.record(*id).await.unwrap().is_some());
        }
        kept
    };
    pass(seconds(50)).await;
    assert_eq!(kept().await, [true; 4]);
    pass(seconds(20)).await;
    assert_eq!(kept().await, [false, true, true, true], "the topic's own time");
    pass(seconds(250)).await;
    assert_eq!(kept().await, [false, false, true, true], "the dead's own time");
    pass(seconds(600)).await;
    assert_eq!(kept().await, [false, false, false, true], "what another keeps stays");
    stop.cancel();
    running.await.unwrap();
}
