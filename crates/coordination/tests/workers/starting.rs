//! What a worker claims is started: no topic waits behind another (`CRD-01`), no message dies without
//! its handler (`CRD-02`), one that kills its process is given up (`CRD-03`), and a worker that is
//! told to stop starts nothing (`CRD-04`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coordination::{
    HandlerError, Inbox, InboxDispatcher, InboxMessage, InboxStatus, MemoryProvider, Outbox,
    OutboxDispatcher, OutboxMessage, OutboxStatus, TopicHandlers, WorkerSettings,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::unreliable::Unreliable;
use crate::{eventually, inbox_message, key, outbox_message, pass, provider, topic};

/// When each call of a handler started, from the start of the test.
#[derive(Debug, Clone)]
struct Starts {
    begun_at: Instant,
    after: Arc<Mutex<Vec<Duration>>>,
}

impl Starts {
    fn new() -> Starts {
        Starts { begun_at: Instant::now(), after: Arc::default() }
    }

    fn note(&self) {
        self.after.lock().unwrap().push(self.begun_at.elapsed());
    }

    fn count(&self) -> usize {
        self.after.lock().unwrap().len()
    }

    fn first(&self) -> Duration {
        self.after.lock().unwrap()[0]
    }
}

/// Handles messages of this topic for so long each.
fn handling<M: Send + 'static>(
    handlers: TopicHandlers<M>,
    name: &str,
    starts: &Starts,
    span: Duration,
) -> TopicHandlers<M> {
    let starts = starts.clone();
    handlers.on(topic(name), move |_: M| {
        starts.note();
        async move {
            pass(span).await;
            Ok(())
        }
    })
}

async fn receive(inbox: &MemoryProvider, topic_name: &str, count: usize) {
    for number in 0..count {
        let message = inbox_message(topic_name, &format!("{topic_name}-{number}"));
        let _added = Inbox::enqueue(inbox, message).await.unwrap();
    }
}

const SLOW: Duration = Duration::from_secs(25);
const A_SECOND: Duration = Duration::from_secs(1);

/// `CRD-01`
#[tokio::test(start_paused = true)]
async fn crd_01_a_slow_topic_of_the_inbox_holds_no_other_up() {
    let inbox = provider();
    receive(&inbox, "slow", 1000).await;
    receive(&inbox, "other", 1).await;
    let (slow, other, later) = (Starts::new(), Starts::new(), Starts::new());
    let handlers = handling(TopicHandlers::new(), "slow", &slow, SLOW);
    let handlers = handling(handlers, "other", &other, Duration::ZERO);
    let handlers = handling(handlers, "later", &later, Duration::ZERO);
    let worker = InboxDispatcher::new(inbox.clone(), handlers, WorkerSettings::default()).unwrap();
    let running = tokio::spawn(worker.run(CancellationToken::new()));
    eventually("the other topic starts", || other.count() == 1).await;
    assert!(other.first() < A_SECOND, "{:?}", other.first());

    pass(Duration::from_secs(60)).await;
    let enqueued_after = later.begun_at.elapsed();
    receive(&inbox, "later", 1).await;
    eventually("a topic that comes later starts", || later.count() == 1).await;
    assert!(later.first() - enqueued_after < A_SECOND, "{:?}", later.first());
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
}

/// `CRD-01`: as many slow topics as fill all that a worker may have in its hands.
#[tokio::test(start_paused = true)]
async fn crd_01_many_slow_topics_of_the_outbox_hold_no_other_up() {
    let outbox = provider();
    let (slow, other) = (Starts::new(), Starts::new());
    let mut handlers = handling(TopicHandlers::new(), "other", &other, Duration::ZERO);
    for number in 0..20 {
        let name = format!("slow-{number}");
        handlers = handling(handlers, &name, &slow, SLOW);
        for _ in 0..50 {
            Outbox::enqueue(&outbox, outbox_message(&name, "x")).await.unwrap();
        }
    }
    Outbox::enqueue(&outbox, outbox_message("other", "x")).await.unwrap();
    let worker = OutboxDispatcher::new(outbox, handlers, WorkerSettings::default()).unwrap();
    let running = tokio::spawn(worker.run(CancellationToken::new()));
    eventually("the other topic starts", || other.count() == 1).await;
    assert!(other.first() < A_SECOND, "{:?}", other.first());
    eventually("all that may be in hand is in use", || slow.count() >= 63).await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
}

/// `CRD-02`
#[tokio::test(start_paused = true)]
async fn crd_02_no_message_dies_without_its_handler() {
    let inbox = provider();
    receive(&inbox, "order", 64).await;
    let starts = Starts::new();
    let handlers = handling(TopicHandlers::new(), "order", &starts, Duration::from_secs(3));
    let settings = WorkerSettings { topic_concurrency_max: 1, ..Default::default() };
    let worker = InboxDispatcher::new(inbox.clone(), handlers, settings).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually("all are finished", || {
        let snapshot = metrics.snapshot();
        snapshot.acknowledged + snapshot.failed == 64
    })
    .await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!((metrics.snapshot().failed, starts.count()), (0, 64));
    for number in 0..64 {
        let message = inbox.get(&key(&format!("order-{number}"))).await.unwrap();
        assert_eq!((message.status, message.attempts), (InboxStatus::Done, 1));
    }
}

