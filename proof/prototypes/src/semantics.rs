//! Prototypes 1 and 5: what a lease ID is good for.

use std::time::Duration;

use ratelimiter_client::clock::{Clock, MonotonicClock};
use ratelimiter_client::{
    Backend, Capacity, Decision, LeaseId, Limit, LimitKey, LimitKind, LimitStatus, Requirements,
    ReserveRequest, Window,
};
use tokio::time::{Instant, sleep_until};

use crate::{Error, Steps};

/// How long a reservation of this scenario counts.
const WINDOW_SECONDS: u64 = 3;
/// How long an attempt after the denial may take to be allowed.
const ALLOWED_WITHIN: Duration = Duration::from_secs(30);

/// Two of three attempts are allowed; the denied one stays denied with its lease ID, also when there is room again, and a new
/// lease ID is allowed then.
///
/// # Errors
/// The limiter gives no decision.
pub async fn play(steps: &mut Steps, limiter: &impl Backend) -> Result<(), Error> {
    let key = LimitKey::llm_rpm("prototype", "semantics")?;
    let kind = LimitKind::Rolling { window: Window::from_seconds(WINDOW_SECONDS)? };
    let status = limiter.define(Limit::new(key.clone(), kind, Capacity::new(2)?)).await?;
    let what = format!("define a limit of 2 per {WINDOW_SECONDS} s");
    steps.equal(&what, &LimitStatus::Active, &status);

    let [first, second, third, fourth] = [(); 4].map(|()| new_lease());
    for (name, lease, expected) in
        [("first", first, "allowed"), ("second", second, "allowed"), ("third", third, "denied")]
    {
        let decision = ask(limiter, &key, lease).await?;
        steps.equal(&format!("reserve with a {name} lease ID"), &expected, &word(&decision));
    }
    let again = ask(limiter, &key, third).await?;
    steps.equal("repeat the denied one with the same lease ID", &"denied", &word(&again));

    let begun = Instant::now();
    let (attempts, is_allowed) = ask_until_allowed(limiter, &key, fourth).await?;
    let happened =
        format!("allowed: {is_allowed}, after {attempts} attempts in {:?}", begun.elapsed());
    let expected = format!("allowed within {ALLOWED_WITHIN:?}");
    steps.judged("ask with new lease IDs, as the hints say", &expected, &happened, is_allowed);

    let late = ask(limiter, &key, third).await?;
    let what = "repeat the denied lease ID now that there was room for another";
    steps.equal(what, &"denied", &word(&late));
    Ok(())
}

async fn ask_until_allowed(
    limiter: &impl Backend,
    key: &LimitKey,
    first: LeaseId,
) -> Result<(usize, bool), Error> {
    let give_up = Instant::now() + ALLOWED_WITHIN;
    let mut lease = first;
    for attempts in 1.. {
        match ask(limiter, key, lease).await? {
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
    Err("there are more numbers than attempts".into())
}

async fn ask(limiter: &impl Backend, key: &LimitKey, lease: LeaseId) -> Result<Decision, Error> {
    let requirements = Requirements::of([(key.clone(), 1)])?;
    Ok(limiter.reserve(&ReserveRequest::new(lease, requirements)).await?)
}

/// A lease ID that nobody has used.
pub fn new_lease() -> LeaseId {
    LeaseId::generate(MonotonicClock::new().now())
}

/// The decision in a word.
pub fn word(decision: &Decision) -> &'static str {
    if decision.is_allowed() { "allowed" } else { "denied" }
}
