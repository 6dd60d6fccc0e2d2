//! The queue of one kind of call: items arrive one by one and are sent in batches.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::BatchOptions;

/// The sending end of a queue.
pub(super) struct BatchQueue<Q, A> {
    sender: mpsc::Sender<Item<Q, A>>,
}

/// A request, and where its answer goes.
struct Item<Q, A> {
    request: Q,
    answer: oneshot::Sender<A>,
}

/// What to do with an item whose caller has gone away before it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnCallerGone {
    /// A reserve without a caller would hold capacity in vain.
    Skip,
    /// A complete must be carried out anyway.
    Send,
}

impl<Q: Send + 'static, A: Send + 'static> BatchQueue<Q, A> {
    pub(super) fn start<F, Fut>(
        options: &BatchOptions,
        on_caller_gone: OnCallerGone,
        closing: watch::Receiver<bool>,
        call: F,
    ) -> Self
    where
        F: Fn(Vec<Q>) -> Fut + Send + 'static,
        Fut: Future<Output = Vec<A>> + Send + 'static,
    {
        let (sender, items) = mpsc::channel(options.queue_max);
        let collector = BatchCollector { items, closing, options: options.clone(), on_caller_gone };
        tokio::spawn(collector.run(call));
        Self { sender }
    }

    /// Puts a request into the queue; `None` if it is closed.
    pub(super) async fn push(&self, request: Q) -> Option<oneshot::Receiver<A>> {
        let (answer, answered) = oneshot::channel();
        let item = Item { request, answer };
        self.sender.send(item).await.ok()?;
        Some(answered)
    }
}

/// The receiving end of a queue: collects items into batches and sends them.
struct BatchCollector<Q, A> {
    items: mpsc::Receiver<Item<Q, A>>,
    closing: watch::Receiver<bool>,
    options: BatchOptions,
    on_caller_gone: OnCallerGone,
}

impl<Q: Send + 'static, A: Send + 'static> BatchCollector<Q, A> {
    async fn run<F, Fut>(mut self, call: F)
    where
        F: Fn(Vec<Q>) -> Fut,
        Fut: Future<Output = Vec<A>> + Send + 'static,
    {
        let calls_max = u32::try_from(self.options.calls_max).unwrap_or(u32::MAX);
        let calls = Arc::new(Semaphore::new(calls_max as usize));
        loop {
            let batch = self.collect_batch().await;
            if batch.is_empty() {
                break;
            }
            let permit = calls.clone().acquire_owned().await;
            let permit = permit.expect("the semaphore is never closed");
            let (requests, answers) = self.split(batch);
            if requests.is_empty() {
                continue;
            }
            let answering = call(requests);
            tokio::spawn(async move {
                deliver(answering.await, answers);
                drop(permit);
            });
        }
        // Every call returns its permit when it ends, also by a panic.
        let all = calls.acquire_many(calls_max).await;
        drop(all.expect("the semaphore is never closed"));
        // Dropped last: `shutdown` waits for it.
        drop(self.closing);
    }

    /// The next batch; empty if there will be no more items.
    async fn collect_batch(&mut self) -> Vec<Item<Q, A>> {
        let BatchOptions { items_max, wait_max, .. } = self.options;
        let mut batch = Vec::new();
        self.receive(&mut batch, items_max).await;
        let until = Instant::now() + wait_max;
        while !batch.is_empty() && batch.len() < items_max {
            let room = items_max - batch.len();
            match timeout_at(until, self.receive(&mut batch, room)).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
        batch
    }

    /// Waits for items and takes up to `room` of them; 0 if there will be no more.
    async fn receive(&mut self, batch: &mut Vec<Item<Q, A>>, room: usize) -> usize {
        loop {
            if *self.closing.borrow() {
                self.items.close();
                return self.items.recv_many(batch, room).await;
            }
            tokio::select! {
                // An error means that the batcher was dropped, and the sender with it.
                changed = self.closing.changed() => if changed.is_err() {
                    return self.items.recv_many(batch, room).await;
                },
                count = self.items.recv_many(batch, room) => return count,
            }
        }
    }

    fn split(&self, batch: Vec<Item<Q, A>>) -> (Vec<Q>, Vec<oneshot::Sender<A>>) {
        let wanted = |item: &Item<Q, A>| {
            self.on_caller_gone == OnCallerGone::Send || !item.answer.is_closed()
        };
        let items = batch.into_iter().filter(wanted);
        items.map(|item| (item.request, item.answer)).unzip()
    }
}

fn deliver<A>(answers: Vec<A>, callers: Vec<oneshot::Sender<A>>) {
    assert_eq!(answers.len(), callers.len(), "one answer per request");
    for (answer, caller) in answers.into_iter().zip(callers) {
        // The caller may have gone away.
        drop(caller.send(answer));
    }
}

impl<Q, A> fmt::Debug for BatchQueue<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchQueue").finish_non_exhaustive()
    }
}
