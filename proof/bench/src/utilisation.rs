//! How much of a simulated provider's capacity the client library's scheduler uses.

use ratelimiter_client::memory::MemoryOptions;
use ratelimiter_client::{MemoryLimiter, TokioClock};
use simulated_provider::{ProviderResult, TwoProviders};

use crate::report::{NotRun, Section};
use crate::scale::Scale;
use crate::spread::{count, figure};
use crate::table::Table;

pub(crate) fn run(scale: Scale) -> Result<Section, NotRun> {
    let full = TwoProviders::default();
    let quick = TwoProviders { busy_jobs: 300, quiet_jobs: 100, ..TwoProviders::default() };
    let providers = scale.pick(full, quick);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("the system has room for a runtime");
    let in_process =
        || async { Ok(MemoryLimiter::with_options(MemoryOptions::for_tests(TokioClock::new()))) };
    let comparison = runtime
        .block_on(providers.compare(in_process))
        .map_err(|error| NotRun(format!("a job failed: {error}")))?;
    let mut section = Section::default();
    section.text(
        "Two providers with limits on requests, tokens and calls at a time, on a clock that jumps from event to event. One has far more \
         work than it allows, the other a job now and then. The figures are the same in every run.",
    );
    let header = ["provider", "jobs", "429s", "of its tokens used", "mean wait", "longest wait"];
    let mut table = Table::new("", header);
    let rows = [
        ("busy", &comparison.busy),
        ("quiet, alone", &comparison.quiet_alone),
        ("quiet, beside the busy one", &comparison.quiet),
    ];
    for (name, ProviderResult { metrics, waits, utilisation }) in rows {
        table.row([
            name.to_owned(),
            count(waits.count),
            metrics.refused.to_string(),
            format!("{} %", figure(utilisation * 100.0)),
            format!("{} s", figure(waits.mean.as_secs_f64())),
            format!("{} s", figure(waits.max.as_secs_f64())),
        ]);
    }
    section.table(table);
    Ok(section)
}
