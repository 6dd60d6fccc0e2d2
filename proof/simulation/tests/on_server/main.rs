//! The same random script in memory, on the model ledger, on a real TigerBeetle and on a real Redis, in real time: the same
//! decisions.
//!
//! No decision hinges on a moment: what is reserved lasts longer than the script, and what expires is waited for until
//! all four have let it go. `SCRIPTS=1000` plays more scripts, `SEED=…` other ones. Without the binary of either server these
//! tests count as ignored.

#![allow(missing_docs, unreachable_pub, reason = "a test binary has no readers")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod four_backends;

use std::io::Write;
use std::process::ExitCode;

use fastrand::Rng;
use ratelimiter::{Decision, LimitStatus, Requirements, ReserveRequest};
use testkit::script::{Answer, Call, KeyKind, KeyProfile, Profile, Script};
use testkit::{RunSeed, Suite, redis, tigerbeetle, within};

use crate::four_backends::{FourBackends, Servers};

const SCRIPTS: u64 = 10;
const STEPS: usize = 60;
/// Longer than any script takes.
const SECONDS: u64 = 86_400;
/// How many times something expires in the test of expiry.
const EXPIRIES: usize = 3;

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number in the environment"))
}

fn run(scenario: impl Future<Output = ()>) {
    testkit::run(within("the scripts end", scenario));
}

fn the_same_script_is_answered_alike_by_four_backends(servers: &Servers) {
    let count = from_environment("SCRIPTS").unwrap_or(SCRIPTS);
    let own = RunSeed::for_command("cargo test -p simulation --test on_server");
    let seeds: Vec<u64> = match from_environment("SEED") {
        Some(first) => (first..first + count).collect(),
        None => (0..count).chain(own.seeds(3)).collect(),
    };
    run(async {
        let mut answers = 0;
        for &seed in &seeds {
            let mut four_backends = FourBackends::on(servers, seed).await;
            let script = Script::random(Rng::with_seed(seed), &profile(&four_backends));
            for (number, step) in script.0.iter().enumerate() {
                if let Err(failure) = four_backends.check(&step.call).await {
                    let played = Script(script.0[..=number].to_vec());
                    panic!("SEED={seed}\n{played}\n{failure}");
                }
                answers += 1;
            }
        }
        let (count, first) = (seeds.len(), seeds[0]);
        let line = format!("{count} scripts from SEED={first}, {answers} steps, answered alike\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    });
}

fn profile(four_backends: &FourBackends) -> Profile {
    let names = ["rolling:a", "rolling:b", "rolling:c", "slots:a", "slots:b"];
    let keys = names.map(|name| KeyProfile {
        key: four_backends.key(name),
        kind: if name.starts_with("slots") { KeyKind::Concurrency } else { KeyKind::Rolling },
        seconds: SECONDS..=SECONDS,
    });
    Profile {
        step_count: STEPS - keys.len(),
        pass_percent: 0,
        lease_before: four_backends.lease(),
        ..Profile::portable(keys.to_vec())
    }
}

fn what_expires_returns_in_four_backends(servers: &Servers) {
    run(async {
        let four_backends = FourBackends::on(servers, 0).await;
        for round in 0..EXPIRIES {
            // The limits are the same again and again, since nothing is asked in between.
            let keys = [four_backends.key("rolling:short"), four_backends.key("slots:short")];
            let [rolling, slots] = &keys;
            let limits = format!("limit {rolling} rolling 1s 9\nlimit {slots} concurrency 1s 9");
            let Script(limits) = limits.parse().unwrap();
            let needs = Requirements::of(keys.map(|key| (key, 9))).unwrap();
            let reserve = Call::Reserve(ReserveRequest::new(four_backends.lease(), needs));
            for call in limits.into_iter().map(|step| step.call).chain([reserve]) {
                for answer in four_backends.play(&call).await {
                    let is_expected = matches!(
                        answer,
                        Answer::Defined(Ok(LimitStatus::Active))
                            | Answer::Decided(Ok(Decision::Allowed { .. }))
                    );
                    assert!(is_expected, "round {round}: {call} -> {answer:?}");
                }
            }
            four_backends.until_nothing_is_used().await;
        }
    });
}

fn main() -> ExitCode {
    let missing = tigerbeetle::missing();
    Suite::new("TIGERBEETLE", "four backends, one script", missing, Servers::default())
        .also_needs("REDIS", redis::missing())
        .threads(1)
        .test(
            "the_same_script_is_answered_alike_by_four_backends",
            the_same_script_is_answered_alike_by_four_backends,
        )
        .test("what_expires_returns_in_four_backends", what_expires_returns_in_four_backends)
        .run()
}
