//! Prints how many calls per second limitador decides with its Redis storage.
//!
//! `limitador-redis check|reserve URL MODELS CALLERS MILLISECONDS`: callers that check four counters of one model after another and increment
//! them (`check`), or that hold an amount of them and then commit what they used (`reserve`).

use std::env;
use std::sync::Arc;
use std::time::{Duration, Instant};

use limitador::AsyncRateLimiter;
use limitador::limit::{Context, Limit, Namespace};
use limitador::storage::redis::AsyncRedisStorage;

/// As the benchmark's: requests, tokens, concurrency, daily tokens. limitador identifies limits by their windows, so those of a model differ.
const WINDOWS_SECONDS: [u64; 4] = [3_600, 3_601, 3_602, 86_400];
const MAX: u64 = 1 << 52;
const HOLD_FOR: Duration = Duration::from_secs(3_600);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = env::args().skip(1);
    let mut next = || arguments.next().expect("check|reserve URL MODELS CALLERS MILLISECONDS");
    let (mode, url) = (next(), next());
    let mut number = || next().parse::<usize>().expect("a number");
    let (models, callers, milliseconds) = (number(), number(), number());
    let storage = AsyncRedisStorage::new(&url).await.expect("Redis answers");
    let limiter = AsyncRateLimiter::new_with_storage(Box::new(storage));
    let namespaces: Vec<_> = (0..models).map(|model| format!("gpt-{model}")).collect();
    for name in &namespaces {
        for (at, seconds) in WINDOWS_SECONDS.into_iter().enumerate() {
            let (id, none, all) = (format!("{name}:{at}"), std::iter::empty(), std::iter::empty());
            limiter.add_limit(Limit::with_id(id, name.as_str(), MAX, seconds, none, all));
        }
    }
    let namespaces: Arc<[Namespace]> = namespaces.iter().map(|name| name.as_str().into()).collect();
    let (limiter, is_reserve) = (Arc::new(limiter), mode == "reserve");
    let (started_at, duration) = (Instant::now(), Duration::from_millis(milliseconds as u64));
    let call = |number: usize| {
        let (limiter, namespaces) = (Arc::clone(&limiter), Arc::clone(&namespaces));
        async move {
            let mut calls = 0_u32;
            while started_at.elapsed() < duration {
                let namespace = &namespaces[(number + calls as usize) % namespaces.len()];
                let context = Context::default();
                let is_limited = if is_reserve {
                    let hold_for = Some(HOLD_FOR);
                    let held = limiter.reserve(namespace, &context, 1, hold_for).await;
                    let held = held.expect("Redis answers");
                    let id = held.reservation_id.as_ref();
                    let committed = limiter.commit_reservation(namespace, &context, id, 1).await;
                    assert!(committed.expect("Redis answers").reservation_released, "it was held");
                    held.limited
                } else {
                    let answer =
                        limiter.check_rate_limited_and_update(namespace, &context, 1).await;
                    answer.expect("Redis answers").limited
                };
                assert!(!is_limited, "the limits never deny");
                calls += 1;
            }
            calls
        }
    };
    let running: Vec<_> = (0..callers).map(|number| tokio::spawn(call(number))).collect();
    let mut calls = 0;
    for caller in running {
        calls += caller.await.expect("a caller does not panic");
    }
    println!("{}", f64::from(calls) / started_at.elapsed().as_secs_f64());
}
