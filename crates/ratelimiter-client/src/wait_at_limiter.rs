//! How a denied job asks again with a request that waits for room, where the limiter lets it.

use std::time::Duration;

use ratelimiter::{Denial, Limiter, Wait};

/// How long such a request waits.
const WAIT_AT_LIMITER: Duration = Duration::from_secs(30);

/// How the next request of a tenant's job waits after this denial. `None` if the limiter does not let it, or the hint is longer than
/// the wait, so that it would not help.
pub(crate) fn wait_after(denial: &Denial, limiter: &impl Limiter, tenant: &str) -> Option<Wait> {
    if !limiter.can_wait() || denial.retry_after > WAIT_AT_LIMITER {
        return None;
    }
    // A tenant whose name is no name of a queue does not wait.
    Wait::new(WAIT_AT_LIMITER, tenant).ok()
}
