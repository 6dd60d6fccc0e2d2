//! REG-01: the registry in a real PostgreSQL. Without its programs these count as ignored.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test tells what it saw")]

mod postgres;
#[path = "../registry/suite.rs"]
mod registry;
mod secrets;
mod special;
mod takeovers;
mod waits;

use std::process::ExitCode;

use testkit::postgres::Suite;

use crate::postgres::PostgresDatabase;

/// Names each test after its function.
macro_rules! with_tests {
    ($suite:expr, $($module:ident :: $test:ident),* $(,)?) => {
        $suite$(.test(concat!(stringify!($module), "::", stringify!($test)), $module::$test))*
    };
}

fn main() -> ExitCode {
    let mut suite = Suite::with_clusters_of_its_own("registry_postgres");
    for (name, test) in registry::tests::<PostgresDatabase>() {
        suite = suite.test(name, test);
    }
    let suite = with_tests!(
        suite,
        special::reg_01_the_table_of_a_newer_version_is_used_and_kept,
        special::reg_01_a_role_that_may_only_read_serves_and_reports_why_it_cannot_change,
        special::reg_01_a_start_without_the_database_is_refused_with_the_reason,
        special::reg_01_registries_in_two_schemas_are_separate,
        takeovers::reg_01_servers_wait_for_the_primary_and_use_it_once_it_is_there,
        takeovers::reg_01_a_start_on_a_standby_is_refused,
        takeovers::reg_01_a_read_only_database_is_served_and_its_return_is_noticed,
        takeovers::reg_01_a_confirmed_change_outlives_a_crash_whatever_the_default_is,
        takeovers::reg_01_servers_on_a_shared_backend_serve_through_an_outage,
        waits::reg_01_servers_take_turns,
        waits::reg_01_somebody_who_locks_the_row_delays_changes_and_nothing_else,
        waits::reg_01_a_lock_that_cannot_be_released_does_not_keep_the_others_out,
        secrets::reg_01_a_password_is_in_no_log_at_any_level,
        secrets::reg_01_the_connection_is_encrypted_as_the_url_says,
    );
    suite.run()
}
