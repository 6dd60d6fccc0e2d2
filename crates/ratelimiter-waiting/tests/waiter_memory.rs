//! The memory of requests that wait. A counting allocator measures it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use futures::poll;
use peak_alloc::PeakAlloc;
use ratelimiter::clock::MonotonicClock;
use ratelimiter::{
    Capacity, HoldTimeout, LeaseId, Limit, LimitKey, LimitKind, MemoryLimiter, Requirements,
    ReserveRequest, Wait,
};
use ratelimiter_waiting::{Runtime, TokioRuntime, Waiting};
use tokio::sync::Notify;

const WAITERS: usize = 20_000;
const BYTES_MAX: usize = 2 * 1_024;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// WAIT-05: with its request and the future of its caller.
#[tokio::test]
async fn wait_05_a_waiter_costs_less_than_two_kib() {
    let limiter = MemoryLimiter::new();
    let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime);
    let waiting = Waiting::new(
        Arc::new(limiter.clone()),
        Arc::new(MonotonicClock::new()),
        &runtime,
        WAITERS,
        Arc::new(Notify::new()),
    );
    let names = ["rpm", "tpm", "concurrency", "daily_tokens"];
    let keys = names.map(|name| LimitKey::new(format!("global:llm:openai:gpt-4o:{name}")).unwrap());
    let timeout = HoldTimeout::from_seconds(3_600).unwrap();
    for key in &keys {
        let kind = LimitKind::Concurrency { timeout };
        limiter.define_now(Limit::new(key.clone(), kind, Capacity::new(1).unwrap())).unwrap();
    }
    let request = |lease: usize| {
        let needs = Requirements::of(keys.iter().map(|key| (key.clone(), 1))).unwrap();
        let wait = Some(Wait::new(Duration::from_secs(60), format!("tenant-{lease}")).unwrap());
        ReserveRequest { wait, ..ReserveRequest::new(LeaseId::from_u128(lease as u128), needs) }
    };
    assert!(waiting.reserve(&request(0)).await.unwrap().0.is_allowed());
    let before = ALLOCATOR.current_usage();
    let waiting = &waiting;
    let mut callers = Vec::with_capacity(WAITERS);
    for lease in 1..=WAITERS {
        let request = request(lease);
        let mut caller = Box::pin(async move { waiting.reserve(&request).await });
        assert!(poll!(&mut caller).is_pending());
        callers.push(caller);
        if lease % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    for _ in 0..WAITERS / 64 {
        tokio::task::yield_now().await;
    }
    assert_eq!(waiting.count(), WAITERS);
    let bytes = (ALLOCATOR.current_usage() - before) / WAITERS;
    println!("a waiter costs {bytes} bytes");
    assert!(bytes < BYTES_MAX, "{bytes}");
    drop(callers);
    assert_eq!(waiting.count(), 0);
}
