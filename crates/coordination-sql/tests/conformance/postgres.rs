//! The PostgreSQL provider does what every provider does, under the IDs `PRIM-POSTGRES-…`.

mod postgres_fixture;

use std::process::ExitCode;

use coordination_conformance::{cases, durable};
use coordination_sql::testing::Suite;

use self::postgres_fixture::PostgresFixture;

fn main() -> ExitCode {
    let cases = [cases::<PostgresFixture>(), durable::cases::<PostgresFixture>()].concat();
    let suite = cases.into_iter().fold(Suite::new("conformance"), |suite, case| {
        suite.test(format!("prim_postgres::{}", case.scenario.test), case.run)
    });
    // They mostly wait for time to pass.
    suite.threads(12).run()
}
