//! The ledger on a real TigerBeetle.
//!
//! Without a server binary the tests count as ignored.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a seed is of use only if it is seen")]

use std::process::ExitCode;

use testkit::tigerbeetle::suite;

mod batching;
mod connections;
mod deadlines;
mod differential;
mod eviction;
mod load;
mod reading;
mod replicas;
mod request_size;
mod setup;
mod tally;

/// Names each test after its function.
macro_rules! suite {
    ($name:literal: $($module:ident :: $test:ident),* $(,)?) => {
        suite($name)$(.test(concat!(stringify!($module), "::", stringify!($test)), $module::$test))*
    };
}

fn main() -> ExitCode {
    suite!("ratelimiter-tigerbeetle":
        differential::the_model_agrees_with_the_server,
        batching::tb_04_another_session_finds_a_lease_that_it_did_not_make,
        batching::tb_09_batches_grow_by_themselves_while_the_session_is_busy,
        batching::tb_09_a_lonely_caller_is_not_kept_waiting,
        reading::tb_23_a_thousand_queries_at_once_take_few_waves,
        reading::tb_23_writes_do_not_queue_behind_reads,
        reading::tb_23_a_full_queue_of_reads_answers_at_once,
        request_size::tb_13_the_limit_of_the_server_is_learned_and_no_chain_is_split,
        request_size::tb_13_an_item_that_fits_no_request_is_refused_and_its_neighbours_are_not,
        request_size::tb_13_a_production_server_takes_8189_events,
        connections::tb_12_a_host_name_is_resolved,
        connections::tb_12_a_wrong_cluster_id_is_reported_within_the_timeout,
        connections::tb_12_too_many_connections_are_reported,
        connections::tb_12_a_cluster_that_comes_later_is_found,
        deadlines::tb_10_a_stopped_server_under_load_fails_callers_in_time_and_counts_once,
        deadlines::tb_10_a_killed_server_under_load_fails_callers_in_time_and_counts_once,
        deadlines::tb_10_a_dropped_caller_does_not_cancel,
        deadlines::tb_09_a_full_queue_answers_at_once,
        eviction::tb_11_seventy_sessions_under_load_fail_no_caller,
        eviction::tb_23_an_evicted_reader_is_replaced_without_errors,
        eviction::tb_11_an_evicted_session_is_replaced_and_a_kept_alive_one_stays,
        replicas::a_cluster_of_three_goes_on_without_one,
    )
    .run()
}
