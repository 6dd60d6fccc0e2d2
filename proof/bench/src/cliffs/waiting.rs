//! Requests that wait for room, on the memory backend.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{
    Actuals, Capacity, CompleteRequest, HoldTimeout, LeaseId, Limit, LimitKey, LimitKind, Limiter,
    MemoryLimiter, Requirements, ReserveRequest, Wait,
};
use ratelimiter_waiting::{Runtime, TokioRuntime, Waiting};
use tokio::runtime::Builder;
use tokio::sync::{Notify, mpsc};
use tokio::task::yield_now;

use crate::rounds::float;
use crate::workload::{LIMITS_PER_CALL, keys};

/// So often other tasks run before the driver of the waiters has done all that an event leads to.
const YIELDS: usize = 8;

/// For which limits the waiters wait, and in how many queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WakeUp {
    /// A complete admits the next one.
    OneQueue,
    /// The same, each in a queue of its own.
    ManyQueues,
    /// All need two limits, which have room in turn, so that a complete admits nobody.
    TwoLimits,
}

struct World {
    limiter: MemoryLimiter,
    waiting: Arc<Waiting<MemoryLimiter>>,
    keys: [LimitKey; LIMITS_PER_CALL],
    leases: u128,
}

/// A limiter as a server calls it. Within a runtime.
pub(super) fn layer(limiter: &MemoryLimiter) -> Waiting<MemoryLimiter> {
    layer_for(limiter, 1)
}

fn layer_for(limiter: &MemoryLimiter, waiters_max: usize) -> Waiting<MemoryLimiter> {
    let (backend, clock) = (Arc::new(limiter.clone()), Arc::new(MonotonicClock::new()));
    let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime);
    Waiting::new(backend, clock, &runtime, waiters_max, Arc::new(Notify::new()))
}

pub(super) fn reserve_and_complete(
    layer: &Waiting<MemoryLimiter>,
    (reserve, complete): (&ReserveRequest, &CompleteRequest),
) {
    let (decision, _) = at_once(layer.reserve(reserve)).expect("the keys are defined");
    assert!(decision.is_allowed(), "the limits never deny");
    at_once(layer.complete(complete)).expect("the lease has these keys");
}

pub(super) fn reserve_and_complete_at(
    limiter: &impl Limiter,
    (reserve, complete): (&ReserveRequest, &CompleteRequest),
) {
    let decision = at_once(limiter.reserve(reserve)).expect("the keys are defined");
    assert!(decision.is_allowed(), "the limits never deny");
    at_once(limiter.complete(complete)).expect("the lease has these keys");
}

/// The answer of a call that waits for nothing.
fn at_once<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("the memory backend answers at once"),
    }
}

impl WakeUp {
    pub(super) const ALL: [Self; 3] = [Self::OneQueue, Self::ManyQueues, Self::TwoLimits];

    /// Microseconds that a complete and the wake-up that follows take, with so many waiters.
    pub(super) fn microseconds(self, waiters: usize, wake_ups: usize) -> f64 {
        let runtime = Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let mut world = World::new(waiters);
            match self {
                Self::OneQueue | Self::ManyQueues => world.admit(self, waiters, wake_ups).await,
                Self::TwoLimits => world.alternate(waiters, wake_ups).await,
            }
        })
    }
}

impl World {
    fn new(waiters_max: usize) -> Self {
        let limiter = MemoryLimiter::new();
        let waiting = layer_for(&limiter, waiters_max);
        let (keys, timeout) = (keys(0), HoldTimeout::from_seconds(3_600).expect("in range"));
        for key in &keys {
            let capacity = Capacity::new(1).expect("in range");
            let limit = Limit::new(key.clone(), LimitKind::Concurrency { timeout }, capacity);
            limiter.define_now(limit).expect("a new key");
        }
        Self { limiter, waiting: Arc::new(waiting), keys, leases: 0 }
    }

    fn request(&mut self, limits: &[usize], queue: Option<&str>) -> ReserveRequest {
        self.leases += 1;
        let needs = limits.iter().map(|at| (self.keys[*at].clone(), 1));
        let needs = Requirements::of(needs).expect("different keys");
        let wait =
            queue.map(|queue| Wait::new(Duration::from_secs(60), queue).expect("a short name"));
        ReserveRequest { wait, ..ReserveRequest::new(LeaseId::from_u128(self.leases), needs) }
    }

    /// Takes the only unit of a limit, whoever waits.
    fn take(&mut self, limit: usize) -> LeaseId {
        let request = self.request(&[limit], None);
        let decision = self.limiter.reserve_now(&request).expect("a defined key");
        assert!(decision.is_allowed(), "the limit has room");
        request.lease
    }

    async fn complete(&self, lease: LeaseId) {
        let request = CompleteRequest::new(lease, Actuals::none());
        self.waiting.complete(&request).await.expect("an open lease");
    }

    /// Each waiter says when it is admitted.
    async fn wait(&mut self, limits: &[usize], queue: &str, admitted: &mpsc::Sender<LeaseId>) {
        let request = self.request(limits, Some(queue));
        let (waiting, admitted) = (Arc::clone(&self.waiting), admitted.clone());
        tokio::spawn(async move {
            if let Ok((decision, _)) = waiting.reserve(&request).await
                && decision.is_allowed()
            {
                // The measurement may be over.
                let _sent = admitted.send(request.lease).await;
            }
        });
        yield_now().await;
    }

    async fn admit(&mut self, case: WakeUp, waiters: usize, wake_ups: usize) -> f64 {
        let (sender, mut admitted) = mpsc::channel(1);
        let mut held = self.take(0);
        for waiter in 0..waiters {
            let queue = if case == WakeUp::ManyQueues { waiter.to_string() } else { String::new() };
            self.wait(&[0], &queue, &sender).await;
        }
        self.settle(waiters).await;
        let clock = MonotonicClock::new();
        let started_at = clock.now();
        for _ in 0..wake_ups {
            self.complete(held).await;
            held = admitted.recv().await.expect("the sender is open");
        }
        microseconds_each(clock.now().since(started_at), wake_ups)
    }

    async fn alternate(&mut self, waiters: usize, wake_ups: usize) -> f64 {
        let (sender, _admitted) = mpsc::channel(1);
        let (mut free, mut held) = ((0, self.take(0)), (1, self.take(1)));
        for _ in 0..waiters {
            self.wait(&[0, 1], "", &sender).await;
        }
        self.settle(waiters).await;
        let clock = MonotonicClock::new();
        let started_at = clock.now();
        for _ in 0..wake_ups {
            self.complete(free.1).await;
            for _ in 0..YIELDS {
                yield_now().await;
            }
            free.1 = self.take(free.0);
            std::mem::swap(&mut free, &mut held);
        }
        let elapsed = clock.now().since(started_at);
        assert_eq!(self.waiting.count(), waiters, "nobody was admitted");
        microseconds_each(elapsed, wake_ups)
    }

    async fn settle(&self, waiters: usize) {
        while self.waiting.count() < waiters {
            yield_now().await;
        }
        for _ in 0..YIELDS {
            yield_now().await;
        }
    }
}

fn microseconds_each(elapsed: Duration, count: usize) -> f64 {
    elapsed.as_secs_f64() * 1e6 / float(count)
}
