//! The rules as scripts: timed operations and the answers of the memory backend, line by line.

#![allow(clippy::unwrap_used, clippy::panic, reason = "an invalid script panics")]

mod complete;
mod definitions;
mod hints;
mod reserve;
mod runner;

use expect_test::Expect;

/// Runs a script and compares its output.
#[expect(clippy::needless_pass_by_value, reason = "an expectation reads best where it is written")]
fn check(script: &str, expect: Expect) {
    expect.assert_eq(&runner::run(script));
}
