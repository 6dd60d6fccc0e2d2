//! The tables are made when a provider is opened, once, and only by a program that knows them; and
//! what cannot be opened says why.

#![expect(clippy::unwrap_used, reason = "a test that gets no answer fails")]

mod postgres;
mod sqlite;

use std::process::ExitCode;

use coordination_sql::testing::Suite;

fn main() -> ExitCode {
    Suite::new("migrations")
        .test_without_server("sqlite::opening_again_changes_nothing", || {
            run(sqlite::opening_again_changes_nothing());
        })
        .test_without_server("sqlite::many_that_open_a_new_file_at_once_all_do", || {
            run(sqlite::many_that_open_a_new_file_at_once_all_do());
        })
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
        .test("postgres::a_newer_schema_is_refused", || {
            run(postgres::a_newer_schema_is_refused());
        })
        .test("postgres::a_migration_that_fails_leaves_nothing", || {
            run(postgres::a_migration_that_fails_leaves_nothing());
        })
        .run()
}

fn run(fact: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(fact);
}
