//! Joins concurrent calls into batches, so that many callers cost one request.

mod lane;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::{
    Backend, CompleteError, CompleteRequest, Decision, DefineError, DeleteError, Limit, LimitKey,
    LimitState, LimitStatus, Limiter, Page, Refused, ReserveError, ReserveRequest, StateError,
    Unanswered,
};
use ratelimiter_wire::BATCH_ITEMS_MAX;
use tokio::sync::watch;

use self::lane::{Lane, Missed};

/// When to repeat a call of which the batcher lost sight.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// What can be chosen about a batcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchOptions {
    /// How many items go into one batch at the most: 1 to 256.
    pub items_max: usize,
    /// For how long the first item of a batch waits for others.
    pub wait_max: Duration,
    /// How many batches of one kind may be under way at a time. They are begun in order.
    pub calls_max: usize,
    /// How many items may wait to be put into a batch; further callers wait for their turn.
    pub queue_max: usize,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self { items_max: 128, wait_max: Duration::from_millis(2), calls_max: 4, queue_max: 16_384 }
    }
}

/// A limiter that joins the concurrent reserves, and apart from them the completes, of many callers into the batch
/// calls of another one. Clones share it.
///
/// A batch keeps its callers' order. A batch that fails fails for its own callers only. A caller that goes away while its
/// reserve waits is not asked for; a complete is always sent. When the last clone is dropped, what waits is still sent.
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
    lanes: Arc<Lanes>,
}

#[derive(Debug)]
struct Lanes {
    reserve: Lane<ReserveRequest, Result<Decision, ReserveError>>,
    complete: Lane<CompleteRequest, Result<(), CompleteError>>,
    /// True when nothing more is taken in. The lanes hold the receivers, and drop them when they have ended.
    closing: watch::Sender<bool>,
}

impl<L: Limiter + 'static> Batcher<L> {
    /// Batches of at most 128 items that wait for at most 2 ms.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(limiter: L) -> Self {
        Self::with_options(limiter, &BatchOptions::default())
    }

    /// Batches as the options say.
    ///
    /// # Panics
    /// Outside a tokio runtime, when a bound is 0, or when a batch should hold more than 256 items.
    pub fn with_options(limiter: L, options: &BatchOptions) -> Self {
        assert!((1..=BATCH_ITEMS_MAX).contains(&options.items_max));
        assert!(options.calls_max > 0 && options.queue_max > 0);
        let limiter = Arc::new(limiter);
        let (closing, closed) = watch::channel(false);
        let reserver = limiter.clone();
        let completer = limiter.clone();
        let lanes = Lanes {
            reserve: Lane::start(options, Missed::Skipped, closed.clone(), move |requests| {
                let limiter = reserver.clone();
                async move { limiter.reserve_batch(&requests).await }
            }),
            complete: Lane::start(options, Missed::Sent, closed, move |requests| {
                let limiter = completer.clone();
                async move { limiter.complete_batch(&requests).await }
            }),
            closing,
        };
        Self { limiter, lanes: Arc::new(lanes) }
    }

    /// Takes nothing more in, sends what waits, and returns when all of it has been answered.
    pub async fn shutdown(&self) {
        self.lanes.closing.send_replace(true);
        self.lanes.closing.closed().await;
    }
}

fn shut_down() -> Refused {
    Refused { reason: "the batcher is shut down".to_owned() }
}

fn lost() -> Unanswered {
    Unanswered {
        reason: "the batch that carried the request was given up".to_owned(),
        retry_after: RETRY_AFTER,
    }
}

impl<L: Limiter + 'static> Limiter for Batcher<L> {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        let answer = self.lanes.reserve.ask(request.clone()).await;
        let answer = answer.ok_or_else(shut_down)?;
        answer.await.unwrap_or_else(|_| Err(lost().into()))
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        let answer = self.lanes.complete.ask(request.clone()).await;
        let answer = answer.ok_or_else(shut_down)?;
        answer.await.unwrap_or_else(|_| Err(lost().into()))
    }

    /// What comes as a batch goes as one.
    fn reserve_batch(
        &self,
        requests: &[ReserveRequest],
    ) -> impl Future<Output = Vec<Result<Decision, ReserveError>>> + Send {
        self.limiter.reserve_batch(requests)
    }

    /// What comes as a batch goes as one.
    fn complete_batch(
        &self,
        requests: &[CompleteRequest],
    ) -> impl Future<Output = Vec<Result<(), CompleteError>>> + Send {
        self.limiter.complete_batch(requests)
    }
}

impl<B: Backend + 'static> Backend for Batcher<B> {
    fn define(
        &self,
        limit: Limit,
    ) -> impl Future<Output = Result<LimitStatus, DefineError>> + Send {
        self.limiter.define(limit)
    }

    fn delete(&self, key: &LimitKey) -> impl Future<Output = Result<(), DeleteError>> + Send {
        self.limiter.delete(key)
    }

    fn state(
        &self,
        key: &LimitKey,
    ) -> impl Future<Output = Result<Option<LimitState>, StateError>> + Send {
        self.limiter.state(key)
    }

    fn states(
        &self,
        page: &Page,
    ) -> impl Future<Output = Result<Vec<LimitState>, StateError>> + Send {
        self.limiter.states(page)
    }
}

impl<L> Clone for Batcher<L> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), lanes: self.lanes.clone() }
    }
}

impl<L: fmt::Debug> fmt::Debug for Batcher<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}
