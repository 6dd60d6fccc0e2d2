//! Reserve and complete in process, beside the crates that others would take.

pub(crate) mod peers;

use std::hint::black_box;
use std::thread;

use ratelimiter::LeaseId;

use self::peers::{Governor, Limitador, Peer, Room, ThrottleCrab};
use crate::bar::Bar;
use crate::progress::Progress;
use crate::report::Section;
use crate::report::chart::{Bars, Panel};
use crate::rounds::{Contest, Rounds, itself, nanos_each, nanos_of_all};
use crate::scale::Scale;
use crate::spread::{Spread, count};
use crate::table::Table;
use crate::workload::{LIMITS_PER_CALL, Workload};

const GOVERNOR: &str = "governor, 4 keyed checks";
const THROTTLECRAB: &str = "throttlecrab, 4 checks";
const LIMITADOR: &str = "limitador in memory, 4 counters";
const RESERVE: &str = "ratelimiter, reserve(4)";
const CYCLE: &str = "ratelimiter, reserve(4) + complete";
const FROM_TEXT: &str = "the same, its keys made from text each time";
const OWN_LIMITERS: &str = "the same, each thread on a limiter of its own";
const ARITHMETIC: &str = "arithmetic alone, nothing shared";
const DENY: &str = "ratelimiter, reserve(4) denied";

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// How many models the key counts have.
    models: [usize; 3],
    live_leases: [usize; 4],
    operations: usize,
    rounds: usize,
}

/// What the bars are about.
#[derive(Debug)]
pub(crate) struct Figures {
    cycle_beside_governor: Spread,
    limitador_beside_cycle: Spread,
    two_threads: Spread,
    many_leases: Spread,
}

pub(crate) fn bars(figures: Option<&Figures>) -> Vec<Bar> {
    let of = |figure: fn(&Figures) -> Spread| figures.map(figure);
    vec![
        Bar::at_most(
            "in process, reserve(4) + complete, 1 thread, × the time of four `governor` checks",
            1.0,
            of(|f| f.cycle_beside_governor),
        ),
        Bar::at_least(
            "the same, × the speed of `limitador`",
            10.0,
            of(|f| f.limitador_beside_cycle),
        ),
        Bar::at_least(
            "the same, throughput of 2 threads on distinct keys, × 1 thread",
            1.6,
            of(|f| f.two_threads),
        ),
        Bar::at_most(
            "the same, cost at 1 million live leases, × at 1 thousand",
            1.3,
            of(|f| f.many_leases),
        ),
    ]
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
        "Rounds of {} calls, {} of them. A call needs four limits of a model: requests and tokens a minute, concurrency, and a \
         tenant's tokens a day. The models come in the same shuffled order for everybody, and everybody's requests are made \
         beforehand; where the keys are made from text each time, the row says so. `governor` and `throttlecrab` check four keys one \
         after the other and undo nothing if a later one refuses; `limitador` checks four counters, all or none. None of the \
         three knows leases, so there is nothing to complete.",
        count(sizes.operations),
        sizes.rounds
    ));
    let by_keys: Vec<_> =
        sizes.models.iter().map(|&models| (models, allowed(models, sizes, progress))).collect();
    for (models, rounds) in &by_keys {
        section.table(beside_governor(*models, rounds));
    }
    section.panels.push(chart_of_keys(&by_keys));
    let denied = denied(sizes, progress);
    section.table(table("Denied by the third of four limits, 1 thread:", &denied, GOVERNOR));
    let by_threads = by_threads(sizes, progress);
    section.text(
        "The last two rows are what this machine allows: the same work where threads share nothing but the machine, and work that needs no \
         memory.",
    );
    section.table(table_of_threads(&by_threads));
    section.panels.push(chart_of_threads(&by_threads));
    let by_leases = by_leases(sizes, progress);
    let first = leases_name(sizes.live_leases[0]);
    section.table(table(
        "reserve(4) + complete, by the number of leases that are live meanwhile:",
        &by_leases,
        &first,
    ));
    let (_, usual) = &by_keys[1];
    let last = leases_name(sizes.live_leases[sizes.live_leases.len() - 1]);
    section.bars = bars(Some(&Figures {
        cycle_beside_governor: usual.ratio(CYCLE, GOVERNOR, itself),
        limitador_beside_cycle: usual.ratio(LIMITADOR, CYCLE, itself),
        two_threads: by_threads.ratio(&threads_name(CYCLE, 1), &threads_name(CYCLE, 2), itself),
        many_leases: by_leases.ratio(&last, &first, itself),
    }));
    section
}

