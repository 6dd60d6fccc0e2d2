//! Results of a load test, and their report.

use std::time::Duration;

use super::super::latency::Latencies;

#[derive(Debug)]
pub(super) struct LoadResults {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) failed: u64,
    pub(super) first_failure: Option<String>,
    pub(super) reserves: Latencies,
    pub(super) completes: Latencies,
}

impl LoadResults {
    pub(super) fn new() -> Self {
        Self {
            allowed: 0,
            denied: 0,
            failed: 0,
            first_failure: None,
            reserves: Latencies::new(),
            completes: Latencies::new(),
        }
    }

    pub(super) fn add(&mut self, more: &Self) {
        let Self { allowed, denied, failed, first_failure, reserves, completes } = more;
        self.allowed += allowed;
        self.denied += denied;
        self.failed += failed;
        if self.first_failure.is_none() {
            self.first_failure.clone_from(first_failure);
        }
        self.reserves.add(reserves);
        self.completes.add(completes);
    }

    fn reserve_count(&self) -> u64 {
        self.allowed + self.denied
    }

    /// One line while the test runs.
    pub(super) fn progress(&self, elapsed: Duration) -> String {
        let Self { allowed, denied, failed, reserves, .. } = self;
        format!(
            "{:>5.1} s  {:>9} reserves/s  p50 {}  p99 {}  allowed {allowed}  denied {denied}  failed {failed}",
            elapsed.as_secs_f64(),
            per_second(self.reserve_count(), elapsed),
            micros(reserves.percentile(50.0)),
            micros(reserves.percentile(99.0)),
        )
    }

    pub(super) fn report(&self, target: &str, elapsed: Duration) -> String {
        let Self { allowed, denied, failed, first_failure, reserves, completes } = self;
        let mut text = format!(
            "target     {target}\nduration   {:.1} s\nthroughput {} reserves/s\nallowed    {allowed}\ndenied     {denied}\nfailed     {failed}\n",
            elapsed.as_secs_f64(),
            per_second(self.reserve_count(), elapsed),
        );
        if let Some(failure) = first_failure {
            text += &format!("           first error: {failure}\n");
        }
        text += &line("reserve", reserves);
        text += &line("complete", completes);
        text
    }
}

fn line(name: &str, latencies: &Latencies) -> String {
    let [p50, p95, p99] = [50.0, 95.0, 99.0].map(|percent| micros(latencies.percentile(percent)));
    format!("{name:<10} p50 {p50}  p95 {p95}  p99 {p99}\n")
}

fn per_second(count: u64, elapsed: Duration) -> u128 {
    u128::from(count) * 1_000_000_000 / elapsed.as_nanos().max(1)
}

fn micros(latency: Duration) -> String {
    match latency.as_nanos() {
        nanos if nanos < 10_000 => format!("{:.2} µs", latency.as_secs_f64() * 1e6),
        nanos if nanos < 10_000_000 => format!("{:.0} µs", latency.as_secs_f64() * 1e6),
        _ => format!("{:.1} ms", latency.as_secs_f64() * 1e3),
    }
}
