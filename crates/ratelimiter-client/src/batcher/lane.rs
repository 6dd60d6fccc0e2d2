//! One kind of call: items come in one by one and go out in batches.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::BatchOptions;

/// The way into a lane.
pub(super) struct Lane<Q, A> {
    entrance: mpsc::Sender<Item<Q, A>>,
}

/// A request, and where its answer goes.
struct Item<Q, A> {
    request: Q,
    answer: oneshot::Sender<A>,
}

/// What becomes of an item whose caller has gone away before it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missed {
    /// Nobody would know of its answer, so nothing is asked.
    Skipped,
    /// It must be carried out, whoever waits for it.
    Sent,
}

impl<Q: Send + 'static, A: Send + 'static> Lane<Q, A> {
    pub(super) fn start<F, Fut>(
        options: &BatchOptions,
        missed: Missed,
        closing: watch::Receiver<bool>,
        call: F,
    ) -> Self
    where
        F: Fn(Vec<Q>) -> Fut + Send + 'static,
        Fut: Future<Output = Vec<A>> + Send + 'static,
    {
        let (entrance, items) = mpsc::channel(options.queue_max);
        let gathering = Gathering { items, closing, options: options.clone(), missed };
        tokio::spawn(gathering.run(call));
        Self { entrance }
    }

    /// Puts a request into the lane; `None` when it is closed.
    pub(super) async fn ask(&self, request: Q) -> Option<oneshot::Receiver<A>> {
        let (answer, answered) = oneshot::channel();
        let item = Item { request, answer };
        self.entrance.send(item).await.ok()?;
        Some(answered)
    }
}

/// The other end of a lane: gathers items and sends them on.
struct Gathering<Q, A> {
    items: mpsc::Receiver<Item<Q, A>>,
    closing: watch::Receiver<bool>,
    options: BatchOptions,
    missed: Missed,
}

impl<Q: Send + 'static, A: Send + 'static> Gathering<Q, A> {
    async fn run<F, Fut>(mut self, call: F)
    where
        F: Fn(Vec<Q>) -> Fut,
        Fut: Future<Output = Vec<A>> + Send + 'static,
    {
        let calls_max = u32::try_from(self.options.calls_max).unwrap_or(u32::MAX);
        let calls = Arc::new(Semaphore::new(calls_max as usize));
        loop {
            let batch = self.gather().await;
            if batch.is_empty() {
                break;
            }
            let permit = calls.clone().acquire_owned().await;
            let permit = permit.expect("nobody closes the semaphore");
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
        // Every call gives its permit back when it has been answered, or has failed.
        let all = calls.acquire_many(calls_max).await;
        drop(all.expect("nobody closes the semaphore"));
        // The receiver goes last: whoever shuts the batcher down waits for it.
        drop(self.closing);
    }

    /// A batch of at least one item; empty when there will be no more.
    async fn gather(&mut self) -> Vec<Item<Q, A>> {
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

    /// Waits for items and takes up to `room` of them; 0 when there will be no more.
    async fn receive(&mut self, batch: &mut Vec<Item<Q, A>>, room: usize) -> usize {
        loop {
            if *self.closing.borrow() {
                self.items.close();
                return self.items.recv_many(batch, room).await;
            }
            tokio::select! {
                // An error means that the batcher was dropped; then the entrance is gone too.
                changed = self.closing.changed() => if changed.is_err() {
                    return self.items.recv_many(batch, room).await;
                },
                count = self.items.recv_many(batch, room) => return count,
            }
        }
    }

    fn split(&self, batch: Vec<Item<Q, A>>) -> (Vec<Q>, Vec<oneshot::Sender<A>>) {
        let wanted = |item: &Item<Q, A>| self.missed == Missed::Sent || !item.answer.is_closed();
        let items = batch.into_iter().filter(wanted);
        items.map(|item| (item.request, item.answer)).unzip()
    }
}

fn deliver<A>(answers: Vec<A>, callers: Vec<oneshot::Sender<A>>) {
    assert_eq!(answers.len(), callers.len(), "one answer per request");
    for (answer, caller) in answers.into_iter().zip(callers) {
        // A caller that has gone away does not want to know.
        drop(caller.send(answer));
    }
}

impl<Q, A> fmt::Debug for Lane<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").finish_non_exhaustive()
    }
}
