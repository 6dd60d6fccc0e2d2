//! REG-01: the tests of a registry in a database, of whichever kind.
//!
//! Servers that share a registry run in this process, on one ledger in memory; memory servers are processes of their own.

pub mod changes;
pub mod cuts;
pub mod database;
pub mod deployment;
pub mod ledger;
pub mod outages;
pub mod ownership;
pub mod start;

use self::database::Database;

/// Names each test after its function.
macro_rules! tests_of {
    ($database:ty: $($module:ident :: $test:ident),* $(,)?) => {
        vec![$((concat!(stringify!($module), "::", stringify!($test)), $module::$test::<$database> as fn())),*]
    };
}

/// The tests that hold for every database, with their names.
pub fn tests<D: Database + 'static>() -> Vec<(&'static str, fn())> {
    tests_of!(D:
        changes::reg_01_a_change_at_one_server_reaches_the_others,
        changes::reg_01_concurrent_changes_at_two_servers_lose_nothing,
        changes::reg_01_ops_03_a_list_is_one_write_and_reaches_the_others,
        changes::reg_01_ops_05_unknown_fields_are_kept,
        changes::reg_01_a_registry_edited_by_hand_is_applied_and_one_with_errors_is_not,
        start::reg_01_servers_that_start_at_once_lose_nothing,
        start::reg_01_definitions_outlive_their_server,
        start::reg_01_a_limits_file_moves_into_the_database,
        start::reg_01_check_reads_the_registry_and_changes_nothing,
        outages::reg_01_servers_on_a_shared_backend_serve_through_a_crash,
        outages::reg_01_a_memory_server_serves_through_an_outage,
        outages::reg_01_a_change_whose_lock_is_lost_does_not_take_effect,
        outages::reg_01_tb_08_a_change_without_an_answer_is_reverted_by_the_others,
        outages::reg_01_tb_08_a_change_of_a_server_that_died_is_reverted_by_the_others,
        cuts::reg_01_a_change_at_a_memory_server_ends_as_its_answer_says_wherever_the_connection_ends,
        cuts::reg_01_a_change_at_shared_servers_ends_as_its_answer_says_wherever_the_connection_ends,
        cuts::reg_01_a_server_that_is_killed_in_a_change_leaves_the_old_or_the_new_document,
        cuts::reg_01_a_database_that_hangs_does_not_stop_the_servers,
        ownership::reg_01_ops_06_a_second_memory_server_is_refused_until_the_first_is_gone,
        ownership::reg_01_ops_06_servers_on_a_shared_backend_keep_a_memory_server_out,
        ownership::reg_01_ops_06_an_owner_keeps_its_registry_through_an_outage,
        ownership::reg_01_ops_06_an_owner_that_was_replaced_overwrites_nothing,
        ownership::reg_01_a_memory_server_writes_again_what_the_database_has_lost,
    )
}
