#![doc = include_str!("../README.md")]
//!
//! # What is here
//!
//! | trait | stores | worker |
//! | --- | --- | --- |
//! | [`Outbox`], [`Joins`] | messages to send | [`OutboxDispatcher`] |
//! | [`Inbox`] | received messages, each once | [`InboxDispatcher`] |
//! | [`Scheduler`] | timers, jobs and their runs | [`SchedulerWorker`], which moves them into the outbox |
//! | [`Leases`] | exclusive rights to named resources | the holder of the [`Lease`] |
//!
//! [`MemoryProvider`] implements all four for one process and is the reference implementation. The
//! crate `coordination-conformance` tests a provider scenario by scenario;
//! `docs/reference/coordination-conformance.md` lists the scenarios.
//!
//! # The life of a work item
//!
//! Messages, timers and job runs are `Ready`, then `Claimed` by an [`OwnerToken`] for a while, then
//! `Done` or `Dead`. Only the owner of a claim can acknowledge, return or fail the item; every such
//! call returns how many items it changed, so that a worker notices that it was too late. An expired
//! claim is made ready again by `reap`, which workers call regularly.
//!
//! So delivery is *at least once*, and handlers must be idempotent. Enqueueing is *once*: callers
//! choose the identities ([`MessageId`], [`TimerId`], [`RunId`], [`InboxKey`]), and a repeated call
//! with the same identity adds nothing.
//!
//! # Errors
//!
//! Topics, owners, payloads, durations, batch sizes and cron lines are checked when they are made,
//! with an error that names the broken rule, so a provider only sees valid input. What is left is
//! [`ProviderError`]: there was no answer, and the call may be repeated.
//!
//! # Writing a provider
//!
//! Implement the traits with `async fn`s; the methods return [`impl Answer`](Answer), so there is no
//! boxing and no `dyn Outbox`. Time is the provider's own: due when `due <= now`, expired when
//! `until <= now`. Then run the suite of `coordination-conformance` over it.

mod clock;
mod cron;
mod id;
mod inbox;
mod lease;
mod memory;
mod name;
mod outbox;
mod payload;
mod provider_error;
mod quantity;
mod retention;
mod scheduler;
mod settlement;
mod timestamp;
mod worker;

pub use clock::{Clock, FakeClock, MonotonicClock, Wait, WallClock};
pub use cron::{CRON_LINE_BYTES_MAX, CronField, CronSchedule, InvalidSchedule};
pub use id::{InvalidId, JoinId, MessageId, RunId, TimerId};
pub use inbox::{
    Enqueued, GetError, Inbox, InboxKey, InboxMessage, InboxStatus, NewInboxMessage, Processed,
};
pub use lease::guard::{Lease, LostLease};
pub use lease::{Fence, FencingToken, Leases, Tenure};
pub use memory::MemoryProvider;
pub use name::{
    CorrelationId, InvalidName, JobName, NAME_BYTES_MAX, OwnerToken, ResourceName, Source,
    SourceMessageId, Topic,
};
pub use outbox::join::{InvalidJoin, JOIN_MEMBERS_MAX, JoinError, JoinProgress, Joins, NewJoin};
pub use outbox::record::{OutboxRecord, OutboxStatus};
pub use outbox::topics::{TOPICS_MAX, TooManyTopics, TopicSet, Topics};
pub use outbox::{NewOutboxMessage, Outbox, OutboxMessage};
pub use payload::{
    CONTENT_HASH_BYTES_MAX, ContentHash, ERROR_TEXT_BYTES_MAX, ErrorText, InvalidPayload,
    PAYLOAD_BYTES_MAX, Payload,
};
pub use provider_error::{Answer, ProviderError, Result};
pub use quantity::{
    BATCH_SIZE_MAX, BatchSize, DELAY_MAX, Delay, InvalidQuantity, LEASE_DURATION_MAX, LeaseDuration,
};
pub use retention::Retention;
pub use scheduler::job::{
    CATCH_UP_MAX, CatchUp, CatchUpMax, InvalidCatchUp, JobDefinition, JobRun, TriggerError,
};
pub use scheduler::timer::{NewTimer, Timer};
pub use scheduler::{JobSaved, Materialised, Scheduler};
pub use settlement::Settlement;
pub use timestamp::{InvalidTimestamp, Timestamp};
pub use worker::backoff::retry_delay;
pub use worker::handler::{Handler, HandlerError, TopicHandlers};
pub use worker::inbox_dispatcher::InboxDispatcher;
pub use worker::metrics::{MetricsSnapshot, WorkerMetrics};
pub use worker::outbox_dispatcher::OutboxDispatcher;
pub use worker::scheduler_worker::{SchedulerSettings, SchedulerWorker};
pub use worker::settings::{IN_FLIGHT_MAX, InvalidSettings, WorkerSettings};

/// Fires when a lease is lost, and tells workers to stop. From `tokio-util`.
pub use tokio_util::sync::CancellationToken;
/// What the identities are made of. From `ulid`.
pub use ulid::Ulid;
