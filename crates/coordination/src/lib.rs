//! Outbox, inbox, scheduler and system leases: traits, a memory provider, and workers.

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
mod scheduler;
mod timestamp;
mod worker;

pub use clock::{Clock, FakeClock, MonotonicClock, SystemClock, Wait};
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
pub use outbox::{NewOutboxMessage, Outbox, OutboxMessage};
pub use payload::{
    CONTENT_HASH_BYTES_MAX, ContentHash, ERROR_TEXT_BYTES_MAX, ErrorText, InvalidPayload,
    PAYLOAD_BYTES_MAX, Payload,
};
pub use provider_error::ProviderError;
pub use quantity::{
    BATCH_SIZE_MAX, BatchSize, DELAY_MAX, Delay, InvalidQuantity, LEASE_DURATION_MAX, LeaseDuration,
};
pub use scheduler::job::{
    CATCH_UP_MAX, CatchUp, CatchUpMax, InvalidCatchUp, JobDefinition, JobRun, TriggerError,
};
pub use scheduler::timer::{NewTimer, Timer};
pub use scheduler::{JobSaved, Materialised, Scheduler};
pub use timestamp::{InvalidTimestamp, Timestamp};
pub use worker::handler::{Handler, HandlerError, TopicHandlers};
pub use worker::inbox_dispatcher::InboxDispatcher;
pub use worker::metrics::{MetricsSnapshot, WorkerMetrics};
pub use worker::outbox_dispatcher::OutboxDispatcher;
pub use worker::scheduler_worker::{SchedulerSettings, SchedulerWorker};
pub use worker::settings::{IN_FLIGHT_MAX, InvalidSettings, WorkerSettings};
