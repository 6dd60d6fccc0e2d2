//! The rules as scripts: what happens when, and what the memory backend answers, line by line.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a script with a fault stops where it is")]

mod complete;
mod definitions;
mod hints;
mod reserve;
mod runner;

use expect_test::Expect;

/// Runs a script and compares its answers.
#[expect(clippy::needless_pass_by_value, reason = "an expectation reads best where it is written")]
fn check(script: &str, expect: Expect) {
    expect.assert_eq(&runner::run(script));
}