fn allowed(models: usize, sizes: Sizes, progress: &Progress) -> Rounds {
    let Sizes { operations, rounds, .. } = sizes;
    let governor = Governor::new(models, Room::Plenty);
    let crab = ThrottleCrab::new(models, Room::Plenty);
    let limitador = Limitador::new(models, Room::Plenty);
    let mut ours = [const { None }; 3].map(|_: Option<()>| Workload::new(models));
    let [reserves, cycles, from_text] = &mut ours;
    let mut leases: Vec<LeaseId> = Vec::with_capacity(operations);
    let mut contest = Contest::new();
    for (name, peer) in
        [(GOVERNOR, &governor as &dyn Peer), (THROTTLECRAB, &crab), (LIMITADOR, &limitador)]
    {
        contest.add(name, move || {
            nanos_each(operations, |n| assert!(peer.ask(n), "there is room for everything"))
        });
    }
    contest.add(RESERVE, || {
        let nanos = nanos_each(operations, |n| leases.push(reserves.reserve(n)));
        // Not measured, so that the next round begins as this one did.
        leases.drain(..).enumerate().for_each(|(n, lease)| reserves.complete(n, lease));
        nanos
    });
    contest.add(CYCLE, || nanos_each(operations, |n| cycles.cycle(n)));
    contest.add(FROM_TEXT, || nanos_each(operations, |n| from_text.cycle_from_text(n)));
    contest.run(rounds, progress, &format!("{} keys", count(models * LIMITS_PER_CALL)))
}

fn denied(sizes: Sizes, progress: &Progress) -> Rounds {
    let Sizes { models: [_, models, _], operations, rounds, .. } = sizes;
    let governor = Governor::new(models, Room::None);
    let crab = ThrottleCrab::new(models, Room::None);
    let limitador = Limitador::new(models, Room::None);
    let mut ours = Workload::without_room(models);
    let mut contest = Contest::new();
    for (name, peer) in
        [(GOVERNOR, &governor as &dyn Peer), (THROTTLECRAB, &crab), (LIMITADOR, &limitador)]
    {
        contest.add(name, move || {
            nanos_each(operations, |n| assert!(!peer.ask(n), "there is no room"))
        });
    }
    contest.add(DENY, || nanos_each(operations, |n| ours.deny(n)));
    contest.run(rounds, progress, "denied")
}

const THREADS: [usize; 3] = [1, 2, 4];

/// Nanoseconds of time over the calls of all threads together, each of which has models of its own.
fn by_threads(sizes: Sizes, progress: &Progress) -> Rounds {
    let Sizes { models: [_, models, _], operations, rounds, .. } = sizes;
    let governor = Governor::new(models, Room::Plenty);
    let crab = ThrottleCrab::new(models, Room::Plenty);
    let limitador = Limitador::new(models, Room::Plenty);
    let mut contest = Contest::new();
    for threads in THREADS {
        for (name, peer) in
            [(GOVERNOR, &governor as &dyn Peer), (THROTTLECRAB, &crab), (LIMITADOR, &limitador)]
        {
            contest.add(threads_name(name, threads), move || {
                together(operations, (0..threads).collect(), move |&mut thread, n| {
                    assert!(peer.ask(n * threads + thread), "there is room for everything");
                })
            });
        }
        let mut parts = Workload::new(models).split(threads);
        contest.add(threads_name(CYCLE, threads), move || {
            together(operations, parts.iter_mut().collect(), |workload, n| workload.cycle(n))
        });
        let mut own: Vec<_> = (0..threads).map(|_| Workload::new(models / threads)).collect();
        contest.add(threads_name(OWN_LIMITERS, threads), move || {
            together(operations, own.iter_mut().collect(), |workload, n| workload.cycle(n))
        });
        contest.add(threads_name(ARITHMETIC, threads), move || {
            together(operations, vec![(); threads], |(), n| arithmetic(n as u64))
        });
    }
    contest.run(rounds, progress, "threads")
}

