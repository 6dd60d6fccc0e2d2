//! Short names for calls of a limiter.

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{
    Actuals, Backend, Capacity, CompleteRequest, HoldTimeout, LeaseId, Limit, LimitKey, LimitKind,
    Limiter, Requirements, ReserveRequest, ResetSchedule, ResetTime, Window,
};
use ratelimiter_redis::{RedisConfig, RedisLimiter, RedisOptions, RedisSettings};
use testkit::within;

use crate::context::TestContext;

/// Enough for a busy machine; a Redis that is away refuses at once.
pub const SOON_MS: u64 = 5_000;

pub fn run(test: impl Future<Output = ()>) {
    testkit::run(within("the test ends", test));
}

pub fn key(name: &str) -> LimitKey {
    LimitKey::new(name).unwrap()
}

pub fn rolling(name: &str, seconds: u64, capacity: u64) -> Limit {
    let window = Window::from_seconds(seconds).unwrap();
    Limit::new(key(name), LimitKind::Rolling { window }, Capacity::new(capacity).unwrap())
}

pub fn slots(name: &str, seconds: u64, capacity: u64) -> Limit {
    let timeout = HoldTimeout::from_seconds(seconds).unwrap();
    Limit::new(key(name), LimitKind::Concurrency { timeout }, Capacity::new(capacity).unwrap())
}

/// A calendar limit of an hour.
pub fn hourly(name: &str, capacity: u64) -> Limit {
    let resets = ResetSchedule::Hourly { minute: ResetTime::MIDNIGHT.minute() };
    Limit::new(key(name), LimitKind::Calendar { resets }, Capacity::new(capacity).unwrap())
}

pub fn lease() -> LeaseId {
    LeaseId::generate(MonotonicClock::new().now())
}

pub fn request(amounts: &[(&str, u64)]) -> ReserveRequest {
    let amounts = amounts.iter().map(|(name, amount)| (key(name), *amount));
    ReserveRequest::new(lease(), Requirements::of(amounts).unwrap())
}

pub fn complete(request: &ReserveRequest, actuals: &[(&str, u64)]) -> CompleteRequest {
    let actuals = actuals.iter().map(|(name, amount)| (key(name), *amount));
    CompleteRequest::new(request.lease, Actuals::of(actuals).unwrap())
}

pub async fn is_allowed(limiter: &RedisLimiter, request: &ReserveRequest) -> bool {
    limiter.reserve(request).await.unwrap().is_allowed()
}

pub async fn used(limiter: &RedisLimiter, name: &str) -> u64 {
    limiter.state(&key(name)).await.unwrap().unwrap().usage.used
}

/// A limiter of its own on a server that a test disturbs.
pub fn limiter_on(url: &str) -> RedisLimiter {
    limiter_with_timeout(url, SOON_MS)
}

pub fn limiter_with_timeout(url: &str, request_timeout_ms: u64) -> RedisLimiter {
    let settings = RedisSettings { connections: 1, request_timeout_ms, ..RedisSettings::new(url) };
    RedisLimiter::new(RedisConfig::new(&settings).unwrap(), RedisOptions::default())
}

/// The name of a key of an installation.
pub fn name(context: &TestContext, rest: &str) -> String {
    format!("{{{}}}:{rest}", context.prefix())
}
