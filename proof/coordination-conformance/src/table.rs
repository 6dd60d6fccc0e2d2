//! The table of scenarios and outcomes in Markdown.

use std::fmt::Write;

use crate::{Case, Outcome, Scenario};

/// The outcomes of one provider.
#[derive(Debug, Clone)]
pub struct Column {
    /// The provider's part of the scenario IDs: `INMEMORY`, `SQLITE`.
    pub provider: &'static str,
    /// The provider's scenarios and their outcomes.
    pub outcomes: Vec<(Scenario, Outcome)>,
}

impl Column {
    /// Runs the cases of a provider.
    pub fn run(provider: &'static str, cases: &[Case]) -> Column {
        let outcomes = cases.iter().map(|case| (case.scenario, case.outcome())).collect();
        Column { provider, outcomes }
    }

    fn cell(&self, scenario: &Scenario) -> String {
        let outcome = self.outcomes.iter().find(|(other, _)| other == scenario);
        match outcome {
            None => "–".to_owned(),
            Some((_, Outcome::Passed)) => "passed".to_owned(),
            Some((_, Outcome::Failed { reason })) => {
                format!("FAILED: {}", reason.replace(['\n', '|'], " "))
            }
        }
    }
}

/// One line per scenario, in the order of the columns: ID, text, test, and the outcome for each
/// provider. A dash means that the provider does not have the scenario.
pub fn markdown(columns: &[Column]) -> String {
    let mut scenarios: Vec<Scenario> = Vec::new();
    for (scenario, _) in columns.iter().flat_map(|column| &column.outcomes) {
        if !scenarios.contains(scenario) {
            scenarios.push(*scenario);
        }
    }
    let mut table = String::from("| scenario | text | test |");
    for column in columns {
        write!(table, " {} |", column.provider).expect("writing to a string does not fail");
    }
    table.push_str("\n| --- | --- | --- |");
    table.push_str(&" --- |".repeat(columns.len()));
    for scenario in &scenarios {
        let Scenario { id, text, test } = scenario;
        write!(table, "\n| `{id}` | {text} | `{test}` |").expect("writing to a string");
        for column in columns {
            write!(table, " {} |", column.cell(scenario)).expect("writing to a string");
        }
    }
    table.push('\n');
    table
}
