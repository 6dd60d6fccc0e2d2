//! Utilisation of a simulated provider by the scheduler, on paused time.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use ratelimiter_client::memory::MemoryOptions;
use ratelimiter_client::{MemoryLimiter, TokioClock};
use simulated_provider::TwoProviders;

/// SCH-01, CLI-03
///
/// The goals of `examples/utilisation`: no 429, 95 % of a saturated provider's tokens used, and no longer waits at an
/// unsaturated one.
#[tokio::test(start_paused = true)]
async fn sch_01_ten_thousand_jobs_use_a_saturated_provider_well_and_never_trip_a_limit() {
    let in_process =
        || async { Ok(MemoryLimiter::with_options(MemoryOptions::for_tests(TokioClock::new()))) };
    let comparison = TwoProviders::default().compare(in_process).await.unwrap();
    assert_eq!(comparison.unmet_goals(), [""; 0], "{comparison}");
    assert_eq!(comparison.busy.waits.count + comparison.quiet.waits.count, 10_000);
}
