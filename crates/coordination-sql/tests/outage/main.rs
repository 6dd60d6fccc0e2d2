//! A PostgreSQL that is not there: at the start, in the middle of the work, and back again.
//!
//! Each test stops and starts a cluster of its own, so these need an installed server, and
//! `DATABASE_URL` is no help.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test tells what it saw")]

mod calls;
mod end;
mod scene;
mod timers;
mod workers;

use std::process::ExitCode;

use testkit::postgres::{Suite, TestCluster};

fn main() -> ExitCode {
    if end::is_asked_to_hold() {
        end::hold();
        return ExitCode::SUCCESS;
    }
    Suite::with_clusters_of_its_own("outage")
        .test("a_database_that_is_not_there_is_named", calls::not_there_at_the_start)
        .test("a_call_during_an_outage_ends_with_an_error", calls::during_an_outage)
        .test("a_commit_without_an_answer_ends_with_an_error", calls::commit_without_an_answer)
        .test("workers_resume_after_a_stop_and_lose_nothing", || {
            workers::resume(TestCluster::stop);
        })
        .test("workers_resume_after_a_crash_and_lose_nothing", || {
            workers::resume(TestCluster::crash);
        })
        .test("a_worker_hears_of_new_work_again_after_an_outage", workers::hear_again)
        .test("a_timer_that_comes_due_in_an_outage_is_dispatched_once", timers::come_due)
        .test("a_private_cluster_ends_with_its_process", end::with_its_process)
        .run()
}
