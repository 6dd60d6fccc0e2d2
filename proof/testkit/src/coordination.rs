//! A delegating wrapper around coordination providers.
//!
//! A test that wants a provider to lose an answer, to be slow or to stop writes a [`Hook`]; [`Between`] forwards every
//! call of every primitive through it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use coordination::{
    Answer, BatchSize, Clock, ContentHash, Delay, Enqueued, ErrorText, Fence, FencingToken,
    GetError, Inbox, InboxKey, InboxMessage, JobDefinition, JobName, JobRun, JobSaved, JoinError,
    JoinId, JoinProgress, Joins, LeaseDuration, Leases, Materialised, MessageId, NewInboxMessage,
    NewJoin, NewOutboxMessage, NewTimer, Outbox, OutboxMessage, OutboxRecord, OwnerToken,
    Processed, ProviderError, ResourceName, Result, Retention, RunId, Scheduler, Settlement,
    Tenure, Timer, TimerId, Timestamp, Topics, TriggerError,
};

/// A provider whose calls all go through a hook.
#[derive(Debug, Clone)]
pub struct Between<P, H> {
    /// The provider.
    pub inner: P,
    /// What happens around its calls.
    pub hook: H,
}

/// What happens around the calls to a provider.
pub trait Hook: Clone + Send + Sync + 'static {
    /// Makes the call by awaiting `answer`; before and after it can wait, fail or look at the answer. A call whose
    /// `answer` is not awaited is not made.
    fn around<T: Send + 'static, E: From<ProviderError> + Send>(
        &self,
        call: Call<'_>,
        answer: impl Answer<T, E>,
    ) -> impl Answer<T, E>;
}

/// A call to a provider, with the arguments that hooks look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are the traits' methods, the fields their arguments")]
pub enum Call<'a> {
    OutboxEnqueue {
        message: &'a NewOutboxMessage,
    },
    OutboxClaim {
        owner: &'a OwnerToken,
        lease: LeaseDuration,
    },
    OutboxBegin {
        owner: &'a OwnerToken,
        id: MessageId,
        lease: LeaseDuration,
    },
    OutboxExtend {
        owner: &'a OwnerToken,
        ids: &'a [MessageId],
        lease: LeaseDuration,
    },
    OutboxSettle {
        owner: &'a OwnerToken,
        ids: &'a [MessageId],
        settlement: &'a Settlement,
    },
    OutboxReap,
    InboxEnqueue {
        message: &'a NewInboxMessage,
    },
    InboxClaim {
        owner: &'a OwnerToken,
        lease: LeaseDuration,
    },
    InboxBegin {
        owner: &'a OwnerToken,
        key: &'a InboxKey,
        lease: LeaseDuration,
    },
    InboxSettle {
        owner: &'a OwnerToken,
        keys: &'a [InboxKey],
        settlement: &'a Settlement,
    },
    InboxReap,
    ScheduleTimer {
        timer: &'a NewTimer,
    },
    ClaimTimers {
        owner: &'a OwnerToken,
        lease: LeaseDuration,
    },
    AckTimers {
        owner: &'a OwnerToken,
        ids: &'a [TimerId],
    },
    AbandonTimers {
        owner: &'a OwnerToken,
        ids: &'a [TimerId],
        delay: Delay,
    },
    ReapTimers,
    CreateJobRuns {
        fence: &'a Fence,
    },
    ClaimJobRuns {
        owner: &'a OwnerToken,
        lease: LeaseDuration,
    },
    AckJobRuns {
        owner: &'a OwnerToken,
        ids: &'a [RunId],
    },
    AbandonJobRuns {
        owner: &'a OwnerToken,
        ids: &'a [RunId],
        delay: Delay,
    },
    ReapJobRuns,
    Acquire {
        resource: &'a ResourceName,
        duration: LeaseDuration,
        owner: &'a OwnerToken,
    },
    Renew {
        tenure: &'a Tenure,
        duration: LeaseDuration,
    },
    Release {
        tenure: &'a Tenure,
    },
    /// Any other method.
    Other,
}

/// Implements a primitive: each line is a method, and the call that the hook is shown. What is in braces goes past the hook.
macro_rules! forward {
    ($primitive:ident { $($past_hook:tt)* }
     $($method:ident($($argument:ident: $type:ty),*) -> $answer:ty => $call:expr;)*) => {
        impl<P: $primitive, H: Hook> $primitive for Between<P, H> {
            $($past_hook)*

            $(
                async fn $method(&self, $($argument: $type),*) -> $answer {
                    self.hook.around($call, $primitive::$method(&self.inner, $($argument),*)).await
                }
            )*
        }
    };
}

