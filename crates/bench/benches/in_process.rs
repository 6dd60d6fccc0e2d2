//! Reserve and complete in process, beside four checks of the `governor` crate's keyed limiter.
#![allow(missing_docs, reason = "a benchmark is a program")]
#![allow(clippy::print_stdout, reason = "the table is what the benchmark is for")]

use std::hint::black_box;

use bench::{Contestant, Figure, Rounds, Workload};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use nonzero_ext::nonzero;
use ratelimiter::LeaseId;

const MODELS: usize = 1_000;
const OPERATIONS: u32 = 50_000;
const ROUNDS: usize = 21;

fn main() {
    println!(
        "In process, {MODELS} x 4 keys, one thread; median of {ROUNDS} rounds of {OPERATIONS}.\n"
    );
    // First, before other work leaves memory that could be used again.
    memory_per_lease();
    beside_governor();
    by_live_leases();
}

/// Rounds of reserves; afterwards everything is completed, without being measured, so that rounds are alike.
fn reserve_round(workload: &mut Workload, leases: &mut Vec<LeaseId>) -> Figure {
    let figure = Figure::of(OPERATIONS, |n| leases.push(workload.reserve(n)));
    for (n, lease) in leases.drain(..).enumerate() {
        workload.complete(n, lease);
    }
    figure
}

fn cycle_round(workload: &mut Workload) -> Figure {
    Figure::of(OPERATIONS, |n| {
        let lease = workload.reserve(n);
        workload.complete(n, lease);
    })
}

fn beside_governor() {
    let (mut reserves, mut cycles) = (Workload::new(MODELS), Workload::new(MODELS));
    let governor: DefaultKeyedRateLimiter<String> =
        RateLimiter::keyed(Quota::per_second(nonzero!(u32::MAX)));
    let keys: Vec<[String; 4]> = reserves.keys().map(|keys| keys.map(str::to_owned)).collect();
    let mut leases = Vec::with_capacity(OPERATIONS as usize);
    let rounds = Rounds::run(
        ROUNDS,
        &mut [
            Contestant::new("governor, 4 keyed checks", || {
                Figure::of(OPERATIONS, |n| {
                    for key in &keys[n % MODELS] {
                        black_box(governor.check_key(key)).expect("the quota never runs out");
                    }
                })
            }),
            Contestant::new("reserve(4)", || reserve_round(&mut reserves, &mut leases)),
            Contestant::new("reserve(4) + complete", || cycle_round(&mut cycles)),
        ],
    );
    println!("{}", rounds.table("governor, 4 keyed checks"));
}

fn by_live_leases() {
    let filled = |leases: usize| {
        let mut workload = Workload::new(MODELS);
        for n in 0..leases {
            workload.reserve(n);
        }
        workload
    };
    let (mut few, mut many) = (filled(1_000), filled(1_000_000));
    let rounds = Rounds::run(
        ROUNDS,
        &mut [
            Contestant::new("1 thousand live leases", || cycle_round(&mut few)),
            Contestant::new("1 million live leases", || cycle_round(&mut many)),
        ],
    );
    println!("reserve(4) + complete, by the number of leases that are live meanwhile:\n");
    println!("{}", rounds.table("1 thousand live leases"));
}

fn memory_per_lease() {
    let mut workload = Workload::new(MODELS);
    let before = resident_bytes();
    let count = 1_000_000;
    for n in 0..count {
        workload.reserve(n);
    }
    let bytes = (resident_bytes() - before) / count;
    println!("Resident memory for 1 million live leases of four: {bytes} bytes a lease.\n");
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux tells the resident set");
    let pages = statm.split(' ').nth(1).expect("the second field");
    pages.parse::<usize>().expect("a number of pages") * 4_096
}
