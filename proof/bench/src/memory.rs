//! Memory of definitions and leases.

use crate::probe::{MODELS, Probe};
use crate::progress::Progress;
use crate::report::Section;
use crate::rounds::{Comparison, itself};
use crate::scale::Scale;
use crate::summary::{count, number};
use crate::table::Table;

const OF_DEFINITIONS: &[Probe] = &[Probe::Definitions, Probe::GovernorKeys];
const OF_LEASES: &[Probe] =
    &[Probe::LiveLeases, Probe::PlainLeases, Probe::DeniedLeases, Probe::EndedLeases];

pub(crate) fn run(scale: Scale, progress: &Progress) -> Section {
    let (definitions, leases) = scale.pick((400_000, 1_000_000), (400, 1_000));
    let mut comparison = Comparison::new();
    for (probes, count) in [(OF_DEFINITIONS, definitions), (OF_LEASES, leases)] {
        for &probe in probes {
            comparison.add(probe.name(), move || probe.measure(count));
        }
    }
    let rounds = comparison.run(scale.pick(3, 1), progress, "memory");
    let mut section = Section::default();
    section.text(format!(
        "Growth of a process's resident set with {} definitions, or {} leases on {} models. The leases of the burst were completed, \
         and swept two days later for a minute: what is left is what the process keeps.",
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
