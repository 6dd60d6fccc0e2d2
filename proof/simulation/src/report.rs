//! Reports as text and as the tables of `docs/reliability.md`.

use std::fmt::Write as _;

use crate::fault::{Fault, Faults};
use crate::flaw::{Flaw, Place};
use crate::outcome::Violation;
use crate::run::{Failure, Summary, first_failure};
use crate::worlds::{CoordinationWorld, MemoryWorld, TigerBeetleWorld};

/// One world's summary in a few lines.
pub fn summary(world: &str, summary: &Summary) -> String {
    let Summary { seeds, requests, checks, faults, took, failure } = summary;
    let per_second = Ratio(*seeds, took.as_secs_f64());
    let violations = u8::from(failure.is_some());
    let mut text = format!(
        "{world}: {seeds} seeds in {:.1} s, {per_second} a second; {requests} requests, {checks} checks, {} faults, \
         {violations} violations\n",
        took.as_secs_f64(),
        faults.total(),
    );
    for (fault, count) in faults.iter() {
        writeln!(text, "  {count:>10}  {fault}").expect("a text takes any line");
    }
    text
}

/// A failing seed: what it broke, and the shortest trace.
pub fn failure(world: &str, failure: &Failure) -> String {
    let Failure { seed, events: (before, after), trace, .. } = failure;
    format!(
        "{world} seed {seed} FAILED; of its {before} events {after} are left, which still fail:\n{trace}\
         again: cargo run --release -p simulation -- --world {world} --seed {seed}\n"
    )
}

/// The faults by kind, a row each and a column a world.
pub fn fault_table(worlds: &[(&str, &Faults)]) -> String {
    let names: Vec<&str> = worlds.iter().map(|(name, _)| *name).collect();
    let mut table = format!("| fault | {} |\n|---|", names.join(" | "));
    table.push_str(&"---:|".repeat(worlds.len()));
    table.push('\n');
    for fault in Fault::ALL {
        let counts = worlds.iter().map(|(_, faults)| faults.count(*fault).to_string());
        let counts: Vec<String> = counts.collect();
        writeln!(table, "| {fault} | {} |", counts.join(" | ")).expect("a text takes any line");
    }
    table
}

/// The seed that finds a deliberate bug, and what it breaks; `None` if no seed within its number does.
pub fn find(flaw: Flaw) -> Option<(u64, Violation)> {
    let within = flaw.found_within();
    match flaw.place() {
        Place::TigerBeetle => first_failure(&TigerBeetleWorld { flaw: Some(flaw) }, 0, within),
        Place::Memory => first_failure(&MemoryWorld { flaw: Some(flaw) }, 0, within),
        Place::Coordination => first_failure(&CoordinationWorld { flaw: Some(flaw) }, 0, within),
    }
}

/// Every deliberate bug, where it is played, and the seed that finds it. `Err` has the table if one is not found.
///
/// # Errors
/// A bug was not found within its number of seeds, or violates another invariant than expected.
pub fn flaw_table() -> Result<String, String> {
    let mut table = "| deliberate bug | world | found within | by seed | violated invariant |\n|---|---|---:|---:|---|\n".to_owned();
    let mut all_found = true;
    for flaw in Flaw::ALL {
        let found = find(*flaw);
        let as_known = found
            .as_ref()
            .is_some_and(|(_, violation)| flaw.breaks().contains(&violation.invariant));
        all_found &= as_known;
        let (text, place, within) = (flaw.text(), flaw.place().name(), flaw.found_within());
        let found = found.map_or_else(
            || "NOT FOUND | ".to_owned(),
            |(seed, violation)| format!("{seed} | {}", violation.invariant),
        );
        writeln!(table, "| {text} | {place} | {within} | {found} |")
            .expect("a text takes any line");
    }
    if all_found { Ok(table) } else { Err(table) }
}

/// A number of things in a time.
struct Ratio(u64, f64);

impl std::fmt::Display for Ratio {
    #[expect(clippy::cast_precision_loss, reason = "it is for people")]
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.0}", self.0 as f64 / self.1.max(1e-9))
    }
}
