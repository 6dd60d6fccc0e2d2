//! Sample values.

use coordination::{
    BatchSize, CronSchedule, ErrorText, Fence, FencingToken, InboxKey, JobDefinition, JobName,
    NewInboxMessage, NewOutboxMessage, NewTimer, OwnerToken, Payload, ResourceName, Source,
    SourceMessageId, Timestamp, Topic, TopicSet, Topics,
};

pub(crate) fn topic(text: &str) -> Topic {
    Topic::new(text).expect("a valid topic")
}

pub(crate) fn payload(text: &str) -> Payload {
    Payload::new(text).expect("a small payload")
}

pub(crate) fn owner(text: &str) -> OwnerToken {
    OwnerToken::new(text).expect("a valid owner")
}

pub(crate) fn error(text: &str) -> ErrorText {
    ErrorText::new(text)
}

pub(crate) fn batch(count: u32) -> BatchSize {
    BatchSize::new(count).expect("a valid batch")
}

pub(crate) fn outbox_message(text: &str) -> NewOutboxMessage {
    NewOutboxMessage::new(topic("order.placed"), payload(text))
}

pub(crate) fn key(source: &str, message_id: &str) -> InboxKey {
    InboxKey {
        source: Source::new(source).expect("a valid source"),
        message_id: SourceMessageId::new(message_id).expect("a valid message ID"),
    }
}

pub(crate) fn inbox_message(message_id: &str) -> NewInboxMessage {
    NewInboxMessage::new(key("shop", message_id), topic("order.placed"), payload(message_id))
}

pub(crate) fn timer(text: &str, due_at: Timestamp) -> NewTimer {
    NewTimer::new(topic("order.remind"), payload(text), due_at)
}

pub(crate) fn job_name(text: &str) -> JobName {
    JobName::new(text).expect("a valid job name")
}

/// A job that is due at every whole second.
pub(crate) fn job(name: &str) -> JobDefinition {
    job_by(name, "* * * * * *")
}

pub(crate) fn job_by(name: &str, line: &str) -> JobDefinition {
    let schedule = CronSchedule::parse(line, "UTC").expect("a valid line");
    JobDefinition::new(job_name(name), topic("report.make"), schedule)
}

pub(crate) fn resource(text: &str) -> ResourceName {
    ResourceName::new(text).expect("a valid resource")
}

pub(crate) fn fence(token: u64) -> Fence {
    Fence { resource: resource("scheduler"), token: FencingToken::new(token) }
}

pub(crate) fn only(topics: &[&str]) -> Topics {
    Topics::Only(set(topics))
}

pub(crate) fn except(topics: &[&str]) -> Topics {
    Topics::Except(set(topics))
}

fn set(topics: &[&str]) -> TopicSet {
    TopicSet::of(topics.iter().map(|text| topic(text))).expect("a few topics")
}
