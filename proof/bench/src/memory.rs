//! What definitions and leases take of the machine's memory.
//!
//! Each figure is the resident set of a process that does nothing else, so that no earlier work has left room to use again.

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
use crate::rounds::{Contest, float, itself};
use crate::scale::Scale;
use crate::spread::{count, figure};
use crate::table::Table;
use crate::workload::{LIMITS_PER_CALL, Workload, limiter_with};

/// Tells a probe how many of its things to make.
const COUNT_VARIABLE: &str = "BENCH_COUNT";
/// How many models leases are spread over.
const MODELS: usize = 1_000;
/// More than the longest window and all that is remembered.
const LONG_AFTER: Duration = Duration::from_secs(2 * 86_400);

impl Probe {
    /// Takes the memory, and prints how many bytes it is for each thing.
    pub(crate) fn report(self) -> ExitCode {
        let count = std::env::var(COUNT_VARIABLE).ok().and_then(|text| text.parse().ok());
        let count: usize = count.expect("a run says how many");
        crate::print(&format!("{}\n", self.bytes(count) / float(count)));
        ExitCode::SUCCESS
    }

    fn bytes(self, count: usize) -> f64 {
        match self {
            Self::Definitions => grown(|| limiter_with(count / LIMITS_PER_CALL)),
            Self::GovernorKeys => grown(|| governor_of_keys(count / LIMITS_PER_CALL)),
            Self::LiveLeases => {
                let workload = Workload::new(MODELS.min(count));
                grown(|| workload.filled(count))
            }
            Self::PlainLeases => grown(|| plain_leases(count)),
            Self::DeniedLeases => {
                let mut workload = Workload::without_room(MODELS.min(count));
                grown(|| (0..count).for_each(|n| workload.deny(n)))
            }
            Self::EndedLeases => {
                let clock = Arc::new(FakeClock::new());
                let mut workload = Workload::on_clock(MODELS.min(count), clock.clone());
                grown(|| {
                    let leases: Vec<_> = (0..count).map(|n| workload.reserve(n)).collect();
                    for (n, lease) in leases.into_iter().enumerate() {
                        workload.complete(n, lease);
                    }
                    clock.advance(LONG_AFTER);
                    workload.limiter.sweep();
                })
            }
        }
    }

    /// Bytes for each of `count` things, in a process of its own.
    fn measure(self, count: usize) -> f64 {
        let mut command = Role::Memory(self).command();
        let output = command.env(COUNT_VARIABLE, count.to_string()).output();
        let output = output.expect("this program can be started");
        let printed = String::from_utf8_lossy(&output.stdout);
        printed.trim().parse().expect("a probe prints a number")
    }
}

/// By how many bytes the resident set has grown while something was made and is still there.
fn grown<T>(make: impl FnOnce() -> T) -> f64 {
    let before = resident_bytes();
    let made = make();
    let after = resident_bytes();
    drop(made);
    after - before
}

fn resident_bytes() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux tells the resident set");
    let pages = statm.split(' ').nth(1).expect("the second field");
    pages.parse::<f64>().expect("a number of pages") * 4_096.0
}

pub(crate) fn run(scale: Scale, progress: &Progress) -> Section {
    let (definitions, leases) = scale.pick((400_000, 1_000_000), (400, 1_000));
    let mut contest = Contest::new();
    for probe in Probe::ALL {
        let count = match probe {
            Probe::Definitions | Probe::GovernorKeys => definitions,
            Probe::LiveLeases | Probe::PlainLeases | Probe::DeniedLeases | Probe::EndedLeases => {
                leases
            }
        };
        contest.add(probe.name(), move || probe.measure(count));
    }
    let rounds = contest.run(scale.pick(3, 1), progress, "memory");
    let mut section = Section::default();
    section.text(format!(
        "Growth of a process's resident set, over {} definitions or {} leases on {} models. The burst that has ended was made, completed, \
         and two days later swept away: what is left of it is what the process keeps.",
        count(definitions),
        count(leases),
        count(MODELS)
    ));
    let mut table = Table::new("", ["what", "bytes each", "beside"]);
    let pairs = [
        (Probe::Definitions, Probe::GovernorKeys),
        (Probe::LiveLeases, Probe::PlainLeases),
        (Probe::DeniedLeases, Probe::PlainLeases),
        (Probe::EndedLeases, Probe::LiveLeases),
    ];
    for (probe, other) in pairs {
        let bytes = rounds.spread(probe.name(), itself).to_string();
        let beside = rounds.spread(other.name(), itself).median;
        let ratio = rounds.ratio(probe.name(), other.name(), itself);
        let beside = format!("{ratio} × {}, {} bytes", other.name(), figure(beside));
        table.row([probe.name().to_owned(), bytes, beside]);
    }
    section.table(table);
    section
}
