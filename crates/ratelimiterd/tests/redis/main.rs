//! The program on a real Redis: several servers, processes that are killed, a Redis that comes and goes. Without a server
//! binary these count as ignored.
//!
//! The conformance suite of all limiters runs end to end: an HTTP client, the program as a separate process, and Redis.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what was counted is the answer of a run")]

mod checks;
mod cluster;
mod conformance;
mod definitions;
mod deployment;
mod encrypted;
mod failover;
mod faults;
#[path = "../processes/load.rs"]
mod load;
mod outages;
mod problems;
#[path = "../processes/servers.rs"]
mod processes;
mod secrets;
mod sentinels;
mod servers;

use std::process::ExitCode;

use ratelimiter_conformance::suite::{FACTS, play};
use testkit::redis::{Fixture, suite};

use crate::conformance::{Served, capabilities};

/// Most of a fact's time is spent waiting for a second to pass.
const THREADS: usize = 4;

/// Names each test after its function.
macro_rules! suite {
    ($name:literal: $($module:ident :: $test:ident),* $(,)?) => {
        suite($name)$(.test(concat!(stringify!($module), "::", stringify!($test)), $module::$test))*
    };
}

fn main() -> ExitCode {
    let mut tests = suite!("ratelimiterd on Redis":
        definitions::reg_01_rds_01_a_definition_at_one_server_holds_at_the_other_at_once,
        definitions::reg_01_rds_01_concurrent_changes_at_two_servers_lose_nothing,
        definitions::reg_01_definitions_outlive_their_servers_and_need_no_file,
        definitions::reg_01_only_so_many_limits_are_defined,
        definitions::reg_01_ops_04_a_change_is_logged_with_its_caller_and_both_definitions,
        definitions::reg_01_ops_04_a_change_that_redis_does_not_confirm_is_logged_too,
        definitions::rds_04_installations_with_different_prefixes_do_not_meet,
        definitions::reg_01_check_reads_the_limits_in_redis,
        servers::rds_01_com_07_a_lease_of_one_server_is_completed_at_the_other,
        servers::rds_01_wait_06_a_complete_at_any_server_admits_who_waits,
        servers::rds_01_wait_04_who_gives_up_is_denied_for_good,
        servers::rds_01_a_server_hears_of_changes_at_another,
        servers::rds_01_wait_06_a_change_at_another_server_admits_who_waits,
        servers::metrics_include_redis,
        outages::rds_05_a_server_starts_without_redis_and_serves_once_it_is_there,
        outages::rds_05_a_redis_that_was_killed_is_reported_until_it_is_back,
        outages::rds_05_a_redis_that_hangs_is_reported_until_it_goes_on,
        outages::rds_05_a_failure_is_detected_without_traffic,
        outages::rds_05_wait_01_who_waits_is_admitted_after_an_outage,
        outages::rds_05_wait_04_who_goes_away_in_an_outage_holds_nothing,
        outages::rds_06_a_lost_script_cache_is_not_noticed,
        problems::rds_06_a_wrong_password_is_reported,
        problems::rds_06_a_missing_permission_is_reported_until_it_is_given,
        problems::rds_06_a_full_redis_is_reported_until_it_has_room,
        problems::rds_06_a_policy_that_evicts_is_logged_and_counted,
        problems::rds_06_a_read_only_replica_is_reported_until_it_is_the_primary,
        problems::rds_06_a_redis_that_loads_its_data_is_reported,
        encrypted::rds_08_a_server_talks_to_redis_through_tls,
        encrypted::rds_08_why_a_connection_is_not_encrypted_is_told,
        encrypted::rds_08_a_ca_that_cannot_be_used_is_refused_by_name,
        sentinels::rds_08_a_server_follows_a_failover,
        secrets::rds_08_a_password_is_in_no_log_at_any_level,
        faults::rds_07_a_redis_that_syncs_each_answer_is_killed_under_load,
        faults::rds_07_a_redis_that_syncs_every_second_is_killed_under_load,
        faults::rds_06_the_script_cache_is_flushed_under_load,
        faults::rds_05_a_redis_that_pauses_its_clients_under_load,
        faults::rds_05_a_redis_that_hangs_under_load,
        faults::rds_06_a_redis_without_memory_under_load,
        faults::rds_01_servers_are_killed_in_turn_under_load,
        faults::rds_05_rds_06_rds_07_faults_of_all_kinds_under_load,
        cluster::rds_04_the_slot_of_the_keys_moves_under_load,
        failover::rds_07_a_replica_is_promoted_under_load,
        failover::rds_07_a_replica_that_was_cut_off_is_promoted_under_load,
        checks::the_checks_fail_if_servers_do_not_share_their_limits,
        checks::the_checks_fail_if_redis_forgets_what_it_answered,
        checks::the_checks_fail_if_a_hold_is_left,
    )
    .threads(THREADS);
    // What cannot be shown is left out, so that what is counted was run.
    for fact in FACTS.iter().filter(|fact| fact.skipped_with(&capabilities()).is_none()) {
        let name = format!("conformance::{}", fact.name);
        tests = tests.test(name, |fixture: &Fixture| {
            play(fact.name, async { Served::on(fixture.shared()) });
        });
    }
    tests.run()
}
