//! A message is handled in a span that carries its correlation ID.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use coordination::{
    CorrelationId, Leases, NewTimer, Outbox, OutboxDispatcher, OutboxMessage, Payload, Scheduler,
    SchedulerSettings, SchedulerWorker, TopicHandlers, WorkerSettings,
};
use tokio_util::sync::CancellationToken;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::{eventually, outbox_message, provider, topic};

/// Keeps the fields of each new span as text.
#[derive(Debug, Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

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

#[tokio::test(start_paused = true)]
async fn the_span_of_a_message_carries_its_correlation_id() {
    let spans = Spans::default();
    let _here = tracing::subscriber::set_default(spans.clone());
    let outbox = provider();
    let message =
        outbox_message("order", "1").correlated_with(CorrelationId::new("request-7").unwrap());
    let id = Outbox::enqueue(&outbox, message).await.unwrap();
    let stop = CancellationToken::new();
    let done = stop.clone();
    let handlers = TopicHandlers::new().on(topic("order"), move |_: OutboxMessage| {
        done.cancel();
        async { Ok(()) }
    });
    let worker = OutboxDispatcher::new(outbox, handlers, WorkerSettings::default()).unwrap();
    worker.run(stop).await;
    let spans = spans.0.lock().unwrap();
    let expected =
        format!("handle queue=\"outbox\" id={id} topic=order correlation_id=request-7 attempt=1");
    assert!(spans.contains(&expected), "{spans:?}");
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_timer_on_its_way_carries_its_correlation_id() {
    let spans = Spans::default();
    let _here = tracing::subscriber::set_default(spans.clone());
    let memory = provider();
    let timer = NewTimer::new(topic("remind"), Payload::empty(), memory.clock().now())
        .correlated_with(CorrelationId::new("request-8").unwrap());
    let id = memory.schedule_timer(timer).await.unwrap();
    let settings = SchedulerSettings::default();
    let worker =
        SchedulerWorker::new(memory.clone(), memory.clone(), memory.clone(), settings).unwrap();
    let (metrics, stop) = (worker.metrics(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    eventually("the timer is moved", || metrics.snapshot().acknowledged == 1).await;
    stop.cancel();
    running.await.unwrap();
    let spans = spans.0.lock().unwrap();
    let expected =
        format!("move queue=\"scheduler\" id={id} topic=remind correlation_id=request-8");
    assert!(spans.contains(&expected), "{spans:?}");
}
