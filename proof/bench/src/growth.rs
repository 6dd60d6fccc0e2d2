//! Growth of the cost with more keys and more leases: as which power of n?

use std::collections::HashMap;
use std::hint::black_box;

use crate::chart::Panel;
use crate::in_process::peers::{Governor, Peer, Verdict};
use crate::progress::Progress;
use crate::report::Section;
use crate::rounds::{Comparison, Rounds, float, itself, nanos_each};
use crate::scale::Scale;
use crate::summary::{Summary, count};
use crate::table::Table;
use crate::workload::{LIMITS_PER_CALL, PreparedLimiter};

/// Factors by which keys or leases are multiplied.
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

/// The least that a lease consists of: its ID, and four amounts with their expiry.
pub(crate) type PlainLeases = HashMap<u128, [(u64, u64); LIMITS_PER_CALL]>;

pub(crate) fn run(scale: Scale, progress: &Progress) -> Section {
    let full = Sizes { models: 1_000, leases: 10_000, operations: 25_000, rounds: 11 };
    let quick = Sizes { models: 1, leases: 10, operations: 100, rounds: 2 };
    let sizes = scale.pick(full, quick);
    let rounds = measure(sizes, progress);
    let mut section = Section::default();
    section.text(
        "The exponent is that of the power of n which fits best: 0 is constant cost, 1 is linear cost. `governor` with the same keys and \
         a hash map with the same number of entries show how much of the growth is the machine's memory latency.",
    );
    let header = ["what grows", "from", "ns at 1×", "at 10×, × that at 1×", "at 100×", "exponent"];
    let mut table = Table::new("", header);
    let mut panel = Panel::new(
        "Growth: cost, × the cost with as many keys or leases as at first (less is better)",
    );
    for (name, from) in rows(sizes) {
        let at = |times: usize| name_at(name, times);
        let ratio = |times| rounds.ratio(&at(times), &at(1), itself);
        table.row([
            name.to_owned(),
            count(from),
            rounds.summary(&at(1), itself).to_string(),
            ratio(10).to_string(),
            ratio(100).to_string(),
            exponent_of(name, &rounds).to_string(),
        ]);
    }
    for times in TIMES {
        let ratio = |name| rounds.ratio(&name_at(name, times), &name_at(name, 1), itself).median;
        let bars = rows(sizes).map(|(name, _)| (name, ratio(name)));
        panel.group(format!("{times} times as many"), bars);
    }
    section.table(&table);
    section.panels.push(panel);
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
    let mut comparison = Comparison::new();
    for times in TIMES {
        let governor = Governor::new(models * times, Verdict::Allowed);
        comparison.add(name_at(GOVERNOR, times), move || {
            nanos_each(operations, |n| assert!(governor.allows(n), "it never denies"))
        });
        let mut by_keys = PreparedLimiter::new(models * times).filled(leases);
        comparison.add(name_at(BY_KEYS, times), move || {
            nanos_each(operations, |n| by_keys.reserve_and_complete(n))
        });
        let mut map = plain_leases(leases * times);
        comparison.add(name_at(MAP, times), move || {
            nanos_each(operations, |n| {
                let id = plain_id(usize::MAX - n);
                map.insert(id, [(1, 1); LIMITS_PER_CALL]);
                black_box(map.get(&id));
                map.remove(&id);
            })
        });
        let mut by_leases = PreparedLimiter::new(models).filled(leases * times);
        comparison.add(name_at(BY_LEASES, times), move || {
            nanos_each(operations, |n| by_leases.reserve_and_complete(n))
        });
    }
    comparison.run(rounds, progress, "growth")
}

/// So many leases as entries of a hash map.
pub(crate) fn plain_leases(leases: usize) -> PlainLeases {
    (0..leases).map(|n| (plain_id(n), [(n as u64, n as u64); LIMITS_PER_CALL])).collect()
}

const fn plain_id(n: usize) -> u128 {
    (n as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

fn exponent_of(name: &str, rounds: &Rounds) -> Summary {
    let costs = TIMES.map(|times| rounds.values(&name_at(name, times), itself));
    let of_round = |round: usize| exponent(&TIMES.map(float), &costs.each_ref().map(|c| c[round]));
    Summary::of(&(0..costs[0].len()).map(of_round).collect::<Vec<_>>())
}

/// The power of n that fits the costs best: the slope of the regression line through their logarithms.
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
