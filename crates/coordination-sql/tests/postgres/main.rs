//! The provider as a PostgreSQL server sees it: sessions, plans, roles, locks, statement sizes.

#![expect(clippy::unwrap_used, reason = "a test that gets no answer fails")]

mod batches;
mod locks;
mod plans;
mod roles;
mod server;
mod sessions;

use std::process::ExitCode;

use testkit::postgres::Suite;
use testkit::run;

/// Each fact in its own schema.
macro_rules! suite {
    ($($module:ident::$fact:ident),* $(,)?) => {
        Suite::new("postgres")
            $(.test(concat!(stringify!($module), "::", stringify!($fact)), || {
                run($module::$fact());
            }))*
    };
}

fn main() -> ExitCode {
    suite![
        sessions::crd_15_calls_leave_no_setting_in_a_session,
        sessions::crd_15_a_provider_works_on_the_applications_pool,
        sessions::crd_15_no_plan_of_a_search_is_kept,
        plans::crd_15_calls_read_no_more_when_the_tables_have_grown,
        roles::crd_16_a_role_that_may_only_read_and_write_connects,
        roles::crd_16_the_error_of_such_a_role_says_what_to_run,
        roles::crd_16_opening_makes_no_tables,
        roles::crd_16_the_printed_migrations_are_those_that_run,
        batches::crd_14_a_claim_notices_a_bounded_number_of_due_items,
        batches::crd_14_a_claim_by_topic_finds_its_own_behind_many_others,
        batches::crd_14_reaping_and_purging_change_a_bounded_number_of_rows_at_a_time,
        batches::crd_14_materialising_makes_a_bounded_number_of_runs_at_a_time,
        batches::crd_14_ticks_are_set_right_a_bounded_number_at_a_time,
        locks::a_join_is_deleted_when_two_workers_purge_its_last_messages,
        locks::messages_are_locked_in_the_order_of_their_ids,
    ]
    .run()
}
