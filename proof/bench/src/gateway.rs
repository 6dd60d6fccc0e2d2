//! ratelimiterd as a gateway to a provider, compared with a bare proxy and LiteLLM.

pub(crate) mod bare_proxy;
mod calls;
mod litellm;
mod servers;
mod streams;
mod utilisation;

use std::time::Duration;

use crate::progress::Progress;
use crate::report::{Section, SkipReason};
use crate::scale::Scale;
use crate::threshold::Threshold;

pub(crate) const THRESHOLDS: [Threshold; 8] = [
    Threshold::at_most(
        "Gateway, four limits, processor time per call, 64 connections, × a bare hyper proxy",
        1.5,
    ),
    Threshold::at_most("Gateway, what it adds to the p99 of one connection, µs", 300.0),
    Threshold::at_least("Gateway, calls a second, 64 connections, × LiteLLM", 100.0),
    Threshold::at_most(
        "Gateway, 1 000 streams at a time, what it adds to the p99 of the first byte, µs",
        2_000.0,
    ),
    Threshold::at_most("the same, memory per stream, KiB", 64.0),
    Threshold::at_least(
        "Gateway, use of a provider's limits, × what exact reservations allow, the worst of four cases",
        0.97,
    ),
    Threshold::at_most("the same, the provider's 429s for 1 000 calls, the worst case", 1.0),
    Threshold::at_most("the same, failed calls, all cases", 0.0),
];

pub(crate) fn run(scale: Scale, progress: &Progress) -> Result<Section, SkipReason> {
    let calls = calls::Sizes {
        connections: [1, 64],
        duration: scale.pick(Duration::from_secs(1), Duration::from_millis(20)),
        rounds: scale.pick(9, 1),
    };
    let streams = streams::Sizes {
        streams: scale.pick(1_000, 10),
        chunks: scale.pick(20, 4),
        chunk_ms: scale.pick(250, 10),
        rounds: scale.pick(3, 1),
    };
    let utilisation = utilisation::Sizes {
        callers: scale.pick(400, 4),
        rpm: 6_600,
        tpm: 4_000_000,
        duration: scale.pick(Duration::from_secs(230), Duration::from_secs(3)),
    };
    let folder =
        tempfile::tempdir().map_err(|error| SkipReason(format!("no temporary folder: {error}")))?;
    let calls = calls::measure(calls, folder.path(), progress);
    let streams = streams::measure(streams, folder.path(), progress);
    let utilisation = utilisation::measure(utilisation, folder.path(), progress);
    let mut section = Section::default();
    section.text(calls.describe());
    section.table(&calls.table());
    section.text(streams.describe());
    section.table(&streams.table());
    section.text(utilisation.describe());
    section.table(&utilisation.table());
    let measured = [
        Some(calls.processor()),
        Some(calls.added_p99()),
        calls.rate_to_litellm(),
        Some(streams.added_p99()),
        Some(streams.stream_kib()),
        Some(utilisation.utilisation()),
        Some(utilisation.provider_429s()),
        Some(utilisation.failed()),
    ];
    section.thresholds = Threshold::measured_where(THRESHOLDS, measured);
    Ok(section)
}
