//! Spans carry the correlation ID of a message.
//!
//! A separate test binary with one global subscriber: `tracing` caches for the whole process which
//! spans are enabled, so a thread-local subscriber may miss a span that another thread used first.

#![allow(clippy::unwrap_used, reason = "in a test crate a failed unwrap is a failed test")]

use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};

use coordination::{
    CorrelationId, Leases, MemoryProvider, MonotonicClock, NewOutboxMessage, NewTimer, Outbox,
    OutboxDispatcher, OutboxMessage, Payload, Scheduler, SchedulerSettings, SchedulerWorker, Topic,
    TopicHandlers, WorkerSettings,
};
use testkit::eventually;
use tokio_util::sync::CancellationToken;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The spans of this process, recorded from the first access on.
static SPANS: LazyLock<Spans> = LazyLock::new(|| {
    let spans = Spans::default();
    tracing::subscriber::set_global_default(spans.clone()).unwrap();
    spans
});

/// Keeps the fields of each new span as text.
#[derive(Debug, Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

impl Spans {
    #[track_caller]
    fn assert_has(&self, expected: &str) {
        let spans = self.0.lock().unwrap();
        assert!(spans.iter().any(|span| span == expected), "{expected} is not in {spans:?}");
    }
}

impl Subscriber for Spans {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(span.metadata().name().to_owned());
        span.record(&mut fields);
        let mut spans = self.0.lock().unwrap();
        spans.push(fields.0);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

fn topic(text: &str) -> Topic {
    Topic::new(text).unwrap()
}

fn provider() -> MemoryProvider {
    let start = "2026-03-01T12:00:00Z".parse().unwrap();
    MemoryProvider::with_clock(Arc::new(MonotonicClock::starting_at(start)))
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_message_carries_its_correlation_id() {
    let spans = &*SPANS;
    let outbox = provider();
    let message = NewOutboxMessage::new(topic("order"), Payload::new("1").unwrap())
        .correlated_with(CorrelationId::new("request-7").unwrap());
    let id = Outbox::enqueue(&outbox, message).await.unwrap();
    let stop = CancellationToken::new();
    let done = stop.clone();
    let handlers = TopicHandlers::new().on(topic("order"), move |_: OutboxMessage| {
        done.cancel();
        async { Ok(()) }
    });
    let worker = OutboxDispatcher::new(outbox, handlers, WorkerSettings::default()).unwrap();
    worker.run(stop).await;
    spans.assert_has(&format!(
        "handle queue=\"outbox\" id={id} topic=order correlation_id=request-7 attempt=1"
    ));
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_timer_on_its_way_carries_its_correlation_id() {
    let spans = &*SPANS;
    let memory = provider();
    let timer = NewTimer::new(topic("remind"), Payload::empty(), memory.clock().now())
        .correlated_with(CorrelationId::new("request-8").unwrap());
    let id = memory.schedule_timer(timer).await.unwrap();
    let settings = SchedulerSettings::default();
    let worker =
        SchedulerWorker::new(memory.clone(), memory.clone(), memory.clone(), settings).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually("the timer is moved", async || metrics.snapshot().acknowledged > 0).await;
    stop.cancel();
    running.await.unwrap();
    spans.assert_has(&format!(
        "move queue=\"scheduler\" id={id} topic=remind correlation_id=request-8"
    ));
}
