//! The limiter on a real Redis. Without a server binary the tests count as ignored.
//!
//! Most tests run in simulated time: the scripts are the same, except that a key says what time it is, so that hours pass at once. The
//! conformance suite also runs in the time of Redis.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod addresses;
mod audit;
mod calls;
mod changes;
mod cluster;
mod context;
mod differential;
mod document;
mod fixture;
mod regressions;
mod rules;

use std::process::ExitCode;

use ratelimiter_conformance::suite::{FACTS, play};
use testkit::Suite;
use testkit::redis::{Fixture, suite};

use crate::context::{TestContext, Time};
use crate::fixture::{OnRedis, capabilities};

/// Most of a test's time in the time of Redis is spent waiting for a second to pass.
const THREADS: usize = 4;

fn main() -> ExitCode {
    let mut tests = suite("limiter on Redis").threads(THREADS);
    for time in [Time::Simulated, Time::Real] {
        let powers = capabilities(time);
        for fact in FACTS.iter().filter(|fact| fact.skipped_with(&powers).is_none()) {
            let name = format!("{}::{}", time.name(), fact.name);
            tests = tests.test(name, move |servers| {
                play(fact.name, async { OnRedis::new(TestContext::new(servers.shared(), time)) });
            });
        }
    }
    document::add_to(add_regressions(add_rules(tests))).run()
}

/// Adds tests under the names of their functions.
macro_rules! add {
    ($tests:ident: $($module:ident::$test:ident,)+) => {
        $tests$(.test(stringify!($test), $module::$test))+
    };
}

fn add_rules(tests: Suite<Fixture>) -> Suite<Fixture> {
    add! { tests:
        differential::redis_answers_every_script_as_memory_does,
        rules::rds_01_every_request_is_one_call_of_a_script,
        rules::rds_01_limiters_share_one_truth,
        rules::rds_01_no_schedule_of_requests_over_admits,
        changes::rds_01_a_change_is_known_elsewhere_without_a_request,
        changes::rds_01_changes_are_followed_again_after_the_connection_is_lost,
        changes::rds_01_requests_need_no_subscription,
        rules::reg_01_definitions_made_at_once_are_all_kept,
        rules::rds_02_the_time_is_that_of_redis,
        rules::rds_03_nothing_is_denied_while_expired_reservations_are_left,
        rules::rds_03_everything_but_definitions_and_debts_has_a_ttl,
        rules::rds_03_what_has_expired_is_not_kept_for_another_window,
        rules::rds_03_what_was_used_of_a_calendar_limit_is_few_entries,
        rules::rds_03_res_02_what_was_used_of_a_long_window_is_few_entries,
        rules::rds_03_leases_that_use_nothing_do_not_keep_others_apart,
        rules::rds_03_open_leases_do_not_keep_others_apart,
        rules::res_02_what_was_used_of_an_earlier_window_returns_with_it,
        rules::rds_03_what_is_not_in_use_goes,
        rules::rds_04_two_installations_on_one_redis_do_not_meet,
        rules::rds_05_a_redis_that_was_away_is_found_again,
        rules::rds_06_a_lost_script_cache_is_not_noticed,
        rules::rds_06_the_reason_is_told,
        rules::rds_06_what_redis_says_of_itself_is_known,
        rules::rds_07_a_kill_loses_nothing_that_was_answered,
        rules::def_09_a_lease_of_a_deleted_limit_takes_nothing_of_its_successor,
        rules::rds_08_a_url_names_user_password_and_database,
        addresses::rds_08_a_connection_is_encrypted,
        addresses::rds_08_a_server_may_ask_for_a_certificate,
        addresses::rds_08_why_a_connection_is_not_encrypted_is_told,
        addresses::rds_08_a_failover_by_sentinels_is_followed,
        addresses::rds_08_sentinels_that_are_behind_lead_nobody_astray,
        addresses::rds_08_a_replica_that_a_sentinel_names_is_passed_over,
        addresses::rds_08_all_connections_are_to_one_primary,
        addresses::rds_08_sentinels_may_have_a_password_and_tls,
        addresses::rds_08_why_sentinels_lead_nowhere_is_told,
        cluster::rds_04_all_nodes_of_a_cluster_lead_to_the_keys,
        cluster::rds_04_a_failover_in_a_cluster_is_followed,
        cluster::rds_01_rds_04_changes_are_followed_when_a_node_has_left,
        cluster::rds_04_a_slot_that_moves_admits_nothing_in_between,
        cluster::rds_04_why_a_cluster_leads_nowhere_is_told,
        rules::res_07_a_capacity_that_cannot_be_counted_is_refused,
    }
}

fn add_regressions(tests: Suite<Fixture>) -> Suite<Fixture> {
    add! { tests:
        regressions::a_lease_of_a_replaced_limit_has_ended,
        regressions::an_old_lease_of_an_instance_does_not_free_what_another_holds,
        regressions::a_lease_from_before_a_sweep_does_not_free_what_another_holds,
        regressions::the_list_of_instances_outlives_its_instances,
        regressions::a_lost_list_of_instances_takes_no_room_for_ever,
        regressions::a_user_without_channels_defines_all_or_nothing,
        regressions::a_refused_change_loses_count_of_nothing,
        regressions::a_redis_that_takes_no_writes_is_not_ready,
        regressions::a_read_does_not_end_a_problem_of_writes,
        regressions::nobody_waits_with_a_denied_lease,
        regressions::wait_04_an_attempt_without_an_answer_can_be_returned,
        regressions::wait_04_giving_up_finds_an_attempt_without_an_answer,
        regressions::a_connection_to_a_replica_is_dropped,
        regressions::a_lower_bound_of_past_leases_is_reached_step_by_step,
        regressions::many_definitions_take_few_round_trips,
        regressions::a_document_that_is_not_understood_is_read_once,
        regressions::a_page_of_instances_does_not_read_those_before,
        regressions::instances_go_with_resp3_too,
        regressions::debts_go_with_their_template_after_a_failure_midway,
        regressions::a_batch_stays_a_batch_when_definitions_change,
        regressions::past_leases_have_a_ttl_when_none_is_remembered,
        regressions::one_key_twice_in_one_call_is_as_in_memory,
        regressions::the_largest_request_is_answered,
        audit::counts_hold_when_the_clock_jumps,
        audit::a_part_that_was_collected_is_not_stored_again,
        audit::parts_that_were_collected_are_not_joined,
        regressions::a_lease_ends_with_its_last_hold_when_another_becomes_a_reservation,
        regressions::rds_05_rds_06_who_waits_for_the_definitions_is_told_why,
        regressions::lost_data_is_noticed,
        regressions::an_evicted_limit_does_not_count_below_zero,
        regressions::an_evicted_set_does_not_count_for_ever,
        audit::nothing_is_half_done_without_memory,
    }
}
