//! Workers of this process that wait for work.

use std::future::Future;

use tokio::sync::Notify;

use crate::statement::WorkQueue;

/// The waiters of each queue.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    outbox: Notify,
    inbox: Notify,
    scheduler: Notify,
}

impl Waiters {
    /// Wakes all waiters, because they wait for different topics.
    pub(crate) fn notify(&self, queue: WorkQueue) {
        self.waiters(queue).notify_waiters();
    }

    /// Wakes the waiters of all queues.
    pub(crate) fn notify_all(&self) {
        for queue in WorkQueue::ALL {
            self.notify(queue);
        }
    }

    /// Completes when the queue is notified after this call.
    pub(crate) fn notified(&self, queue: WorkQueue) -> impl Future<Output = ()> + Send {
        self.waiters(queue).notified()
    }

    fn waiters(&self, queue: WorkQueue) -> &Notify {
        match queue {
            WorkQueue::Outbox => &self.outbox,
            WorkQueue::Inbox => &self.inbox,
            WorkQueue::Scheduler => &self.scheduler,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_waiters_are_woken_polled_or_not() {
        let waiters = Waiters::default();
        let waiting = [waiters.notified(WorkQueue::Outbox), waiters.notified(WorkQueue::Outbox)];
        waiters.notify(WorkQueue::Outbox);
        for waiter in waiting {
            waiter.await;
        }
        let no_time = std::time::Duration::ZERO;
        let later = tokio::time::timeout(no_time, waiters.notified(WorkQueue::Outbox)).await;
        assert!(later.is_err(), "earlier notifications are not repeated");
    }
}
