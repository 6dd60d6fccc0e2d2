//! Several processes on one database: they start at once, claim from one queue, and are killed.
//!
//! The other processes are this binary again, with a [`role`](child::Role) in an environment
//! variable. Without a PostgreSQL the tests on it count as ignored; those on SQLite always run.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test tells what it saw")]

mod child;
mod claims;
mod kill;
mod migrations;
mod place;
mod worker;

use std::process::ExitCode;

use testkit::postgres::Suite;
use testkit::run;

use crate::child::{Role, own_place};
use crate::kill::Consumer;
use crate::place::Place;

fn main() -> ExitCode {
    if let Some(role) = Role::of_this_process() {
        play(role);
        return ExitCode::SUCCESS;
    }
    Suite::new("processes")
        .test("processes_migrate_at_once_on_postgresql", || migrations::at_once(Place::postgres))
        .test_without_server("processes_migrate_at_once_on_sqlite", || {
            migrations::at_once(Place::sqlite);
        })
        .test("each_message_is_handed_out_once_on_postgresql", || claims::once(Place::postgres))
        .test_without_server("each_message_is_handed_out_once_on_sqlite", || {
            claims::once(Place::sqlite);
        })
        .test("killed_workers_lose_nothing_on_postgresql", || {
            kill::rounds(Place::postgres, Consumer::Spared);
        })
        .test_without_server("killed_workers_lose_nothing_on_sqlite", || {
            kill::rounds(Place::sqlite, Consumer::Spared);
        })
        .test("killed_consumers_handle_each_message_once_on_postgresql", || {
            kill::rounds(Place::postgres, Consumer::Killed);
        })
        .test_without_server("killed_consumers_handle_each_message_once_on_sqlite", || {
            kill::rounds(Place::sqlite, Consumer::Killed);
        })
        .run()
}

/// Does what this process is there for.
fn play(role: Role) {
    run(async {
        match role {
            Role::Migrate => migrations::open_what_is_told().await,
            Role::Claim => on_provider!(&own_place(), claims::claim_all),
            Role::Dispatch => on_provider!(&own_place(), worker::dispatch),
            Role::DispatchAndConsume => on_provider!(&own_place(), worker::dispatch_and_consume),
        }
    });
}