/// `CRD-03`
#[tokio::test(start_paused = true)]
async fn crd_03_an_outbox_message_that_kills_its_process_is_given_up() {
    let outbox = provider();
    let id = Outbox::enqueue(&outbox, outbox_message("poison", "x")).await.unwrap();
    let deaths = Arc::new(AtomicUsize::new(0));
    for _ in 0..20 {
        let (process, dies) = (CancellationToken::new(), Arc::clone(&deaths));
        let kill = process.clone();
        let handlers = TopicHandlers::new().on(topic("poison"), move |_: OutboxMessage| {
            dies.fetch_add(1, Ordering::SeqCst);
            kill.cancel();
            std::future::pending::<Result<(), HandlerError>>()
        });
        let settings = WorkerSettings::default();
        let worker = OutboxDispatcher::new(outbox.clone(), handlers, settings).unwrap();
        let running = tokio::spawn(worker.run(CancellationToken::new()));
        let died = tokio::time::timeout(Duration::from_secs(120), process.cancelled()).await;
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        if died.is_err() {
            break;
        }
    }
    assert_eq!(deaths.load(Ordering::SeqCst), 10);
    let record = outbox.record(id).await.unwrap().unwrap();
    assert_eq!(record.status, OutboxStatus::Dead);
    assert_eq!(record.last_error.as_str(), "gave up: 10 attempts began and never ended");
}

/// `CRD-02`: failed and lost attempts are counted apart.
#[tokio::test(start_paused = true)]
async fn crd_02_lost_attempts_leave_a_message_all_its_failures() {
    let inbox = provider();
    receive(&inbox, "order", 1).await;
    let calls = Arc::new(AtomicUsize::new(0));
    for _ in 0..9 {
        let (process, called) = (CancellationToken::new(), Arc::clone(&calls));
        let kill = process.clone();
        let handlers = TopicHandlers::new().on(topic("order"), move |_: InboxMessage| {
            called.fetch_add(1, Ordering::SeqCst);
            kill.cancel();
            std::future::pending::<Result<(), HandlerError>>()
        });
        let settings = WorkerSettings::default();
        let worker = InboxDispatcher::new(inbox.clone(), handlers, settings).unwrap();
        let running = tokio::spawn(worker.run(CancellationToken::new()));
        process.cancelled().await;
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
    }
    let called = Arc::clone(&calls);
    let handlers = TopicHandlers::new().on(topic("order"), move |_: InboxMessage| {
        called.fetch_add(1, Ordering::SeqCst);
        async { Err(HandlerError::retry("busy")) }
    });
    let worker = InboxDispatcher::new(inbox.clone(), handlers, WorkerSettings::default()).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually("it is failed", || metrics.snapshot().failed == 1).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 9 + 5);
    let message = inbox.get(&key("order-0")).await.unwrap();
    assert_eq!(message.last_error.as_str(), "gave up after 5 attempts: busy");
    assert_eq!((message.attempts, message.lost_attempts), (14, 9));
}

/// `CRD-04`
#[tokio::test(start_paused = true)]
async fn crd_04_a_worker_told_to_stop_starts_nothing_and_keeps_nothing() {
    let inbox = provider();
    receive(&inbox, "order", 20).await;
    let starts = Starts::new();
    let handlers = handling(TopicHandlers::new(), "order", &starts, Duration::from_secs(20));
    let settings = WorkerSettings { topic_concurrency_max: 2, ..Default::default() };
    let worker = InboxDispatcher::new(inbox.clone(), handlers, settings).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually("two are started", || starts.count() == 2).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(starts.count(), 2, "nothing new starts");
    assert_eq!(metrics.snapshot().acknowledged, 2, "what was running has finished");
    for number in 2..20 {
        let message = inbox.get(&key(&format!("order-{number}"))).await.unwrap();
        assert_eq!((message.status, message.attempts), (InboxStatus::Ready, 0));
    }
}

/// `CRD-04`: the stop comes while the provider is told of the beginning.
#[tokio::test(start_paused = true)]
async fn crd_04_what_is_about_to_start_when_the_worker_stops_goes_back_untried() {
    let memory = provider();
    let id = Outbox::enqueue(&memory, outbox_message("order", "x")).await.unwrap();
    let outbox = Unreliable::first_beginning_takes(memory.clone(), A_SECOND);
    let starts = Starts::new();
    let handlers = handling(TopicHandlers::new(), "order", &starts, Duration::ZERO);
    let settings = WorkerSettings::default();
    let worker = OutboxDispatcher::new(outbox.clone(), handlers, settings).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually("it is about to start", || outbox.hook.beginnings() == 1).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!((starts.count(), metrics.snapshot().given_back), (0, 1));
    let record = memory.record(id).await.unwrap().unwrap();
    assert_eq!((record.status, record.attempts), (OutboxStatus::Ready, 0));
}

/// `CRD-01`, `CRD-04`, `CRD-14`
#[tokio::test(start_paused = true)]
async fn crd_01_upkeep_holds_up_neither_work_nor_the_stop() {
    let memory = provider();
    let starts = Starts::new();
    let handlers = handling(TopicHandlers::new(), "order", &starts, Duration::ZERO);
    let outbox = Unreliable::reaping_never_ends(memory.clone());
    let worker = OutboxDispatcher::new(outbox, handlers, WorkerSettings::default()).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    for count in 1..=3 {
        pass(Duration::from_secs(10)).await;
        Outbox::enqueue(&memory, outbox_message("order", "x")).await.unwrap();
        eventually("it starts", || starts.count() == count).await;
    }
    stop.cancel();
    running.await.unwrap();
}
