//! Metric families of the crate `prometheus`.

use prometheus::core::Collector;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

/// Upper bounds of the buckets in seconds, from a request served from memory to one that times out.
const BOUNDS: [f64; 14] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0,
];

pub(crate) fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    family: prometheus::Result<C>,
) -> C {
    let family = family.expect("names and labels are valid");
    registry.register(Box::new(family.clone())).expect("each name is used once");
    family
}

pub(crate) fn counters(registry: &Registry, name: &str, help: &str, label: &str) -> IntCounterVec {
    register(registry, IntCounterVec::new(Opts::new(name, help), &[label]))
}

/// Histograms of durations.
pub(crate) fn timings(registry: &Registry, name: &str, help: &str, label: &str) -> HistogramVec {
    let options = HistogramOpts::new(name, help).buckets(BOUNDS.to_vec());
    register(registry, HistogramVec::new(options, &[label]))
}
