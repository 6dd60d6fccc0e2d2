//! The program on a real TigerBeetle: several servers, processes that are killed, a cluster that comes and goes. Without
//! a TigerBeetle binary these count as ignored.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what was counted is the answer of a run")]

use std::process::ExitCode;

use testkit::tigerbeetle::suite;

mod definitions;
mod faults;
mod leases;
#[path = "../processes/load.rs"]
#[allow(dead_code, reason = "the tests on Redis use all of it")]
mod load;
mod outages;
#[path = "../processes/servers.rs"]
mod processes;
mod servers;
mod soak;
mod waiting;

/// Names each test after its function.
macro_rules! suite {
    ($name:literal: $($module:ident :: $test:ident),* $(,)?) => {
        suite($name)$(.test(concat!(stringify!($module), "::", stringify!($test)), $module::$test))*
    };
}

fn main() -> ExitCode {
    suite!("ratelimiterd":
        leases::com_07_a_lease_of_a_killed_server_is_completed_at_another,
        leases::com_07_a_lease_of_a_killed_server_is_known_to_its_replacement,
        leases::com_05_a_complete_at_one_server_is_final_at_the_other,
        leases::ops_01_ops_02_an_operator_releases_and_forgives_at_any_server,
        waiting::tb_17_a_complete_at_any_server_admits_who_waits,
        waiting::tb_17_who_gives_up_is_denied_for_good,
        waiting::tb_17_a_waiter_of_a_killed_server_is_answered_elsewhere,
        definitions::a_put_at_one_server_reaches_the_others,
        definitions::a_delete_at_one_server_reaches_the_others,
        definitions::def_07_a_decrease_holds_at_every_server_and_ends_at_all,
        definitions::tb_21_servers_share_a_template_and_its_limits,
        definitions::concurrent_puts_end_with_one_of_them_at_every_server,
        definitions::a_file_edited_by_hand_is_applied_and_one_with_errors_is_not,
        definitions::tb_08_a_server_killed_during_a_put_recovers_at_its_start,
        definitions::tb_08_a_put_without_an_answer_does_not_take_effect_later,
        definitions::tb_08_a_put_of_a_server_that_died_is_rolled_back_by_the_others,
        definitions::ops_03_a_list_of_ten_thousand_limits_reaches_every_server,
        definitions::ops_03_a_list_without_an_answer_does_not_take_effect_later,
        definitions::a_read_only_limits_file_is_served_and_a_put_reports_why_it_cannot_be_changed,
        outages::an_unreachable_cluster_is_reported_until_it_answers,
        outages::a_wrong_cluster_id_is_reported,
        outages::a_caller_without_an_answer_means_not_ready_at_once,
        outages::a_cluster_failure_is_detected_without_traffic,
        outages::tb_10_a_stopped_cluster_under_load_answers_in_time_and_recovers,
        outages::tb_10_a_killed_cluster_under_load_answers_in_time_and_recovers,
        outages::metrics_include_the_cluster,
        faults::a_replica_of_three_is_killed_and_restarted_under_load,
        faults::a_server_is_killed_again_and_again_under_load,
        faults::a_cluster_is_stopped_for_a_while_under_load,
        soak::servers_and_cluster_are_killed_and_nothing_is_admitted_twice_or_left,
    )
    .run()
}
