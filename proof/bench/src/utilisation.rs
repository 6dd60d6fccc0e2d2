//! Use of a simulated provider's capacity by the client library's scheduler.

use ratelimiter_client::memory::MemoryOptions;
use ratelimiter_client::{MemoryLimiter, TokioClock};
use simulated_provider::TwoProviders;

use crate::report::{Section, SkipReason};
use crate::scale::Scale;

pub(crate) fn run(scale: Scale) -> Result<Section, SkipReason> {
    let full = TwoProviders::default();
    let quick = TwoProviders { busy_jobs: 300, quiet_jobs: 100, ..TwoProviders::default() };
    let providers = scale.pick(full, quick);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime starts");
    let in_process =
        || async { Ok(MemoryLimiter::with_options(MemoryOptions::for_tests(TokioClock::new()))) };
    let comparison = runtime
        .block_on(providers.compare(in_process))
        .map_err(|error| SkipReason(format!("a job failed: {error}")))?;
    let mut section = Section::default();
    section.text(
        "Two providers with limits on requests, tokens and concurrent calls, in virtual time. One has far more work than it allows, the \
         other an occasional job. The results are the same in every run.",
    );
    section.text(comparison.to_string().trim_end());
    Ok(section)
}
