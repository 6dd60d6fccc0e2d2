//! Reserve and complete in process, compared with other crates.

pub(crate) mod peers;

use std::hint::black_box;
use std::thread;

use ratelimiter::LeaseId;

use self::peers::{GOVERNOR, LIMITADOR, Peers, THROTTLECRAB, Verdict};
use crate::chart::Panel;
use crate::progress::Progress;
use crate::report::Section;
use crate::rounds::{Comparison, Rounds, itself, nanos_each, nanos_of_all};
use crate::scale::Scale;
use crate::summary::count;
use crate::table::Table;
use crate::threshold::Threshold;
use crate::workload::{LIMITS_PER_CALL, PreparedLimiter};

const RESERVE: &str = "ratelimiter, reserve(4)";
const PAIR: &str = "ratelimiter, reserve(4) + complete";
const PARSED_PAIR: &str = "the same, with its keys parsed each time";
const OWN_LIMITERS: &str = "the same, each thread with its own limiter";
const ARITHMETIC: &str = "arithmetic alone, nothing shared";
const DENY: &str = "ratelimiter, reserve(4) denied";
const THREADS: [usize; 3] = [1, 2, 4];

pub(crate) const THRESHOLDS: [Threshold; 5] = [
    Threshold::at_most(
        "in process, reserve(4) + complete, 1 thread, × the time of four `governor` checks",
        1.5,
    ),
    Threshold::at_most("the same, reserve(4) alone", 1.3),
    Threshold::at_most("the same, reserve(4) denied", 1.0),
    Threshold::at_least(
        "in process, throughput of 2 threads on distinct models, × that of a limiter per thread",
        0.9,
    ),
    Threshold::at_most("in process, cost at 1 million live leases, × at 1 thousand", 1.2),
];

#[derive(Debug, Clone, Copy)]
struct Sizes {
    models: [usize; 3],
    live_leases: [usize; 4],
    operations: usize,
    rounds: usize,
}

pub(crate) fn run(scale: Scale, progress: &Progress) -> Section {
    let full = Sizes {
        models: [1, 1_000, 100_000],
        live_leases: [1_000, 10_000, 100_000, 1_000_000],
        operations: 25_000,
        rounds: 11,
    };
    let quick =
        Sizes { models: [1, 10, 100], live_leases: [10, 20, 50, 100], operations: 100, rounds: 2 };
    let sizes = scale.pick(full, quick);
    let mut section = Section::default();
    section.text(format!(
        "{} rounds of {} calls. A call needs four limits of a model: requests and tokens per minute, concurrency, and a \
         tenant's tokens per day. The models come in the same shuffled order for every contestant, and all requests are prepared, \
         except where the row says that the keys are parsed. `governor` and `throttlecrab` check four keys one \
         after the other and undo nothing if a later one denies; `limitador` checks four counters, all or none. None of the \
         three has leases, so there is nothing to complete.",
        sizes.rounds,
        count(sizes.operations)
    ));
    let by_keys: Vec<_> =
        sizes.models.iter().map(|&models| (models, allowed(models, sizes, progress))).collect();
    for (models, rounds) in &by_keys {
        let keys = count(models * LIMITS_PER_CALL);
        section.table(&rounds.table(&format!("Allowed, 1 thread, {keys} keys:"), "ns", GOVERNOR));
    }
    section.panels.push(chart_of_keys(&by_keys));
    let denied = denied(sizes, progress);
    section.table(&denied.table("Denied by the third of four limits, 1 thread:", "ns", GOVERNOR));
    let by_threads = by_threads(sizes, progress);
    section.text(
        "The last two rows are the ceiling of this machine: the same work without shared data, and work without memory access.",
    );
    section.table(&table_of_threads(&by_threads));
    section.panels.push(chart_of_threads(&by_threads));
    let by_leases = by_leases(sizes, progress);
    let first = leases_name(sizes.live_leases[0]);
    let caption = "reserve(4) + complete, by the number of other live leases:";
    section.table(&by_leases.table(caption, "ns", &first));
    let (_, usual) = &by_keys[1];
    let last = leases_name(sizes.live_leases[sizes.live_leases.len() - 1]);
    let measured = [
        usual.ratio(PAIR, GOVERNOR, itself),
        usual.ratio(RESERVE, GOVERNOR, itself),
        denied.ratio(DENY, GOVERNOR, itself),
        by_threads.ratio(&threads_name(OWN_LIMITERS, 2), &threads_name(PAIR, 2), itself),
        by_leases.ratio(&last, &first, itself),
    ];
    section.thresholds = Threshold::measured(THRESHOLDS, measured);
    section
}

fn allowed(models: usize, sizes: Sizes, progress: &Progress) -> Rounds {
    let Sizes { operations, rounds, .. } = sizes;
    let peers = Peers::new(models, Verdict::Allowed);
    let [mut reserves, mut pairs, mut parsed] = [(); 3].map(|()| PreparedLimiter::new(models));
    let mut leases: Vec<LeaseId> = Vec::with_capacity(operations);
    let mut comparison = Comparison::new();
    for (name, peer) in peers.named() {
        comparison.add(name, move || {
            nanos_each(operations, |n| assert!(peer.allows(n), "it never denies"))
        });
    }
    comparison.add(RESERVE, || {
        let nanos = nanos_each(operations, |n| leases.push(reserves.reserve(n)));
        // Not measured, so that every round starts from the same state.
        leases.drain(..).enumerate().for_each(|(n, lease)| reserves.complete(n, lease));
        nanos
    });
    comparison.add(PAIR, || nanos_each(operations, |n| pairs.reserve_and_complete(n)));
    comparison
        .add(PARSED_PAIR, || nanos_each(operations, |n| parsed.parse_reserve_and_complete(n)));
    comparison.run(rounds, progress, &format!("{} keys", count(models * LIMITS_PER_CALL)))
}

