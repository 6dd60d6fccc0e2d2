//! Conformance of the PostgreSQL provider, under the IDs `PRIM-POSTGRES-…`, and the results of all
//! three providers in `docs/reference/coordination-conformance.md`.
//!
//! `UPDATE_EXPECT=1 cargo test -p coordination-sql --features servers --test conformance_postgres`
//! updates it.

mod postgres_fixture;
mod sqlite_fixture;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use coordination_conformance::table::{self, Column};
use coordination_conformance::{
    Case, Fixture, MemoryFixture, Outcome, Scenario, cases, durable, in_memory,
};
use expect_test::expect_file;
use testkit::postgres::Suite;

use self::postgres_fixture::PostgresFixture;
use self::sqlite_fixture::SqliteFixture;

const INTRODUCTION: &str = "\
# Coordination conformance

What every coordination provider does, one row per scenario. This file is generated: the tests of `coordination-sql` run all scenarios on all
three providers and compare the result with it. Numbers are the original scenarios, letters are later ones. A test run reports a
scenario with its provider: `PRIM-INMEMORY-OUTBOX-001`, `PRIM-SQLITE-OUTBOX-001`, `PRIM-POSTGRES-OUTBOX-001`. A dash means that the
scenario does not apply: memory is not durable, and a database is not local to a process.

";

type Outcomes = Arc<Mutex<Vec<(Scenario, Outcome)>>>;

fn main() -> ExitCode {
    if in_memory::is_second_process() {
        in_memory::second_process::<MemoryFixture>();
        return ExitCode::SUCCESS;
    }
    let cases = [cases::<PostgresFixture>(), durable::cases::<PostgresFixture>()].concat();
    let outcomes = Outcomes::default();
    let suite = cases.iter().fold(Suite::new("conformance"), |suite, case| {
        let (case, outcomes) = (*case, Arc::clone(&outcomes));
        let name = format!("prim_postgres::{}", case.scenario.test);
        suite.test(name, move || run(case, &outcomes))
    });
    let exit_code = suite.run();
    let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if outcomes.len() == cases.len() {
        let place = |scenario: &Scenario| cases.iter().position(|case| case.scenario == *scenario);
        outcomes.sort_by_key(|(scenario, _)| place(scenario));
        check_table(Column { provider: PostgresFixture::PROVIDER, outcomes });
    }
    exit_code
}

/// Runs a case once and records its outcome (`CRD-19`).
fn run(case: Case, outcomes: &Outcomes) {
    let outcome = case.outcome();
    let failed = match &outcome {
        Outcome::Passed => None,
        Outcome::Failed { reason } => Some(reason.clone()),
    };
    outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((case.scenario, outcome));
    assert_eq!(failed, None, "the scenario does not hold");
}

fn check_table(postgres: Column) {
    let memory = [in_memory::cases::<MemoryFixture>(), cases::<MemoryFixture>()].concat();
    let sqlite = [cases::<SqliteFixture>(), durable::cases::<SqliteFixture>()].concat();
    let columns = [
        Column::run(MemoryFixture::PROVIDER, &memory),
        Column::run(SqliteFixture::PROVIDER, &sqlite),
        postgres,
    ];
    let document = format!("{INTRODUCTION}{}", table::markdown(&columns));
    expect_file!["../../../../docs/reference/coordination-conformance.md"].assert_eq(&document);
}
