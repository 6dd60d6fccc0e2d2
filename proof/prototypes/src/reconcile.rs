//! Prototypes 3 and 5: reserved tokens that a call did not use are available at once.

use std::time::Duration;

use ratelimiter_client::{
    Actuals, Backend, Capacity, CompleteRequest, Decision, Limit, LimitKey, LimitKind,
    Requirements, ReserveRequest, Window,
};
use tokio::time::{Instant, sleep_until};

use crate::semantics::{new_lease, word};
use crate::{Error, Steps};

/// How soon unused tokens must be available.
const FREE_WITHIN: Duration = Duration::from_secs(1);

/// A call reserves all of 100 tokens per minute and uses 10; the next one gets 90 without waiting a minute.
///
/// # Errors
/// The limiter does not answer.
pub async fn run(steps: &mut Steps, limiter: &impl Backend) -> Result<(), Error> {
    let tpm = LimitKey::llm_tpm("prototype", "reconcile")?;
    let kind = LimitKind::Rolling { window: Window::from_seconds(60)? };
    limiter.define(Limit::new(tpm.clone(), kind, Capacity::new(100)?)).await?;
    let request = |amount| {
        let requirements = Requirements::of([(tpm.clone(), amount)])?;
        Ok::<_, Error>(ReserveRequest::new(new_lease(), requirements))
    };
    let whole = request(100)?;
    let decision = limiter.reserve(&whole).await?;
    steps.equal("reserve all 100 tokens", &"allowed", &word(&decision));
    let decision = limiter.reserve(&request(90)?).await?;
    steps.equal("reserve 90 more", &"denied", &word(&decision));

    let actuals = Actuals::of([(tpm.clone(), 10)])?;
    limiter.complete(&CompleteRequest::new(whole.lease, actuals)).await?;
    let started_at = Instant::now();
    let mut allowed_after = None;
    while started_at.elapsed() < FREE_WITHIN {
        match limiter.reserve(&request(90)?).await? {
            Decision::Allowed { .. } => {
                allowed_after = Some(started_at.elapsed());
                break;
            }
            Decision::Denied(_) => sleep_until(Instant::now() + Duration::from_millis(10)).await,
        }
    }
    let actual = match allowed_after {
        Some(after) => format!("allowed after {after:?}"),
        None => "denied until then".to_owned(),
    };
    let what = "complete the first with 10 tokens used, then reserve 90";
    let expected = format!("allowed within {FREE_WITHIN:?}");
    steps.check(what, &expected, &actual, allowed_after.is_some());

    let state = limiter.state(&tpm).await?.ok_or("the limit is defined")?;
    steps.equal("usage of the limit: 10 used, 90 reserved", &100, &state.usage.used);
    let decision = limiter.reserve(&request(1)?).await?;
    steps.equal("reserve one more token", &"denied", &word(&decision));
    Ok(())
}
