//! The memory provider: the reference implementation.
//!
//! The rules of work items are a state machine over plain data ([`work`]). Each primitive has a
//! module with its state and its trait; every call locks the state and makes one step. This file
//! has the locks, the clock and the notifications.

mod inbox;
mod jobs;
mod joins;
mod leases;
mod messages;
mod outbox;
mod scheduler;
mod work;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use self::inbox::InboxState;
use self::leases::LeaseState;
use self::outbox::OutboxState;
use self::scheduler::SchedulerState;
use crate::{Clock, Timestamp, WallClock};

/// Outbox, inbox, scheduler and leases in this process's memory.
///
/// For tests, development and single processes: clones share the state, and it ends with the
/// process (`PRIM-INMEMORY-GEN-001`). Two processes do not coordinate through it
/// (`PRIM-INMEMORY-GEN-002`).
///
/// The cost of a claim does not grow with the number of items that are done or not due. Finished
/// items are kept until they are purged, which workers do automatically.
///
/// ```
/// use std::time::Duration;
/// use coordination::{
///     BatchSize, LeaseDuration, MemoryProvider, NewOutboxMessage, Outbox, OwnerToken, Payload,
///     Topic,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = MemoryProvider::new();
/// let message = NewOutboxMessage::new(Topic::new("order.placed")?, Payload::new("42")?);
/// outbox.enqueue(message).await?;
///
/// let me = OwnerToken::random();
/// let lease = LeaseDuration::new(Duration::from_secs(30))?;
/// let claimed = outbox.claim_due(&me, lease, BatchSize::new(10)?).await?;
/// assert_eq!(claimed[0].payload.as_text(), Some("42"));
/// assert_eq!(outbox.mark_dispatched(&me, &[claimed[0].id]).await?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MemoryProvider {
    shared: Arc<ProviderState>,
}

#[derive(Debug)]
struct ProviderState {
    outbox: WatchedMutex<OutboxState>,
    inbox: WatchedMutex<InboxState>,
    scheduler: WatchedMutex<SchedulerState>,
    leases: WatchedMutex<LeaseState>,
}

/// The state of a primitive with its lock, its clock, and the workers that wait for work.
#[derive(Debug)]
struct WatchedMutex<S> {
    state: Mutex<S>,
    clock: Arc<dyn Clock>,
    work_added: Notify,
}

impl MemoryProvider {
    /// An empty provider with the wall clock.
    pub fn new() -> MemoryProvider {
        MemoryProvider::with_clock(Arc::new(WallClock))
    }

    /// An empty provider with this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> MemoryProvider {
        let shared = ProviderState {
            outbox: WatchedMutex::new(Arc::clone(&clock)),
            inbox: WatchedMutex::new(Arc::clone(&clock)),
            scheduler: WatchedMutex::new(Arc::clone(&clock)),
            leases: WatchedMutex::new(clock),
        };
        MemoryProvider { shared: Arc::new(shared) }
    }
}

impl Default for MemoryProvider {
    fn default() -> MemoryProvider {
        MemoryProvider::new()
    }
}

impl<S: Default> WatchedMutex<S> {
    fn new(clock: Arc<dyn Clock>) -> WatchedMutex<S> {
        WatchedMutex { state: Mutex::default(), clock, work_added: Notify::new() }
    }

    /// The state and the current time. Poisoning is ignored: after a panic, which is a bug, the
    /// other items are better served than refused.
    fn lock(&self) -> (MutexGuard<'_, S>, Timestamp) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state, self.clock.now())
    }

    /// Unlocks the state and, if work was added, wakes all waiting workers. All, because they wait
    /// for different topics.
    fn notify_work(&self, state: MutexGuard<'_, S>, count: usize) {
        drop(state);
        if count > 0 {
            self.work_added.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use super::*;
    use crate::{NewOutboxMessage, Outbox, Payload, Topic};

    /// Counts how often it is woken with the outbox unlocked.
    struct Worker {
        provider: MemoryProvider,
        woken: AtomicUsize,
    }

    impl Wake for Worker {
        fn wake(self: Arc<Self>) {
            assert!(self.provider.shared.outbox.state.try_lock().is_ok(), "it would have to wait");
            self.woken.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_worker_is_woken_with_the_outbox_unlocked() {
        let provider = MemoryProvider::new();
        let worker = Arc::new(Worker { provider: provider.clone(), woken: AtomicUsize::new(0) });
        let waker = Waker::from(Arc::clone(&worker));
        let mut work_added = pin!(Outbox::work_added(&provider));
        assert!(work_added.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let message = NewOutboxMessage::new(Topic::new("order").unwrap(), Payload::empty());
        Outbox::enqueue(&provider, message).await.unwrap();
        assert_eq!(worker.woken.load(Ordering::Relaxed), 1);
    }
}
