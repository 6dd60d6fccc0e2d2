//! Memory of definitions and leases.
//!
//! Each value is the resident set of a process that does nothing else, so that no memory freed by earlier work is reused.

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::FakeClock;

use crate::child::Role;
use crate::growth::plain_leases;
use crate::in_process::peers::governor_of_keys;
use crate::probe::Probe;
use crate::progress::Progress;
use crate::report::Section;
use crate::rounds::{Comparison, float, itself};
use crate::scale::Scale;
use crate::summary::{count, number};
use crate::table::Table;
use crate::workload::{LIMITS_PER_CALL, PreparedLimiter, limiter_with};

/// How many items a probe allocates.
const COUNT_VARIABLE: &str = "BENCH_COUNT";
/// The models of the leases.
const MODELS: usize = 1_000;
/// Longer than every window, and than ended leases are remembered.
const LONG_AFTER: Duration = Duration::from_secs(2 * 86_400);

impl Probe {
    /// Allocates, and prints the bytes per item.
    pub(crate) fn report(self) -> ExitCode {
        let count = std::env::var(COUNT_VARIABLE).ok().and_then(|text| text.parse().ok());
        let count: usize = count.expect("the parent sets it");
        crate::print(&format!("{}\n", self.bytes(count) / float(count)));
        ExitCode::SUCCESS
    }

    fn bytes(self, count: usize) -> f64 {
        match self {
            Self::Definitions => resident_growth(|| limiter_with(count / LIMITS_PER_CALL)),
            Self::GovernorKeys => resident_growth(|| governor_of_keys(count / LIMITS_PER_CALL)),
            Self::LiveLeases => {
                let limiter = PreparedLimiter::new(MODELS.min(count));
                resident_growth(|| limiter.filled(count))
            }
            Self::PlainLeases => resident_growth(|| plain_leases(count)),
            Self::DeniedLeases => {
                let mut limiter = PreparedLimiter::full(MODELS.min(count));
                resident_growth(|| (0..count).for_each(|n| limiter.deny(n)))
            }
            Self::EndedLeases => {
                let clock = Arc::new(FakeClock::new());
                let mut limiter = PreparedLimiter::on_clock(MODELS.min(count), clock.clone());
                resident_growth(|| {
                    let leases: Vec<_> = (0..count).map(|n| limiter.reserve(n)).collect();
                    for (n, lease) in leases.into_iter().enumerate() {
                        limiter.complete(n, lease);
                    }
                    clock.advance(LONG_AFTER);
                    limiter.limiter.sweep();
                })
            }
        }
    }

    /// Bytes per item, measured in a new process.
    fn measure(self, count: usize) -> f64 {
        let mut command = Role::Memory(self).command();
        let output = command.env(COUNT_VARIABLE, count.to_string()).output();
        let output = output.expect("this program can be started");
        let printed = String::from_utf8_lossy(&output.stdout);
        printed.trim().parse().expect("a probe prints a number")
    }
}

/// Growth of the resident set in bytes while something is made, and before it is dropped.
fn resident_growth<T>(make: impl FnOnce() -> T) -> f64 {
    let before = resident_bytes();
    let made = make();
    let after = resident_bytes();
    drop(made);
    after - before
}

fn resident_bytes() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = statm.split(' ').nth(1).expect("the second field");
    pages.parse::<f64>().expect("a number of pages") * 4_096.0
}

pub(crate) fn run(scale: Scale, progress: &Progress) -> Section {
    let (definitions, leases) = scale.pick((400_000, 1_000_000), (400, 1_000));
    let mut comparison = Comparison::new();
    for probe in Probe::ALL {
        let count = match probe {
            Probe::Definitions | Probe::GovernorKeys => definitions,
            Probe::LiveLeases | Probe::PlainLeases | Probe::DeniedLeases | Probe::EndedLeases => {
                leases
            }
        };
        comparison.add(probe.name(), move || probe.measure(count));
    }
    let rounds = comparison.run(scale.pick(3, 1), progress, "memory");
    let mut section = Section::default();
    section.text(format!(
        "Growth of a process's resident set with {} definitions, or {} leases on {} models. The leases of the burst were completed, \
         and swept two days later: what is left is what the process keeps.",
        count(definitions),
        count(leases),
        count(MODELS)
    ));
    let mut table = Table::new("", ["what", "bytes each", "compared with"]);
    let pairs = [
        (Probe::Definitions, Probe::GovernorKeys),
        (Probe::LiveLeases, Probe::PlainLeases),
        (Probe::DeniedLeases, Probe::PlainLeases),
        (Probe::EndedLeases, Probe::LiveLeases),
    ];
    for (probe, other) in pairs {
        let bytes = rounds.summary(probe.name(), itself).to_string();
        let other_bytes = rounds.summary(other.name(), itself).median;
        let ratio = rounds.ratio(probe.name(), other.name(), itself);
        let compared = format!("{ratio} × {}, {} bytes", other.name(), number(other_bytes));
        table.row([probe.name().to_owned(), bytes, compared]);
    }
    section.table(&table);
    section
}
