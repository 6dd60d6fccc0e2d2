//! Leases of four limits through the limiter, held against the same chains straight through the client crate.
//!
//! `cargo bench -p ratelimiter-tigerbeetle --bench limiter` starts a production server of its own from
//! `TIGERBEETLE_BIN` or the `PATH`; with `-- cold` it measures only completes of leases that were made elsewhere. All figures of one run take turns on one server; what counts are their ratios.

#![allow(missing_docs, unreachable_pub, reason = "a benchmark is a program")]
#![allow(clippy::print_stdout, reason = "the table is what the benchmark is for")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on says so")]

mod cold;
mod contestants;

use std::time::Duration;

use testkit::tigerbeetle::{Mode, TestCluster, find_binary};

use crate::cold::{ColdContest, ColdFigures};
use crate::contestants::{Contest, Figures};

const ROUNDS: usize = 7;
/// How long each contestant's turn is.
const TURN: Duration = Duration::from_secs(1);
/// What the issue asks for: of the client alone, batching against none, one caller's latency.
const BARS: [(&str, f64); 3] = [("≥", 0.8), ("≥", 5.0), ("≤", 1.5)];
/// `TB-23`: cold completes against warm ones, and the p99 of the reserves beside them.
const COLD_BARS: [(&str, f64); 2] = [("≥", 0.5), ("≤", 3.0)];

fn main() {
    // `cargo test --benches` starts this too, and wants to know only that it compiles.
    if !std::env::args().any(|argument| argument == "--bench") || find_binary().is_none() {
        println!("TIGERBEETLE BENCHMARK NOT RUN: needs `cargo bench` and a server binary");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = TestCluster::start(Mode::Production);
        if !std::env::args().any(|argument| argument == "cold") {
            print(&Contest::prepare(&cluster, TURN).await.run(ROUNDS).await);
        }
        print_cold(&ColdContest::prepare(&cluster).await.run(ROUNDS).await);
    });
}

fn print(figures: &Figures) {
    let Figures { direct, limiter, batched, unbatched, direct_micros, limiter_micros } = figures;
    println!("medians of {ROUNDS} rounds of {TURN:?}, 4 transfers a chain, one session\n");
    println!("| what | figure |\n| --- | --- |");
    println!("| client crate alone, 2000 chains a call | {direct:.0} chains/s |");
    println!("| limiter, 4096 callers | {limiter:.0} leases/s |");
    println!("| limiter, 256 callers | {batched:.0} leases/s |");
    println!("| limiter, 256 callers, one chain a request | {unbatched:.0} leases/s |");
    println!("| client crate alone, one caller | {direct_micros:.0} µs |");
    println!("| limiter, one caller | {limiter_micros:.0} µs |\n");
    let ratios = [limiter / direct, batched / unbatched, limiter_micros / direct_micros];
    let names = ["limiter / client alone", "batching on / off", "latency, limiter / client alone"];
    print_bars(names.into_iter().zip(ratios).zip(BARS));
}

fn print_cold(figures: &ColdFigures) {
    let ColdFigures { warm, cold, p99_alone, p99_beside_warm, p99_beside_cold } = figures;
    println!(
        "\nmedians of {ROUNDS} rounds, completes of leases of four, 1024 callers, 16 others that reserve\n"
    );
    println!("| what | figure |\n| --- | --- |");
    println!("| completes at the limiter that made the leases | {warm:.0}/s |");
    println!("| completes at another one | {cold:.0}/s |");
    println!("| reserves alone, p99 | {p99_alone:.0} µs |");
    println!("| reserves beside the former, p99 | {p99_beside_warm:.0} µs |");
    println!("| reserves beside the latter, p99 | {p99_beside_cold:.0} µs |\n");
    let ratios = [cold / warm, p99_beside_cold / p99_beside_warm];
    let names = ["completes, cold / warm", "p99 of reserves beside, cold / warm"];
    print_bars(names.into_iter().zip(ratios).zip(COLD_BARS));
}

fn print_bars(bars: impl Iterator<Item = ((&'static str, f64), (&'static str, f64))>) {
    for ((name, ratio), (sign, bar)) in bars {
        let holds = if sign == "≥" { ratio >= bar } else { ratio <= bar };
        let verdict = if holds { "holds" } else { "MISSED" };
        println!("{name}: {ratio:.2} ({sign} {bar}: {verdict})");
    }
}
