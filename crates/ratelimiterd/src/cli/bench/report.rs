//! Report of a load test.

use std::time::Duration;

use crate::load::{Latencies, Results, micros};

/// One line while the test runs.
pub(super) fn progress(results: &Results, elapsed: Duration) -> String {
    let Results { allowed, denied, failed, reserves, .. } = results;
    format!(
        "{:>5.1} s  {:>9} reserves/s  p50 {}  p99 {}  allowed {allowed}  denied {denied}  failed {failed}",
        elapsed.as_secs_f64(),
        per_second(allowed + denied, elapsed),
        micros(reserves.percentile(50.0)),
        micros(reserves.percentile(99.0)),
    )
}

pub(super) fn report(results: &Results, target: &str, elapsed: Duration) -> String {
    let Results { allowed, denied, failed, first_failure, reserves, completes } = results;
    let mut text = format!(
        "target     {target}\nduration   {:.1} s\nthroughput {} reserves/s\nallowed    {allowed}\ndenied     {denied}\nfailed     {failed}\n",
        elapsed.as_secs_f64(),
        per_second(allowed + denied, elapsed),
    );
    if let Some(failure) = first_failure {
        text += &format!("           first error: {failure}\n");
    }
    let line = |name: &str, latencies: &Latencies| format!("{name:<10} {latencies}\n");
    text + &line("reserve", reserves) + &line("complete", completes)
}

fn per_second(count: u64, elapsed: Duration) -> u128 {
    u128::from(count) * 1_000_000_000 / elapsed.as_nanos().max(1)
}
