//! The table of scenarios, as a document shows it.

use std::fmt::Write;

use crate::{Case, Outcome};

/// Runs the cases and shows each with its ID for the provider: scenario, text, test, provider,
/// passed.
pub fn markdown(provider: &str, cases: &[Case]) -> String {
    let mut table = String::from("| scenario | text | test | provider | passed |\n");
    table.push_str("| --- | --- | --- | --- | --- |\n");
    for case in cases {
        let scenario = &case.scenario;
        let passed = match case.outcome() {
            Outcome::Passed => "yes".to_owned(),
            Outcome::Failed { reason } => format!("no: {}", reason.replace(['\n', '|'], " ")),
        };
        let (id, text, test) = (scenario.id_for(provider), scenario.text, scenario.test);
        writeln!(table, "| `{id}` | {text} | `{test}` | {provider} | {passed} |")
            .expect("writing to a string does not fail");
    }
    table
}
