//! Migrations when a provider is opened, and errors of opening.

#![expect(clippy::unwrap_used, reason = "a test that gets no answer fails")]

mod postgres;
mod sqlite;

use std::process::ExitCode;
use std::time::Duration;

use coordination::{
    Fence, FencingToken, JoinError, JoinId, Joins, Materialised, Outbox, ResourceName, Retention,
    Scheduler, Topics,
};
use testkit::postgres::Suite;
use testkit::run;

fn main() -> ExitCode {
    Suite::new("migrations")
        .test_without_server("sqlite::opening_again_changes_nothing", || {
            run(sqlite::opening_again_changes_nothing());
        })
        .test_without_server("sqlite::many_that_open_a_new_file_at_once_all_do", || {
            run(sqlite::many_that_open_a_new_file_at_once_all_do());
        })
        .test_without_server("sqlite::a_file_of_version_1_is_brought_up_to_date", || {
            run(sqlite::a_file_of_version_1_is_brought_up_to_date());
        })
        .test_without_server(
            "sqlite::crd_02_what_was_claimed_and_not_handled_has_all_its_attempts",
            || {
                run(sqlite::crd_02_what_was_claimed_and_not_handled_has_all_its_attempts());
            },
        )
        .test_without_server("sqlite::a_newer_file_is_refused", || {
            run(sqlite::a_newer_file_is_refused());
        })
        .test_without_server("sqlite::a_file_that_is_no_database_is_refused", || {
            run(sqlite::a_file_that_is_no_database_is_refused());
        })
        .test_without_server("sqlite::a_missing_folder_is_named", || {
            run(sqlite::a_missing_folder_is_named());
        })
        .test_without_server(
            "postgres::an_unreachable_server_is_named_without_its_password",
            || {
                run(postgres::an_unreachable_server_is_named_without_its_password());
            },
        )
        .test_without_server("postgres::a_bad_address_is_refused_and_not_shown", || {
            run(postgres::a_bad_address_is_refused_and_not_shown());
        })
        .test("postgres::opening_again_changes_nothing", || {
            run(postgres::opening_again_changes_nothing());
        })
        .test("postgres::many_that_open_a_new_schema_at_once_all_do", || {
            run(postgres::many_that_open_a_new_schema_at_once_all_do());
        })
        .test("postgres::schemas_share_nothing", || run(postgres::schemas_share_nothing()))
        .test("postgres::a_schema_of_version_1_is_brought_up_to_date", || {
            run(postgres::a_schema_of_version_1_is_brought_up_to_date());
        })
        .test("postgres::a_migration_may_take_longer_than_a_call", || {
            run(postgres::a_migration_may_take_longer_than_a_call());
        })
        .test("postgres::a_newer_schema_is_refused", || {
            run(postgres::a_newer_schema_is_refused());
        })
        .test("postgres::a_migration_that_fails_leaves_nothing", || {
            run(postgres::a_migration_that_fails_leaves_nothing());
        })
        .run()
}

/// The part of a migration script that creates version 1.
fn version_1(script: &str) -> String {
    let (first, _) = script.split_once("\n-- Version 2:").unwrap();
    format!("{first}\nCOMMIT;")
}

/// In tables of version 1: a message that is done, a join of it, a join whose message is gone, and
/// a job whose tick was computed by a clock that was centuries ahead.
const DATA_OF_VERSION_1: &str = "
    INSERT INTO {outbox} (id, state, due_at, finished_at, topic, payload)
        VALUES ('01ARZ3NDEKTSV4RRFFQ69G5FAV', 'done', 1, 1, 't', '');
    INSERT INTO {joins} (id, expected, started_at)
        VALUES ('01ARZ3NDEKTSV4RRFFQ69G5FA1', 1, 1), ('01ARZ3NDEKTSV4RRFFQ69G5FA2', 1, 1);
    INSERT INTO {join_members} (join_id, message_id, outcome)
        VALUES ('01ARZ3NDEKTSV4RRFFQ69G5FA1', '01ARZ3NDEKTSV4RRFFQ69G5FAV', NULL),
               ('01ARZ3NDEKTSV4RRFFQ69G5FA2', '01ARZ3NDEKTSV4RRFFQ69G5FAX', 'done');
    INSERT INTO {jobs} (name, topic, payload, cron, time_zone, next_tick)
        VALUES ('yearly', 't', '', '0 0 1 1 *', 'UTC', 9000000000000000)";

/// The migrated [`DATA_OF_VERSION_1`].
async fn check_data(provider: &(impl Joins + Scheduler)) {
    let join = |text: &str| text.parse::<JoinId>().unwrap();
    let kept = join("01ARZ3NDEKTSV4RRFFQ69G5FA1");
    let progress = provider.join_progress(kept).await.unwrap();
    assert_eq!((progress.expected, progress.completed), (1, 1));
    let old = provider.join_progress(join("01ARZ3NDEKTSV4RRFFQ69G5FA2")).await;
    assert!(matches!(old, Err(JoinError::Unknown { .. })), "its message is gone: {old:?}");
    let keep = Retention::of_all(Duration::ZERO);
    assert_eq!(Outbox::purge(provider, &Topics::All, keep).await.unwrap(), 1);
    let gone = provider.join_progress(kept).await;
    assert!(matches!(gone, Err(JoinError::Unknown { .. })), "with its message: {gone:?}");
    let fence =
        Fence { resource: ResourceName::new("scheduler").unwrap(), token: FencingToken::new(1) };
    let made = provider.create_job_runs_from_due_jobs(&fence).await.unwrap();
    assert_eq!(made, Materialised::Runs(0));
    let next = provider.next_event_time().await.unwrap().unwrap();
    assert!(next.unix_micros() < 8_000_000_000_000_000, "by the right time: {next}");
}
