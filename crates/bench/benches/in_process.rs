//! Reserve and complete in process, beside four checks of the `governor` crate's keyed limiter.
#![allow(missing_docs, reason = "a benchmark is a program")]
#![allow(clippy::print_stdout, reason = "the table is what the benchmark is for")]

use std::hint::black_box;

use bench::{Bar, Contestant, Figure, Rounds, Workload};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use nonzero_ext::nonzero;
use ratelimiter::LeaseId;

const MODELS: usize = 1_000;
const OPERATIONS: u32 = 50_000;
const ROUNDS: usize = 21;

const GOVERNOR: &str = "governor, 4 keyed checks";

fn main() {
    println!("In process, {MODELS} x 4 keys; medians of {ROUNDS} rounds of {OPERATIONS}.\n");
    // First, before other work leaves memory that could be used again.
    let bytes = memory_per_lease();
    let one_thread = beside_governor();
    let live = by_live_leases();
    let threads = by_threads();
    println!("{}", one_thread.table(GOVERNOR));
    println!("reserve(4) + complete, by the number of leases that are live meanwhile:\n");
    println!("{}", live.table("1 thousand live leases"));
    println!("reserve(4) + complete of all threads together, each on models of its own:\n");
    println!("{}", threads.table("1 thread"));
    let (reserve, cycle) = (
        one_thread.ratio("reserve(4)", GOVERNOR),
        one_thread.ratio("reserve(4) + complete", GOVERNOR),
    );
    let growth = live.ratio("1 million live leases", "1 thousand live leases");
    let speedup = 1.0 / threads.ratio("2 threads", "1 thread");
    let bars = [
        Bar::at_most("reserve(4), × four governor checks", reserve, 1.0),
        Bar::at_most("reserve(4) + complete, × four governor checks", cycle, 2.0),
        Bar::at_most("the same, later bar", cycle, 1.0),
        Bar::at_most("1 million live leases, × 1 thousand", growth, 1.5),
        Bar::at_most("the same, later bar", growth, 1.3),
        Bar::at_least("throughput of 2 threads, × 1 thread, later bar", speedup, 1.6),
        Bar::at_most("resident bytes of a live lease of four", bytes, 400.0),
    ];
    println!("{}", Bar::table(&bars));
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

fn beside_governor() -> Rounds {
    let (mut reserves, mut cycles) = (Workload::new(MODELS), Workload::new(MODELS));
    let mut denials = Workload::without_room(MODELS);
    let governor: DefaultKeyedRateLimiter<String> =
        RateLimiter::keyed(Quota::per_second(nonzero!(u32::MAX)));
    let keys: Vec<[String; 4]> = reserves.keys().map(|keys| keys.map(str::to_owned)).collect();
    let mut leases = Vec::with_capacity(OPERATIONS as usize);
    Rounds::run(
        ROUNDS,
        &mut [
            Contestant::new(GOVERNOR, || {
                Figure::of(OPERATIONS, |n| {
                    for key in &keys[n % MODELS] {
                        black_box(governor.check_key(key)).expect("the quota never runs out");
                    }
                })
            }),
            Contestant::new("reserve(4)", || reserve_round(&mut reserves, &mut leases)),
            Contestant::new("reserve(4) + complete", || cycle_round(&mut cycles)),
            Contestant::new("reserve(4), denied by one limit", || {
                Figure::of(OPERATIONS, |n| denials.deny(n))
            }),
        ],
    )
}

fn by_live_leases() -> Rounds {
    let filled = |leases: usize| {
        let mut workload = Workload::new(MODELS);
        for n in 0..leases {
            workload.reserve(n);
        }
        workload
    };
    let (mut few, mut many) = (filled(1_000), filled(1_000_000));
    Rounds::run(
        ROUNDS,
        &mut [
            Contestant::new("1 thousand live leases", || cycle_round(&mut few)),
            Contestant::new("1 million live leases", || cycle_round(&mut many)),
        ],
    )
}

/// One limiter each; two threads share theirs, and each has half of its models and half of the operations.
fn by_threads() -> Rounds {
    let mut one = Workload::new(MODELS);
    let [mut first, mut second] = Workload::new(MODELS).halves();
    let half = |workload: &mut Workload| {
        for n in 0..OPERATIONS as usize / 2 {
            let lease = workload.reserve(n);
            workload.complete(n, lease);
        }
    };
    Rounds::run(
        ROUNDS,
        &mut [
            Contestant::new("1 thread", || cycle_round(&mut one)),
            Contestant::new("2 threads", || {
                Figure::of_all(OPERATIONS, || {
                    std::thread::scope(|scope| {
                        scope.spawn(|| half(&mut first));
                        half(&mut second);
                    });
                })
            }),
        ],
    )
}

fn memory_per_lease() -> f64 {
    let mut workload = Workload::new(MODELS);
    let before = resident_bytes();
    let count = 1_000_000_u32;
    for n in 0..count as usize {
        workload.reserve(n);
    }
    (resident_bytes() - before) / f64::from(count)
}

fn resident_bytes() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux tells the resident set");
    let pages = statm.split(' ').nth(1).expect("the second field");
    pages.parse::<f64>().expect("a number of pages") * 4_096.0
}
