//! The same random script in memory, on the model ledger and on a real TigerBeetle, in real time: the same decisions.
//!
//! No decision hinges on a moment: what is reserved lasts longer than the script, and what expires is waited for until
//! all three have let it go. `SCRIPTS=1000` plays more scripts, `SEED=…` other ones. Without a server binary these
//! tests count as ignored.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod script;
mod three_backends;

use std::io::Write;
use std::process::ExitCode;

use testkit::tigerbeetle::{Fixture, suite};
use testkit::{RunSeed, within};

use crate::script::Script;
use crate::three_backends::ThreeBackends;

const SCRIPTS: u64 = 10;
const STEPS: usize = 60;
/// How many times something expires in the test of expiry.
const EXPIRIES: usize = 3;

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number in the environment"))
}

fn run(scenario: impl Future<Output = ()>) {
    testkit::run(within("the scripts end", scenario));
}

fn the_same_script_is_answered_alike_in_memory_on_the_model_and_on_the_server(fixture: &Fixture) {
    let count = from_environment("SCRIPTS").unwrap_or(SCRIPTS);
    let own = RunSeed::for_command("cargo test -p simulation --test on_server");
    let seeds: Vec<u64> = match from_environment("SEED") {
        Some(first) => (first..first + count).collect(),
        None => (0..count).chain(own.seeds(3)).collect(),
    };
    run(async {
        let server = three_backends::connect(fixture).await;
        let mut answers = 0;
        for &seed in &seeds {
            let mut three_backends = ThreeBackends::new(&server, seed);
            let mut script = Script::new(seed, three_backends.prefix());
            for number in 0..STEPS {
                let step = script.next_step(three_backends.now());
                three_backends
                    .play(&step, &mut script, &format!("SEED={seed}, step {number}"))
                    .await;
                answers += 1;
            }
        }
        let (count, first) = (seeds.len(), seeds[0]);
        let line = format!("{count} scripts from SEED={first}, {answers} steps, answered alike\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    });
}

fn what_expires_returns_in_memory_on_the_model_and_on_the_server(fixture: &Fixture) {
    run(async {
        let server = three_backends::connect(fixture).await;
        let three_backends = ThreeBackends::new(&server, 0);
        for round in 0..EXPIRIES {
            let mut script = Script::new(round as u64, three_backends.prefix());
            for step in script.expiry(three_backends.now()) {
                three_backends.play_anywhen(&step, &format!("round {round}")).await;
            }
            three_backends.until_nothing_is_used().await;
        }
    });
}

fn main() -> ExitCode {
    suite("three backends, one script")
        .test(
            "the_same_script_is_answered_alike_in_memory_on_the_model_and_on_the_server",
            the_same_script_is_answered_alike_in_memory_on_the_model_and_on_the_server,
        )
        .test(
            "what_expires_returns_in_memory_on_the_model_and_on_the_server",
            what_expires_returns_in_memory_on_the_model_and_on_the_server,
        )
        .run()
}