forward! {
    Outbox {
        fn work_added(&self) -> impl Future<Output = ()> + Send {
            Outbox::work_added(&self.inner)
        }
    }
    enqueue(message: NewOutboxMessage) -> Result<MessageId>
        => Call::OutboxEnqueue { message: &message.clone() };
    claim_due_of(owner: &OwnerToken, lease: LeaseDuration, max: BatchSize, topics: &Topics) -> Result<Vec<OutboxMessage>>
        => Call::OutboxClaim { owner, lease };
    begin(owner: &OwnerToken, id: MessageId, lease: LeaseDuration) -> Result<Option<u32>>
        => Call::OutboxBegin { owner, id, lease };
    extend(owner: &OwnerToken, ids: &[MessageId], lease: LeaseDuration) -> Result<usize>
        => Call::OutboxExtend { owner, ids, lease };
    settle(owner: &OwnerToken, ids: &[MessageId], settlement: &Settlement) -> Result<usize>
        => Call::OutboxSettle { owner, ids, settlement };
    dead(after: Option<MessageId>, max: BatchSize) -> Result<Vec<OutboxRecord>> => Call::Other;
    revive(ids: &[MessageId], reason: &ErrorText, delay: Delay) -> Result<usize> => Call::Other;
    record(id: MessageId) -> Result<Option<OutboxRecord>> => Call::Other;
    reap() -> Result<usize> => Call::OutboxReap;
    purge(topics: &Topics, keep: Retention) -> Result<usize> => Call::Other;
    oldest_ready_age() -> Result<Option<Duration>> => Call::Other;
    next_due_after(topics: &Topics) -> Result<Option<Duration>> => Call::Other;
}

forward! {
    Joins {}
    start_join(join: NewJoin) -> Result<JoinId> => Call::Other;
    join_progress(id: JoinId) -> Result<JoinProgress, JoinError> => Call::Other;
}

forward! {
    Inbox {
        fn work_added(&self) -> impl Future<Output = ()> + Send {
            Inbox::work_added(&self.inner)
        }
    }
    already_processed(key: &InboxKey, hash: Option<&ContentHash>) -> Result<Processed> => Call::Other;
    enqueue(message: NewInboxMessage) -> Result<Enqueued>
        => Call::InboxEnqueue { message: &message.clone() };
    claim_of(owner: &OwnerToken, lease: LeaseDuration, max: BatchSize, topics: &Topics) -> Result<Vec<InboxMessage>>
        => Call::InboxClaim { owner, lease };
    begin(owner: &OwnerToken, key: &InboxKey, lease: LeaseDuration) -> Result<Option<u32>>
        => Call::InboxBegin { owner, key, lease };
    settle(owner: &OwnerToken, keys: &[InboxKey], settlement: &Settlement) -> Result<usize>
        => Call::InboxSettle { owner, keys, settlement };
    get(key: &InboxKey) -> Result<InboxMessage, GetError> => Call::Other;
    revive(keys: &[InboxKey], reason: &ErrorText, delay: Delay) -> Result<usize> => Call::Other;
    reap() -> Result<usize> => Call::InboxReap;
    purge(topics: &Topics, keep: Retention) -> Result<usize> => Call::Other;
    oldest_ready_age() -> Result<Option<Duration>> => Call::Other;
}

forward! {
    Scheduler {
        fn work_added(&self) -> impl Future<Output = ()> + Send {
            Scheduler::work_added(&self.inner)
        }
    }
    schedule_timer(timer: NewTimer) -> Result<TimerId>
        => Call::ScheduleTimer { timer: &timer.clone() };
    cancel_timer(id: TimerId) -> Result<usize> => Call::Other;
    claim_timers(owner: &OwnerToken, lease: LeaseDuration, max: BatchSize) -> Result<Vec<Timer>>
        => Call::ClaimTimers { owner, lease };
    ack_timers(owner: &OwnerToken, ids: &[TimerId]) -> Result<usize> => Call::AckTimers { owner, ids };
    abandon_timers(owner: &OwnerToken, ids: &[TimerId], delay: Delay) -> Result<usize>
        => Call::AbandonTimers { owner, ids, delay };
    reap_timers() -> Result<usize> => Call::ReapTimers;
    create_or_update_job(job: JobDefinition) -> Result<JobSaved> => Call::Other;
    delete_job(name: &JobName) -> Result<usize> => Call::Other;
    trigger_job(name: &JobName, run: RunId) -> Result<RunId, TriggerError> => Call::Other;
    create_job_runs_from_due_jobs(fence: &Fence) -> Result<Materialised> => Call::CreateJobRuns { fence };
    claim_job_runs(owner: &OwnerToken, lease: LeaseDuration, max: BatchSize) -> Result<Vec<JobRun>>
        => Call::ClaimJobRuns { owner, lease };
    ack_job_runs(owner: &OwnerToken, ids: &[RunId]) -> Result<usize> => Call::AckJobRuns { owner, ids };
    abandon_job_runs(owner: &OwnerToken, ids: &[RunId], delay: Delay) -> Result<usize>
        => Call::AbandonJobRuns { owner, ids, delay };
    reap_job_runs() -> Result<usize> => Call::ReapJobRuns;
    next_event_time() -> Result<Option<Timestamp>> => Call::Other;
    purge(older_than: Duration) -> Result<usize> => Call::Other;
    oldest_ready_age() -> Result<Option<Duration>> => Call::Other;
}

forward! {
    Leases {
        fn clock(&self) -> Arc<dyn Clock> {
            self.inner.clock()
        }
    }
    try_acquire(resource: &ResourceName, duration: LeaseDuration, owner: &OwnerToken) -> Result<Option<FencingToken>>
        => Call::Acquire { resource, duration, owner };
    try_renew(tenure: &Tenure, duration: LeaseDuration) -> Result<Option<FencingToken>>
        => Call::Renew { tenure, duration };
    release(tenure: &Tenure) -> Result<usize> => Call::Release { tenure };
}
