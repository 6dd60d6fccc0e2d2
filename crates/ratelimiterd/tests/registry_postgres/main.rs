//! REG-01: the registry in a real PostgreSQL. Without its programs these count as ignored.
//!
//! Servers that share a registry run in this process, on one ledger in memory; memory servers are processes of their own.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test tells what it saw")]

mod changes;
mod cuts;
mod database;
mod deployment;
mod ledger;
mod outages;
mod ownership;
mod secrets;
mod start;
mod takeovers;
mod waits;

use std::process::ExitCode;

use testkit::postgres::Suite;

/// Names each test after its function.
macro_rules! suite {
    ($name:literal: $($module:ident :: $test:ident),* $(,)?) => {
        Suite::with_clusters_of_its_own($name)
            $(.test(concat!(stringify!($module), "::", stringify!($test)), $module::$test))*
    };
}

fn main() -> ExitCode {
    suite!("registry_postgres":
        changes::reg_01_a_change_at_one_server_reaches_the_others,
        changes::reg_01_concurrent_changes_at_two_servers_lose_nothing,
        changes::reg_01_ops_03_a_list_is_one_write_and_reaches_the_others,
        changes::reg_01_ops_05_unknown_fields_are_kept,
        changes::reg_01_the_table_of_a_newer_version_is_used_and_kept,
        changes::reg_01_a_registry_edited_by_hand_is_applied_and_one_with_errors_is_not,
        changes::reg_01_a_role_that_may_only_read_serves_and_reports_why_it_cannot_change,
        start::reg_01_servers_that_start_at_once_lose_nothing,
        start::reg_01_definitions_outlive_their_server,
        start::reg_01_a_limits_file_moves_into_the_database,
        start::reg_01_a_start_without_the_database_is_refused_with_the_reason,
        start::reg_01_check_reads_the_registry_and_changes_nothing,
        start::reg_01_registries_in_two_schemas_are_separate,
        outages::reg_01_servers_on_a_shared_backend_serve_through_an_outage,
        outages::reg_01_servers_on_a_shared_backend_serve_through_a_crash,
        outages::reg_01_a_memory_server_serves_through_an_outage,
        outages::reg_01_a_change_whose_connection_is_lost_does_not_take_effect,
        outages::reg_01_tb_08_a_change_without_an_answer_is_reverted_by_the_others,
        takeovers::reg_01_servers_wait_for_the_primary_and_use_it_once_it_is_there,
        takeovers::reg_01_a_start_on_a_standby_is_refused,
        takeovers::reg_01_a_read_only_database_is_served_and_its_return_is_noticed,
        takeovers::reg_01_a_memory_server_writes_again_what_the_database_has_lost,
        takeovers::reg_01_a_confirmed_change_outlives_a_crash_whatever_the_default_is,
        waits::reg_01_servers_take_turns,
        waits::reg_01_somebody_who_locks_the_row_delays_changes_and_nothing_else,
        waits::reg_01_a_lock_that_cannot_be_released_does_not_keep_the_others_out,
        cuts::reg_01_a_change_at_a_memory_server_ends_as_its_answer_says_wherever_the_connection_ends,
        cuts::reg_01_a_change_at_shared_servers_ends_as_its_answer_says_wherever_the_connection_ends,
        cuts::reg_01_a_database_that_hangs_does_not_stop_the_servers,
        secrets::reg_01_a_password_is_in_no_log_at_any_level,
        secrets::reg_01_the_connection_is_encrypted_as_the_url_says,
        ownership::reg_01_ops_06_a_second_memory_server_is_refused_until_the_first_is_gone,
        ownership::reg_01_ops_06_servers_on_a_shared_backend_keep_a_memory_server_out,
        ownership::reg_01_ops_06_an_owner_keeps_its_registry_through_an_outage,
        ownership::reg_01_ops_06_an_owner_that_was_replaced_overwrites_nothing,
    )
    .run()
}
