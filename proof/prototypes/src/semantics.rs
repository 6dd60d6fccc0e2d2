//! Prototypes 1 and 5: a lease ID has one answer for ever.

use std::time::Duration;

use ratelimiter_client::clock::{Clock, MonotonicClock};
use ratelimiter_client::{
    Backend, Capacity, Decision, LeaseId, Limit, LimitKey, LimitKind, LimitStatus, Requirements,
    ReserveRequest, Window,
};
use tokio::time::{Instant, sleep_until};

use crate::{Error, Steps};

/// Window of the limit.
const WINDOW_SECONDS: u64 = 3;
/// How soon a retry must be allowed.
const ALLOWED_WITHIN: Duration = Duration::from_secs(30);

/// Two of three reserves are allowed. The denied lease ID stays denied, even when a new lease ID is allowed.
///
/// # Errors
/// The limiter does not answer.
pub async fn run(steps: &mut Steps, limiter: &impl Backend) -> Result<(), Error> {
    let key = LimitKey::llm_rpm("prototype", "semantics")?;
    let kind = LimitKind::Rolling { window: Window::from_seconds(WINDOW_SECONDS)? };
    let status = limiter.define(Limit::new(key.clone(), kind, Capacity::new(2)?)).await?;
    let what = format!("define a limit of 2 per {WINDOW_SECONDS} s");
    steps.equal(&what, &LimitStatus::Active, &status);

    let [first, second, third, fourth] = [(); 4].map(|()| new_lease());
    for (name, lease, expected) in
        [("first", first, "allowed"), ("second", second, "allowed"), ("third", third, "denied")]
    {
        let decision = reserve(limiter, &key, lease).await?;
        steps.equal(&format!("reserve with a {name} lease ID"), &expected, &word(&decision));
    }
    let again = reserve(limiter, &key, third).await?;
    steps.equal("repeat the denied one with the same lease ID", &"denied", &word(&again));

    let started_at = Instant::now();
    let (attempts, is_allowed) = reserve_until_allowed(limiter, &key, fourth).await?;
    let actual =
        format!("allowed: {is_allowed}, after {attempts} attempts in {:?}", started_at.elapsed());
    let expected = format!("allowed within {ALLOWED_WITHIN:?}");
    steps.check("retry with new lease IDs after the hints", &expected, &actual, is_allowed);

    let late = reserve(limiter, &key, third).await?;
    let what = "repeat the denied lease ID after another one was allowed";
    steps.equal(what, &"denied", &word(&late));
    Ok(())
}

async fn reserve_until_allowed(
    limiter: &impl Backend,
    key: &LimitKey,
    first: LeaseId,
) -> Result<(usize, bool), Error> {
    let give_up = Instant::now() + ALLOWED_WITHIN;
    let mut lease = first;
    for attempts in 1.. {
        match reserve(limiter, key, lease).await? {
            Decision::Allowed { .. } => return Ok((attempts, true)),
            Decision::Denied(denial) => {
                let again = Instant::now() + denial.retry_after;
                if again > give_up {
                    return Ok((attempts, false));
                }
                sleep_until(again).await;
            }
        }
        lease = new_lease();
    }
    Err("attempts are unlimited".into())
}

async fn reserve(
    limiter: &impl Backend,
    key: &LimitKey,
    lease: LeaseId,
) -> Result<Decision, Error> {
    let requirements = Requirements::of([(key.clone(), 1)])?;
    Ok(limiter.reserve(&ReserveRequest::new(lease, requirements)).await?)
}

/// A new lease ID.
pub fn new_lease() -> LeaseId {
    LeaseId::generate(MonotonicClock::new().now())
}

/// `allowed` or `denied`.
pub fn word(decision: &Decision) -> &'static str {
    if decision.is_allowed() { "allowed" } else { "denied" }
}
