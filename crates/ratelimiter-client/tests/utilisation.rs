//! What the scheduler reaches, on a simulated provider and paused time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

use ratelimiter_client::memory::MemoryOptions;
use ratelimiter_client::{MemoryLimiter, TokioClock};
use simulated_provider::TwoProviders;

/// SCH-01, CLI-03
///
/// The figures of `examples/utilisation`: no 429, 95 % of a saturated provider's tokens, and an unsaturated one whose jobs
/// do not notice.
#[tokio::test(start_paused = true)]
async fn sch_01_ten_thousand_jobs_use_a_saturated_provider_well_and_never_trip_a_limit() {
    let in_process =
        || async { Ok(MemoryLimiter::with_options(MemoryOptions::for_tests(TokioClock::new()))) };
    let comparison = TwoProviders::default().compare(in_process).await.unwrap();
    assert_eq!(comparison.unmet_goals(), [""; 0], "{comparison}");
    assert_eq!(comparison.busy.waits.count + comparison.quiet.waits.count, 10_000);
}
