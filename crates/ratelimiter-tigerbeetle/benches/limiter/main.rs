//! The limiter compared with the client crate alone, on leases of four limits.
//!
//! `cargo bench -p ratelimiter-tigerbeetle --bench limiter` starts a production server from
//! `TIGERBEETLE_BIN` or the `PATH`; with `-- cold` it measures only completes of leases from
//! another limiter. All measurements of a run alternate on one server; their ratios are the result.

#![allow(missing_docs, unreachable_pub, reason = "a benchmark is a program")]
#![allow(clippy::print_stdout, reason = "the table is what the benchmark is for")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot continue panics")]

mod cold;
mod comparison;

use std::time::Duration;

use testkit::tigerbeetle::{Mode, TestCluster, find_binary};

use crate::cold::{ColdComparison, ColdResults};
use crate::comparison::{Comparison, LimiterResults};

const ROUNDS: usize = 7;
/// Duration of each measurement.
const TURN: Duration = Duration::from_secs(1);
/// Targets: throughput compared with the client alone, batching compared with none, one caller's
/// latency.
const THRESHOLDS: [(&str, f64); 3] = [("≥", 0.8), ("≥", 5.0), ("≤", 1.5)];
/// `TB-23`: cold completes compared with warm ones, and the p99 of concurrent reserves.
const COLD_THRESHOLDS: [(&str, f64); 2] = [("≥", 0.5), ("≤", 3.0)];

fn main() {
    // `cargo test --benches` also starts this, only to check that it compiles.
    if !std::env::args().any(|argument| argument == "--bench") || find_binary().is_none() {
        println!("TIGERBEETLE BENCHMARK NOT RUN: needs `cargo bench` and a server binary");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = TestCluster::start(Mode::Production);
        if !std::env::args().any(|argument| argument == "cold") {
            print(&Comparison::prepare(&cluster, TURN).await.run(ROUNDS).await);
        }
        print_cold(&ColdComparison::prepare(&cluster).await.run(ROUNDS).await);
    });
}

fn print(results: &LimiterResults) {
    let LimiterResults { direct, limiter, batched, unbatched, direct_micros, limiter_micros } =
        results;
    println!("medians of {ROUNDS} rounds of {TURN:?}, 4 transfers a chain, one session\n");
    println!("| what | result |\n| --- | --- |");
    println!("| client crate alone, 2000 chains a call | {direct:.0} chains/s |");
    println!("| limiter, 4096 callers | {limiter:.0} leases/s |");
    println!("| limiter, 256 callers | {batched:.0} leases/s |");
    println!("| limiter, 256 callers, one chain a request | {unbatched:.0} leases/s |");
    println!("| client crate alone, one caller | {direct_micros:.0} µs |");
    println!("| limiter, one caller | {limiter_micros:.0} µs |\n");
    let ratios = [limiter / direct, batched / unbatched, limiter_micros / direct_micros];
    let names = ["limiter / client alone", "batching on / off", "latency, limiter / client alone"];
    print_ratios(names.into_iter().zip(ratios).zip(THRESHOLDS));
}

fn print_cold(results: &ColdResults) {
    let ColdResults { warm, cold, p99_alone, p99_with_warm, p99_with_cold } = results;
    println!(
        "\nmedians of {ROUNDS} rounds, completes of leases of four, 1024 callers, 16 others that reserve\n"
    );
    println!("| what | result |\n| --- | --- |");
    println!("| completes at the limiter that made the leases | {warm:.0}/s |");
    println!("| completes at another one | {cold:.0}/s |");
    println!("| reserves alone, p99 | {p99_alone:.0} µs |");
    println!("| reserves during the former, p99 | {p99_with_warm:.0} µs |");
    println!("| reserves during the latter, p99 | {p99_with_cold:.0} µs |\n");
    let ratios = [cold / warm, p99_with_cold / p99_with_warm];
    let names = ["completes, cold / warm", "p99 of concurrent reserves, cold / warm"];
    print_ratios(names.into_iter().zip(ratios).zip(COLD_THRESHOLDS));
}

fn print_ratios(
    ratios_with_thresholds: impl Iterator<Item = ((&'static str, f64), (&'static str, f64))>,
) {
    for ((name, ratio), (sign, threshold)) in ratios_with_thresholds {
        let holds = if sign == "≥" { ratio >= threshold } else { ratio <= threshold };
        let verdict = if holds { "holds" } else { "MISSED" };
        println!("{name}: {ratio:.2} ({sign} {threshold}: {verdict})");
    }
}
