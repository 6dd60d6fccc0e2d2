//! REG-01: the registry of the memory and TigerBeetle backends in a real Redis. Without a server binary these count as ignored.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test tells what it saw")]

mod locks;
mod problems;
mod redis;
#[path = "../registry/suite.rs"]
mod registry;
mod special;

use std::process::ExitCode;

use testkit::redis::suite;

use crate::redis::RedisDatabase;

/// Some tests wait for the lock of a server that was killed.
const THREADS: usize = 4;

/// Names each test after its function.
macro_rules! with_tests {
    ($suite:expr, $($module:ident :: $test:ident),* $(,)?) => {
        $suite$(.test(concat!(stringify!($module), "::", stringify!($test)), |_| $module::$test()))*
    };
}

fn main() -> ExitCode {
    let mut suite = suite("registry_redis").threads(THREADS);
    for (name, test) in registry::tests::<RedisDatabase>() {
        suite = suite.test(name, move |_| test());
    }
    let suite =
        with_tests!(suite,
        locks::reg_01_a_lock_that_another_server_took_keeps_a_change_out,
        locks::reg_01_ops_06_an_owner_whose_lock_was_taken_changes_nothing,
        locks::reg_01_servers_take_turns,
        locks::reg_01_ops_06_a_server_that_stops_releases_its_lock,
        locks::reg_01_ops_06_the_lock_of_a_server_that_was_killed_ends_by_itself,
        locks::reg_01_ops_06_a_start_is_refused_once_the_owner_extends_its_lock,
        problems::reg_01_a_start_without_redis_is_refused_with_the_reason,
        problems::reg_01_rds_06_a_wrong_password_is_reported,
        problems::reg_01_rds_06_a_replica_is_not_used_until_it_is_the_primary,
        problems::reg_01_rds_06_a_full_redis_is_served_and_its_room_is_noticed,
        problems::reg_01_rds_06_a_user_who_may_only_read_serves_and_reports_why_it_cannot_change,
        problems::reg_01_rds_06_a_lost_script_cache_is_not_noticed,
        problems::reg_01_a_document_written_by_hand_is_not_overwritten,
        problems::reg_01_a_change_after_an_idle_spell_succeeds,
        problems::reg_01_a_memory_server_writes_again_what_redis_has_forgotten,
        special::reg_01_rds_04_registries_with_two_prefixes_are_separate,
        special::reg_01_rds_04_a_registry_and_the_redis_backend_with_one_prefix_do_not_meet,
        special::reg_01_rds_03_only_the_document_has_no_ttl,
        special::reg_01_rds_08_a_password_is_in_no_log_at_any_level,
    );
    suite.run()
}
