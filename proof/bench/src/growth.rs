//! The same work with more keys and more leases, and how the cost grows: as n to which power?

use std::collections::HashMap;
use std::hint::black_box;

use crate::in_process::peers::{Governor, Peer, Room};
use crate::progress::Progress;
use crate::report::Section;
use crate::report::chart::{Lines, Panel};
use crate::rounds::{Contest, Rounds, float, itself, nanos_each};
use crate::scale::Scale;
use crate::spread::{Spread, count};
use crate::table::Table;
use crate::workload::{LIMITS_PER_CALL, Workload};

/// How many times as many keys or leases.
const TIMES: [usize; 3] = [1, 10, 100];

const BY_KEYS: &str = "ratelimiter, reserve(4) + complete, keys";
const BY_LEASES: &str = "ratelimiter, reserve(4) + complete, live leases";
const GOVERNOR: &str = "governor, 4 keyed checks, keys";
const MAP: &str = "a std `HashMap`: insert, look up, remove, entries";

#[derive(Debug, Clone, Copy)]
struct Sizes {
    models: usize,
    leases: usize,
    operations: usize,
    rounds: usize,
}

/// What a lease is at the least: its ID, and four amounts with their ends.
pub(crate) type PlainLeases = HashMap<u128, [(u64, u64); LIMITS_PER_CALL]>;

pub(crate) fn run(scale: Scale, progress: &Progress) -> Section {
    let full = Sizes { models: 1_000, leases: 10_000, operations: 25_000, rounds: 11 };
    let quick = Sizes { models: 1, leases: 10, operations: 100, rounds: 2 };
    let sizes = scale.pick(full, quick);
    let rounds = measure(sizes, progress);
    let mut section = Section::default();
    section.text(
        "The exponent is that of the power of n which fits best: 0 is a cost that does not grow, 1 one that grows with n. What grows \
         without any work of ours is the time that the machine's memory takes; `governor` on the same keys and a hash map with the same number \
         of entries show how much that is.",
    );
    let header = ["what grows", "from", "ns at 1×", "at 10×, × that at 1×", "at 100×", "exponent"];
    let mut table = Table::new("", header);
    let mut lines = Lines::new("Growth: cost, × the cost at 1× (less is better)", "times as many");
    for (name, from) in rows(sizes) {
        let at = |times: usize| name_at(name, times);
        let ratio = |times| rounds.ratio(&at(times), &at(1), itself);
        table.row([
            name.to_owned(),
            count(from),
            rounds.spread(&at(1), itself).to_string(),
            ratio(10).to_string(),
            ratio(100).to_string(),
            exponent_of(name, &rounds).to_string(),
        ]);
        lines.line(name, TIMES.map(|times| (float(times), ratio(times).median)));
    }
    section.table(table);
    section.panels.push(Panel::Lines(lines));
    section
}

fn rows(sizes: Sizes) -> [(&'static str, usize); 4] {
    let keys = sizes.models * LIMITS_PER_CALL;
    [(BY_KEYS, keys), (GOVERNOR, keys), (BY_LEASES, sizes.leases), (MAP, sizes.leases)]
}

fn name_at(name: &str, times: usize) -> String {
    format!("{name} ×{times}")
}

fn measure(sizes: Sizes, progress: &Progress) -> Rounds {
    let Sizes { models, leases, operations, rounds } = sizes;
    let mut contest = Contest::new();
    for times in TIMES {
        let governor = Governor::new(models * times, Room::Plenty);
        contest.add(name_at(GOVERNOR, times), move || {
            nanos_each(operations, |n| assert!(governor.ask(n), "there is room"))
        });
        let mut by_keys = Workload::new(models * times).filled(leases);
        contest.add(name_at(BY_KEYS, times), move || nanos_each(operations, |n| by_keys.cycle(n)));
        let mut map = plain_leases(leases * times);
        contest.add(name_at(MAP, times), move || {
            nanos_each(operations, |n| {
                let id = plain_id(usize::MAX - n);
                map.insert(id, [(1, 1); LIMITS_PER_CALL]);
                black_box(map.get(&id));
                map.remove(&id);
            })
        });
        let mut by_leases = Workload::new(models).filled(leases * times);
        contest
            .add(name_at(BY_LEASES, times), move || nanos_each(operations, |n| by_leases.cycle(n)));
    }
    contest.run(rounds, progress, "growth")
}

/// So many leases as they would be in a map alone.
pub(crate) fn plain_leases(leases: usize) -> PlainLeases {
    (0..leases).map(|n| (plain_id(n), [(n as u64, n as u64); LIMITS_PER_CALL])).collect()
}

const fn plain_id(n: usize) -> u128 {
    (n as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

fn exponent_of(name: &str, rounds: &Rounds) -> Spread {
    let figures = TIMES.map(|times| rounds.figures(&name_at(name, times), itself));
    let of_round =
        |round: usize| exponent(&TIMES.map(float), &figures.each_ref().map(|f| f[round]));
    Spread::of(&(0..figures[0].len()).map(of_round).collect::<Vec<_>>())
}

/// The power of n that fits the costs best: the slope of a line through their logarithms.
fn exponent<const N: usize>(sizes: &[f64; N], costs: &[f64; N]) -> f64 {
    let (xs, ys) = (sizes.map(f64::ln), costs.map(f64::ln));
    let mean = |values: &[f64; N]| values.iter().sum::<f64>() / float(N);
    let (x, y) = (mean(&xs), mean(&ys));
    let covariance: f64 = xs.iter().zip(&ys).map(|(xi, yi)| (xi - x) * (yi - y)).sum();
    covariance / xs.iter().map(|xi| (xi - x).powi(2)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponent_of_a_power_is_that_power() {
        for power in [0.0, 0.5, 1.0, 2.0] {
            let costs = [1.0_f64, 10.0, 100.0].map(|size| 3.0 * size.powf(power));
            let found = exponent(&[1.0, 10.0, 100.0], &costs);
            assert!((found - power).abs() < 1e-9, "{found} for {power}");
        }
    }
}
