//! Who waits in this process for new work.

use std::future::Future;

use tokio::sync::Notify;

use crate::statement::Queue;

/// The waiters of each queue.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    outbox: Notify,
    inbox: Notify,
    scheduler: Notify,
}

impl Wake {
    /// Wakes everyone who waits: they may look for other topics, so waking one of them could wake
    /// the wrong one.
    pub(crate) fn tell(&self, queue: Queue) {
        self.waiters(queue).notify_waiters();
    }

    /// Tells all queues.
    pub(crate) fn tell_all(&self) {
        for queue in Queue::ALL {
            self.tell(queue);
        }
    }

    /// Completes when the queue was told of work after this was called.
    pub(crate) fn told(&self, queue: Queue) -> impl Future<Output = ()> + Send {
        self.waiters(queue).notified()
    }

    fn waiters(&self, queue: Queue) -> &Notify {
        match queue {
            Queue::Outbox => &self.outbox,
            Queue::Inbox => &self.inbox,
            Queue::Scheduler => &self.scheduler,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_who_waited_are_woken_polled_or_not() {
        let wake = Wake::default();
        let waiting = [wake.told(Queue::Outbox), wake.told(Queue::Outbox)];
        wake.tell(Queue::Outbox);
        for waiter in waiting {
            waiter.await;
        }
        let no_time = std::time::Duration::ZERO;
        let later = tokio::time::timeout(no_time, wake.told(Queue::Outbox)).await;
        assert!(later.is_err(), "what was told before is not told again");
    }
}