/// Work of a few hundred nanoseconds that keeps the units of a processor busy: several sums that do not wait for each other.
fn arithmetic(seed: u64) {
    let mut sums = [1, 2, 3, 4, 5, 6, 7, 8].map(|lane| seed ^ lane);
    for _ in 0..200 {
        sums = sums.map(|sum| sum.rotate_left(7).wrapping_add(sum));
        black_box(&mut sums);
    }
}

/// Lets each part do its share of the operations on a thread of its own.
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
    let mut contest = Contest::new();
    for leases in live_leases {
        let mut workload = Workload::new(models).filled(leases);
        contest.add(leases_name(leases), move || nanos_each(operations, |n| workload.cycle(n)));
    }
    contest.run(rounds, progress, "live leases")
}

fn leases_name(leases: usize) -> String {
    format!("{} live leases", count(leases))
}

fn threads_name(name: &str, threads: usize) -> String {
    format!("{name}, {threads} threads")
}

fn beside_governor(models: usize, rounds: &Rounds) -> Table {
    let keys = count(models * LIMITS_PER_CALL);
    table(&format!("Allowed, 1 thread, {keys} keys:"), rounds, GOVERNOR)
}

fn table(caption: &str, rounds: &Rounds, other: &str) -> Table {
    let mut table = Table::new(caption, ["work", "ns", &format!("× {other}")]);
    for name in rounds.names() {
        let (nanos, ratio) = (rounds.spread(name, itself), rounds.ratio(name, other, itself));
        table.row([name.to_owned(), nanos.to_string(), ratio.to_string()]);
    }
    table
}

fn table_of_threads(rounds: &Rounds) -> Table {
    let caption = "Allowed, each thread on models of its own; how many times the calls per second of 1 thread:";
    let mut table = Table::new(caption, ["work", "ns with 1 thread", "2 threads", "4 threads"]);
    for name in [GOVERNOR, THROTTLECRAB, LIMITADOR, CYCLE, OWN_LIMITERS, ARITHMETIC] {
        let alone = threads_name(name, 1);
        let speedup =
            |threads| rounds.ratio(&alone, &threads_name(name, threads), itself).to_string();
        let nanos = rounds.spread(&alone, itself).to_string();
        table.row([name.to_owned(), nanos, speedup(2), speedup(4)]);
    }
    table
}

fn chart_of_keys(by_keys: &[(usize, Rounds)]) -> Panel {
    let mut bars =
        Bars::new("In process, 1 thread: ns for a call with four limits (less is better)");
    for (models, rounds) in by_keys {
        let label = format!("{} keys", count(models * LIMITS_PER_CALL));
        let group = [RESERVE, CYCLE, GOVERNOR, THROTTLECRAB, LIMITADOR];
        bars.group(label, group.map(|name| (name, rounds.spread(name, itself).median)));
    }
    Panel::Bars(bars)
}

fn chart_of_threads(rounds: &Rounds) -> Panel {
    let title = "In process: thousand calls per second on distinct keys (more is better)";
    let mut bars = Bars::new(title);
    for threads in THREADS {
        let thousands =
            |name: &str| 1e6 / rounds.spread(&threads_name(name, threads), itself).median;
        let group = [CYCLE, GOVERNOR, THROTTLECRAB, LIMITADOR];
        let label = format!("{threads} thread{}", if threads == 1 { "" } else { "s" });
        bars.group(label, group.map(|name| (name, thousands(name))));
    }
    Panel::Bars(bars)
}
