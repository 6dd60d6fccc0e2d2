//! Workers, well and under faults. Time is tokio's, paused: it moves when nobody has anything else
//! to do.

#![allow(clippy::unwrap_used, reason = "in a test crate a failed unwrap is a failed test")]

mod dispatchers;
mod leases;
mod limits;
mod scheduler;
mod starting;
mod unreliable;

use std::sync::Arc;
use std::time::Duration;

use coordination::{
    InboxKey, LeaseDuration, MemoryProvider, MonotonicClock, NewInboxMessage, NewOutboxMessage,
    Payload, Source, SourceMessageId, Timestamp, Topic,
};
use testkit::pass;

/// A provider by the runtime's clock.
fn provider() -> MemoryProvider {
    let start: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
    MemoryProvider::with_clock(Arc::new(MonotonicClock::starting_at(start)))
}

fn topic(text: &str) -> Topic {
    Topic::new(text).unwrap()
}

fn outbox_message(topic_name: &str, text: &str) -> NewOutboxMessage {
    NewOutboxMessage::new(topic(topic_name), Payload::new(text).unwrap())
}

fn inbox_message(topic_name: &str, message_id: &str) -> NewInboxMessage {
    NewInboxMessage::new(key(message_id), topic(topic_name), Payload::new(message_id).unwrap())
}

fn key(message_id: &str) -> InboxKey {
    let source = Source::new("shop").unwrap();
    InboxKey { source, message_id: SourceMessageId::new(message_id).unwrap() }
}

fn lease(seconds: u64) -> LeaseDuration {
    LeaseDuration::new(Duration::from_secs(seconds)).unwrap()
}

/// Waits in paused time until something holds.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    testkit::eventually(what, async || holds()).await;
}
