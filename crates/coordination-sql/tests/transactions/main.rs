//! The application's own transactions, concurrent connections and notifications, in both databases.

#![expect(clippy::unwrap_used, reason = "a test that gets no answer fails")]

mod facts;
mod world;

use std::process::ExitCode;

use testkit::postgres::Suite;
use testkit::run;

use self::world::{PostgresWorld, SqliteWorld};

/// Each fact for both databases.
macro_rules! suite {
    ($($fact:ident),* $(,)?) => {
        Suite::new("transactions")
            $(
                .test_without_server(concat!("sqlite::", stringify!($fact)), || {
                    run(facts::$fact::<SqliteWorld>());
                })
                .test(concat!("postgres::", stringify!($fact)), || {
                    run(facts::$fact::<PostgresWorld>());
                })
            )*
    };
}

fn main() -> ExitCode {
    suite![
        a_message_is_there_when_the_transaction_commits,
        a_message_goes_with_a_transaction_that_is_undone,
        an_inbox_message_and_what_it_caused_are_one,
        an_owner_that_lost_its_claim_is_told_in_its_transaction,
        many_messages_are_added_at_once_and_in_order,
        providers_that_race_hand_out_each_message_once,
        providers_that_race_for_topics_hand_out_each_message_once,
        providers_that_race_for_a_lease_have_one_winner,
        racing_senders_of_one_message_add_it_once,
        a_waiting_worker_hears_of_another_providers_message,
        a_waiting_worker_hears_of_a_transaction_that_commits,
        a_join_counts_members_that_end_while_it_starts,
        a_join_outlives_its_messages_until_it_is_old,
        a_call_after_the_close_says_so,
        crd_13_jobs_that_cannot_be_read_stop_nobody_else,
        crd_13_ticks_are_set_right_past_jobs_that_cannot_be_read,
        crd_13_a_run_whose_job_cannot_be_read_is_left_alone,
    ]
    .run()
}
