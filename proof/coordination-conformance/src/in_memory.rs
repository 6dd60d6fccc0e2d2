//! Scenarios of in-memory providers, which share nothing with another process.
//!
//! The scenarios start a second process: this binary again, with `ROLE_VARIABLE` set. A binary
//! that runs them has a test `second_process` which calls [`second_process`], or calls it first.

use std::process::Command;

use coordination::{Leases, Outbox};

use crate::Fixture;
use crate::fixture::lease;
use crate::outbox::claim_ids;
use crate::sample::{outbox_message, resource};
use crate::scenario::{answer, suite};

/// Set in the second process only.
const ROLE_VARIABLE: &str = "COORDINATION_CONFORMANCE_SECOND_PROCESS";
/// The report of a second process that shares nothing with the first.
const ALONE: &str = "second process: 0 messages, acquired";

suite! {
    $
    /// One test per property of a provider in memory. Durable providers have `durable_suite!`
    /// instead.
    macro in_memory_suite, module in_memory, fixture Fixture,
    "GEN-001" gen_001_state_is_local_and_not_durable:
        "State is process-local and non-durable: another process knows nothing of it, and what a process kept is gone with it.";
    "GEN-002" gen_002_two_processes_coordinate_nothing:
        "For local development and tests, not for coordination between processes: two processes are granted the same resource at once.";
}

/// PRIM-INMEMORY-GEN-001, `CRD-20`
pub async fn gen_001_state_is_local_and_not_durable<F: Fixture>(fixture: F) {
    let id = answer(fixture.outbox().enqueue(outbox_message("1"))).await;
    for _ in 0..2 {
        // Each leaves a message behind.
        let seen = start_second_process();
        assert!(seen.contains(ALONE), "{seen}");
    }
    assert_eq!(claim_ids(&fixture, "a").await, [id], "nor does this one know of theirs");
}

/// PRIM-INMEMORY-GEN-002, `CRD-20`
pub async fn gen_002_two_processes_coordinate_nothing<F: Fixture>(fixture: F) {
    let held = answer(fixture.leases().acquire(&resource("one"), lease(10), None)).await;
    let held = held.expect("nobody holds it");
    let seen = start_second_process();
    assert!(seen.contains(ALONE), "{seen}");
    assert_eq!(held.ensure_held(), Ok(()), "both held it");
}

/// Whether a scenario started this process.
pub fn is_second_process() -> bool {
    std::env::var_os(ROLE_VARIABLE).is_some()
}

/// In a second process: looks for the first one's message and lease, prints what it found, and
/// leaves a message behind. Otherwise it does nothing.
#[expect(clippy::print_stdout, reason = "the first process reads it")]
pub fn second_process<F: Fixture>() {
    if !is_second_process() {
        return;
    }
    F::block_on(async {
        let fixture = F::fresh().await;
        let messages = claim_ids(&fixture, "b").await.len();
        let held = answer(fixture.leases().acquire(&resource("one"), lease(10), None)).await;
        let acquired = if held.is_some() { "acquired" } else { "not acquired" };
        answer(fixture.outbox().enqueue(outbox_message("2"))).await;
        println!("second process: {messages} messages, {acquired}");
    });
}

/// Runs a second process. Returns what it printed.
fn start_second_process() -> String {
    let this = std::env::current_exe().expect("a process knows its program");
    let mut second = Command::new(this);
    // As the arguments of a test binary: the test `second_process`, its output shown.
    second.args(["second_process", "--nocapture"]).env(ROLE_VARIABLE, "yes");
    let output = second.output().expect("the program starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
