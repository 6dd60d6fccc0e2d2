//! The limiter on a real Redis. Without a server binary the tests count as ignored.
//!
//! Most tests run in simulated time: the scripts are the same, except that a key says what time it is, so that hours pass at once. The
//! conformance suite also runs in the time of Redis.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod context;
mod differential;
mod fixture;

use std::process::ExitCode;

use ratelimiter_conformance::suite::{FACTS, play};
use testkit::redis::suite;

use crate::context::{TestContext, Time};
use crate::fixture::{OnRedis, capabilities};

/// Most of a test's time in the time of Redis is spent waiting for a second to pass.
const THREADS: usize = 4;

fn main() -> ExitCode {
    let mut tests = suite("limiter on Redis").threads(THREADS);
    for time in [Time::Simulated, Time::Real] {
        let powers = capabilities(time);
        for fact in FACTS.iter().filter(|fact| fact.skipped_with(&powers).is_none()) {
            let name = format!("{}::{}", time.name(), fact.name);
            tests = tests.test(name, move |servers| {
                play(fact.name, async { OnRedis::new(TestContext::new(servers.shared(), time)) });
            });
        }
    }
    tests.test(differential::NAME, differential::redis_answers_every_script_as_memory_does).run()
}
