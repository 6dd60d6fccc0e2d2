//! The list of scenarios is complete, and each is in `docs/reference/coordination-conformance.md`, which the
//! tests of `coordination-sql` keep true for all providers.

use std::collections::HashSet;

use coordination_conformance::{Scenario, in_memory, scenarios};

fn memory_scenarios() -> Vec<Scenario> {
    [in_memory::SCENARIOS.to_vec(), scenarios()].concat()
}

#[test]
fn the_document_has_every_scenario() {
    let document = include_str!("../../../docs/reference/coordination-conformance.md");
    for scenario in memory_scenarios() {
        let (id, text, test) = (scenario.id, scenario.text, scenario.test);
        let row = format!("| `{id}` | {text} | `{test}` | passed |");
        assert!(document.contains(&row), "not in the document: {row}");
    }
}

#[test]
fn every_scenario_of_the_seed_is_there_once() {
    let ids: Vec<&str> = memory_scenarios().iter().map(|scenario| scenario.id).collect();
    let unique: HashSet<&str> = ids.iter().copied().collect();
    assert_eq!(ids.len(), unique.len(), "no ID is used twice");
    let seed = [("GEN", 3), ("OUTBOX", 9), ("INBOX", 9), ("SCHED", 10), ("LEASE", 10)];
    let mut count = 0;
    for (primitive, last) in seed {
        for number in 1..=last {
            let id = format!("{primitive}-{number:03}");
            assert!(unique.contains(id.as_str()), "{id} is missing");
            count += 1;
        }
    }
    assert_eq!(count, 41);
    for letter in ["A", "B", "C", "D", "E"] {
        assert!(unique.contains(format!("GEN-{letter}").as_str()), "PRIM-GEN-{letter} is missing");
    }
}

#[test]
fn a_tests_name_starts_with_its_id() {
    for scenario in memory_scenarios() {
        let start = scenario.id.to_lowercase().replace('-', "_") + "_";
        assert!(scenario.test.starts_with(&start), "{}", scenario.test);
    }
}
