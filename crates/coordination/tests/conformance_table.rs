//! `docs/coordination-conformance.md` is the list of scenarios as they just ran, and the list is
//! complete.
//!
//! `UPDATE_EXPECT=1 cargo test -p coordination --test conformance_table` writes it anew.

use std::collections::HashSet;

use coordination_conformance::{Case, Fixture, MemoryFixture, cases, in_memory, table};
use expect_test::expect_file;

const INTRODUCTION: &str = "\
# What every coordination provider does

One line per scenario, from the list that the tests are made of; a test of `coordination` runs them all and keeps this file
true. Numbers are the scenarios of the seed specification, letters further rules. The tests stand in the module
`prim_inmemory`; another provider reports the same scenarios under its own name (`PRIM-SQLITE-OUTBOX-001`), with
`durable_suite!` in place of `GEN-001` and `GEN-002`.

";

fn memory_cases() -> Vec<Case> {
    [in_memory::cases::<MemoryFixture>(), cases::<MemoryFixture>()].concat()
}

#[test]
fn the_table_shows_the_scenarios_as_they_just_ran() {
    let table = table::markdown(MemoryFixture::PROVIDER, &memory_cases());
    let document = format!("{INTRODUCTION}{table}");
    expect_file!["../../../docs/coordination-conformance.md"].assert_eq(&document);
}

#[test]
fn every_scenario_of_the_seed_is_there_once() {
    let ids: Vec<&str> = memory_cases().iter().map(|case| case.scenario.id).collect();
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
    for case in memory_cases() {
        let start = case.scenario.id.to_lowercase().replace('-', "_") + "_";
        assert!(case.scenario.test.starts_with(&start), "{}", case.scenario.test);
    }
}
