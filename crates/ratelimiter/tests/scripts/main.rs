//! The rules as scripts: timed operations and the answers of the memory backend, line by line.

#![allow(clippy::unwrap_used, clippy::panic, reason = "an invalid script panics")]

mod complete;
mod definitions;
mod hints;
mod renew;
mod reserve;

use expect_test::Expect;
use testkit::script::{Answer, InMemory, Step};

/// Plays a script in memory and compares its answers; `limit` lines only define.
#[expect(clippy::needless_pass_by_value, reason = "an expectation reads best where it is written")]
fn check(script: &str, expect: Expect) {
    let memory = InMemory::new(|_| {});
    let mut trace = String::new();
    for line in script.lines().map(str::trim) {
        let step: Step = line.parse().unwrap();
        if line.starts_with("limit ") {
            let answer = memory.play(&step);
            assert!(matches!(answer, Answer::Defined(Ok(_))), "{line} -> {answer:?}");
        } else {
            memory.play_traced(&step, &mut trace);
        }
    }
    expect.assert_eq(&trace);
}
