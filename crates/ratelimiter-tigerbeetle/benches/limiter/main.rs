//! Leases of four limits through the limiter, held against the same chains straight through the client crate.
//!
//! `cargo bench -p ratelimiter-tigerbeetle --bench limiter` starts a production server of its own from
//! `TIGERBEETLE_BIN` or the `PATH`. All figures of one run take turns on one server; what counts are their ratios.

#![allow(missing_docs, unreachable_pub, reason = "a benchmark is a program")]
#![allow(clippy::print_stdout, reason = "the table is what the benchmark is for")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on says so")]

mod contestants;

use std::time::Duration;

use ratelimiter_tigerbeetle::testing::{Mode, TestCluster, find_binary};

use crate::contestants::{Contest, Figures};

const ROUNDS: usize = 7;
/// How long each contestant's turn is.
const TURN: Duration = Duration::from_secs(1);
/// What the issue asks for: of the client alone, batching against none, one caller's latency.
const BARS: [(&str, f64); 3] = [("≥", 0.8), ("≥", 5.0), ("≤", 1.5)];

fn main() {
    // `cargo test --benches` starts this too, and wants to know only that it compiles.
    if !std::env::args().any(|argument| argument == "--bench") || find_binary().is_none() {
        println!("TIGERBEETLE BENCHMARK NOT RUN: needs `cargo bench` and a server binary");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let figures = runtime.block_on(async {
        let cluster = TestCluster::start(Mode::Production);
        let contest = Contest::prepare(&cluster, TURN).await;
        contest.run(ROUNDS).await
    });
    print(&figures);
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
    for ((name, ratio), (sign, bar)) in names.into_iter().zip(ratios).zip(BARS) {
        let holds = if sign == "≥" { ratio >= bar } else { ratio <= bar };
        let verdict = if holds { "holds" } else { "MISSED" };
        println!("{name}: {ratio:.2} ({sign} {bar}: {verdict})");
    }
}