fn denied(sizes: Sizes, progress: &Progress) -> Rounds {
    let Sizes { models: [_, models, _], operations, rounds, .. } = sizes;
    let peers = Peers::new(models, Verdict::Denied);
    let mut ours = PreparedLimiter::full(models);
    let mut comparison = Comparison::new();
    for (name, peer) in peers.named() {
        comparison.add(name, move || {
            nanos_each(operations, |n| assert!(!peer.allows(n), "it always denies"))
        });
    }
    comparison.add(DENY, || nanos_each(operations, |n| ours.deny(n)));
    comparison.run(rounds, progress, "denied")
}

/// Elapsed nanoseconds per call of all threads together, each with its own models.
fn by_threads(sizes: Sizes, progress: &Progress) -> Rounds {
    let Sizes { models: [_, models, _], operations, rounds, .. } = sizes;
    let peers = Peers::new(models, Verdict::Allowed);
    let mut comparison = Comparison::new();
    for threads in THREADS {
        for (name, peer) in peers.named() {
            comparison.add(threads_name(name, threads), move || {
                together(operations, (0..threads).collect(), move |&mut thread, n| {
                    assert!(peer.allows(n * threads + thread), "it never denies");
                })
            });
        }
        let mut parts = PreparedLimiter::new(models).split(threads);
        let mut own: Vec<_> =
            (0..threads).map(|_| PreparedLimiter::new(models / threads)).collect();
        let pairs = |limiters: &mut Vec<PreparedLimiter>| {
            let limiters = limiters.iter_mut().collect();
            together(operations, limiters, |limiter, n| limiter.reserve_and_complete(n))
        };
        comparison.add(threads_name(PAIR, threads), move || pairs(&mut parts));
        comparison.add(threads_name(OWN_LIMITERS, threads), move || pairs(&mut own));
        comparison.add(threads_name(ARITHMETIC, threads), move || {
            together(operations, vec![(); threads], |(), n| arithmetic(n as u64))
        });
    }
    comparison.run(rounds, progress, "threads")
}

/// A few hundred nanoseconds of independent sums, which keep all units of a core busy.
fn arithmetic(seed: u64) {
    let mut sums = [1, 2, 3, 4, 5, 6, 7, 8].map(|lane| seed ^ lane);
    for _ in 0..200 {
        sums = sums.map(|sum| sum.rotate_left(7).wrapping_add(sum));
        black_box(&mut sums);
    }
}

/// Runs equal shares of the operations, each part on its own thread. Returns nanoseconds per operation.
fn together<P: Send>(
    operations: usize,
    mut parts: Vec<P>,
    work: impl Fn(&mut P, usize) + Sync,
) -> f64 {
    let share = operations / parts.len();
    nanos_of_all(share * parts.len(), || {
        thread::scope(|scope| {
            let mut parts = parts.iter_mut();
            let own = parts.next().expect("at least one thread");
            for part in parts {
                let work = &work;
                scope.spawn(move || (0..share).for_each(|n| work(part, n)));
            }
            (0..share).for_each(|n| work(own, n));
        });
    })
}

fn by_leases(sizes: Sizes, progress: &Progress) -> Rounds {
    let Sizes { models: [_, models, _], live_leases, operations, rounds } = sizes;
    let mut comparison = Comparison::new();
    for leases in live_leases {
        let mut limiter = PreparedLimiter::new(models).filled(leases);
        comparison.add(leases_name(leases), move || {
            nanos_each(operations, |n| limiter.reserve_and_complete(n))
        });
    }
    comparison.run(rounds, progress, "live leases")
}

fn leases_name(leases: usize) -> String {
    format!("{} live leases", count(leases))
}

fn threads_name(name: &str, threads: usize) -> String {
    format!("{name}, {threads} threads")
}

fn table_of_threads(rounds: &Rounds) -> Table {
    let caption = "Allowed, each thread with its own models; throughput, × that of 1 thread:";
    let mut table = Table::new(caption, ["work", "ns with 1 thread", "2 threads", "4 threads"]);
    for name in [GOVERNOR, THROTTLECRAB, LIMITADOR, PAIR, OWN_LIMITERS, ARITHMETIC] {
        let alone = threads_name(name, 1);
        let speedup =
            |threads| rounds.ratio(&alone, &threads_name(name, threads), itself).to_string();
        let nanos = rounds.summary(&alone, itself).to_string();
        table.row([name.to_owned(), nanos, speedup(2), speedup(4)]);
    }
    table
}

fn chart_of_keys(by_keys: &[(usize, Rounds)]) -> Panel {
    let mut panel =
        Panel::new("In process, 1 thread: ns for a call with four limits (less is better)");
    for (models, rounds) in by_keys {
        let label = format!("{} keys", count(models * LIMITS_PER_CALL));
        let group = [RESERVE, PAIR, GOVERNOR, THROTTLECRAB, LIMITADOR];
        panel.group(label, group.map(|name| (name, rounds.summary(name, itself).median)));
    }
    panel
}

fn chart_of_threads(rounds: &Rounds) -> Panel {
    let title = "In process: thousand calls per second on distinct keys (more is better)";
    let mut panel = Panel::new(title);
    for threads in THREADS {
        let thousands =
            |name: &str| 1e6 / rounds.summary(&threads_name(name, threads), itself).median;
        let group = [PAIR, GOVERNOR, THROTTLECRAB, LIMITADOR];
        let label = format!("{threads} thread{}", if threads == 1 { "" } else { "s" });
        panel.group(label, group.map(|name| (name, thousands(name))));
    }
    panel
}
