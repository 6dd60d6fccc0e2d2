//! The spans of a scheduler. In its own process, because tracing caches for all threads which spans are enabled.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, Mutex};

use ratelimiter_client::memory::MemoryOptions;
use ratelimiter_client::{Done, Job, JobId, LlmRequest, MemoryLimiter, Scheduler, TokioClock};
use simulated_provider::ProviderLimits;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the names of spans with their fields.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

impl Visit for Spans {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push(format!("{field}={value:?}"));
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("ratelimiter_client")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.0.lock().unwrap().push(span.metadata().name().to_owned());
        span.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

/// SCH-07
#[tokio::test(start_paused = true)]
async fn sch_07_an_attempt_is_a_span_that_names_its_job() {
    let spans = Spans::default();
    let _guard = tracing::subscriber::set_default(spans.clone());
    let clock = TokioClock::new();
    let limiter = MemoryLimiter::with_options(MemoryOptions::for_tests(clock));
    for limit in ProviderLimits::per_minute(1, 100, 1).limits("p", "m").unwrap() {
        limiter.define_now(limit).unwrap();
    }
    let request = LlmRequest {
        tenant: "t".to_owned(),
        provider: "p".to_owned(),
        model: "m".to_owned(),
        prompt: "Why?".to_owned(),
        ..LlmRequest::default()
    };
    let job = Job::new(&request, |_permit| async { Ok::<_, std::io::Error>(Done::using(1, ())) });
    let job = job.unwrap().named(JobId::new("nightly").unwrap());
    Scheduler::new(limiter, 1).submit(job).await.unwrap().await.result.unwrap();
    let seen = spans.0.lock().unwrap().join(" ");
    for part in
        ["attempt", "provider=\"p\"", "model=\"m\"", "tenant=\"t\"", "job_id=\"nightly\"", "lease="]
    {
        assert!(seen.contains(part), "{part} is not in {seen}");
    }
    assert!(seen.contains("message=reserve allowed"), "{seen}");
}
