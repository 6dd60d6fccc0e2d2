//! Joins concurrent calls into batches.

mod queue;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::{
    Actuals, Backend, CompleteError, CompleteRequest, Decision, DefineError, DeleteError,
    ForgiveError, LeaseId, LeasePage, LeasesError, Limit, LimitKey, LimitState, LimitStatus,
    Limiter, OpenLease, Page, Refused, ReleaseError, ReserveError, ReserveRequest, StateError,
    Unanswered,
};
use ratelimiter_wire::BATCH_ITEMS_MAX;
use tokio::sync::watch;

use self::queue::{BatchQueue, OnCallerGone};

/// Retry delay for a call whose batch task died.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Options of a batcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchOptions {
    /// The most items of one batch: 1 to 256.
    pub items_max: usize,
    /// How long the first item of a batch waits for others.
    pub wait_max: Duration,
    /// The most batches of one kind in flight. They are sent in order.
    pub calls_max: usize,
    /// The most items that wait for a batch; further callers wait for a place.
    pub queue_max: usize,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self { items_max: 128, wait_max: Duration::from_millis(2), calls_max: 4, queue_max: 16_384 }
    }
}

/// A limiter that joins concurrent reserves, and separately completes, into batch calls of another limiter. Clones share it.
///
/// A batch keeps the order of its callers, and its failure concerns only them. If a caller goes away while its reserve waits,
/// the reserve is not sent; a complete is always sent. When the last clone is dropped, waiting items are still sent.
///
/// ```
/// use ratelimiter_client::{Batcher, LeaseId, Limiter, CompleteRequest, Actuals, MemoryLimiter};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Batcher::new(MemoryLimiter::new());
/// limiter.complete(&CompleteRequest::new(LeaseId::from_u128(1), Actuals::none())).await?;
/// limiter.shutdown().await;
/// # Ok(())
/// # }
/// ```
pub struct Batcher<L> {
    limiter: Arc<L>,
    queues: Arc<Queues>,
}

#[derive(Debug)]
struct Queues {
    reserve: BatchQueue<ReserveRequest, Result<Decision, ReserveError>>,
    complete: BatchQueue<CompleteRequest, Result<(), CompleteError>>,
    /// True when no more items are accepted. Each queue drops its receiver when it has ended.
    closing: watch::Sender<bool>,
}

impl<L: Limiter + 'static> Batcher<L> {
    /// A batcher with the default options: at most 128 items and 2 ms.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(limiter: L) -> Self {
        Self::with_options(limiter, &BatchOptions::default())
    }

    /// A batcher with these options.
    ///
    /// # Panics
    /// Outside a tokio runtime, if a bound is 0, or if `items_max` is above 256.
    pub fn with_options(limiter: L, options: &BatchOptions) -> Self {
        assert!((1..=BATCH_ITEMS_MAX).contains(&options.items_max));
        assert!(options.calls_max > 0 && options.queue_max > 0);
        let limiter = Arc::new(limiter);
        let (closing, closed) = watch::channel(false);
        let reserver = limiter.clone();
        let completer = limiter.clone();
        let queues = Queues {
            reserve: BatchQueue::start(
                options,
                OnCallerGone::Skip,
                closed.clone(),
                move |requests| {
                    let limiter = reserver.clone();
                    async move { limiter.reserve_batch(&requests).await }
                },
            ),
            complete: BatchQueue::start(options, OnCallerGone::Send, closed, move |requests| {
                let limiter = completer.clone();
                async move { limiter.complete_batch(&requests).await }
            }),
            closing,
        };
        Self { limiter, queues: Arc::new(queues) }
    }

    /// Accepts no more items, sends the waiting ones, and returns when all have been answered. Requests that wait for room at the
    /// limiter are taken back.
    pub async fn shutdown(&self) {
        self.queues.closing.send_replace(true);
        self.queues.closing.closed().await;
    }
}

/// Puts a request into a queue, and waits for its answer.
async fn answer<Q, T, E>(queue: &BatchQueue<Q, Result<T, E>>, request: Q) -> Result<T, E>
where
    Q: Send + 'static,
    T: Send + 'static,
    E: From<Refused> + From<Unanswered> + Send + 'static,
{
    let Some(answer) = queue.push(request).await else {
        return Err(shut_down().into());
    };
    answer.await.unwrap_or_else(|_| {
        let reason = "the batch that carried the request was given up".to_owned();
        Err(Unanswered { reason, retry_after: RETRY_AFTER }.into())
    })
}

fn shut_down() -> Refused {
    Refused { reason: "the batcher is shut down".to_owned() }
}

impl<L: Limiter + 'static> Limiter for Batcher<L> {
    /// A request that may wait joins no batch: each is answered in its own time.
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        if request.wait.is_none() || !self.can_wait() {
            return answer(&self.queues.reserve, request.clone()).await;
        }
        // `shutdown` waits until it is dropped.
        let mut closing = self.queues.closing.subscribe();
        if *closing.borrow() {
            return Err(shut_down().into());
        }
        tokio::select! {
            biased;
            // The sender is in `self`, so that it is not an error.
            _ = closing.wait_for(|is_closing| *is_closing) => {}
            answer = self.limiter.reserve(request) => return answer,
        }
        // It may have been allowed. Where it was not, this changes nothing.
        drop(self.limiter.complete(&CompleteRequest::new(request.lease, Actuals::none())).await);
        Err(shut_down().into())
    }

    fn can_wait(&self) -> bool {
        self.limiter.can_wait()
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        answer(&self.queues.complete, request.clone()).await
    }

    /// Passes the batch on as it is.
    async fn reserve_batch(
        &self,
        requests: &[ReserveRequest],
    ) -> Vec<Result<Decision, ReserveError>> {
        self.limiter.reserve_batch(requests).await
    }

    /// Passes the batch on as it is.
    async fn complete_batch(&self, requests: &[CompleteRequest]) -> Vec<Result<(), CompleteError>> {
        self.limiter.complete_batch(requests).await
    }
}

impl<B: Backend + 'static> Backend for Batcher<B> {
    async fn define(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        self.limiter.define(limit).await
    }

    async fn define_all(&self, limits: Vec<Limit>) -> Result<Vec<LimitStatus>, DefineError> {
        self.limiter.define_all(limits).await
    }

    async fn delete(&self, key: &LimitKey) -> Result<(), DeleteError> {
        self.limiter.delete(key).await
    }

    async fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, StateError> {
        self.limiter.state(key).await
    }

    async fn states(&self, page: &Page) -> Result<Vec<LimitState>, StateError> {
        self.limiter.states(page).await
    }

    async fn leases(&self, page: &LeasePage) -> Result<Vec<OpenLease>, LeasesError> {
        self.limiter.leases(page).await
    }

    async fn release(&self, lease: LeaseId) -> Result<(), ReleaseError> {
        self.limiter.release(lease).await
    }

    async fn forgive(&self, key: &LimitKey) -> Result<u128, ForgiveError> {
        self.limiter.forgive(key).await
    }
}

impl<L> Clone for Batcher<L> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), queues: self.queues.clone() }
    }
}

impl<L: fmt::Debug> fmt::Debug for Batcher<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}
