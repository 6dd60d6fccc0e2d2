//! Differential test against the memory backend.
//!
//! The same random script must give the same decisions, usage and debt, except for the differences
//! listed here.

mod script;

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::FakeClock;
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Backend, Decision, Denial, DenialReason, LeaseId, LimitState, Limiter, MemoryLimiter, Page,
    ReserveError,
};
use ratelimiter_tigerbeetle::limiter::{LimiterOptions, TigerBeetleLimiter};
use tigerbeetle_model::ModelLedger;

use testkit::RunSeed;

use self::script::{Script, Step};
use crate::context::run;

const SEEDS: std::ops::Range<u64> = 0..300;
const STEPS: usize = 150;

/// Memory against TigerBeetle, with a lease cache and without.
#[test]
fn both_backends_answer_the_same_script_alike() {
    let own = RunSeed::for_command("cargo test -p ratelimiter-tigerbeetle --test limiter alike");
    run(async {
        for seed in SEEDS.chain(own.seeds(60)) {
            let leases_cached_max = if seed % 2 == 0 { 1_000 } else { 0 };
            play(seed, leases_cached_max).await;
        }
    });
}

async fn play(seed: u64, leases_cached_max: usize) {
    let clock = Arc::new(FakeClock::new());
    let memory = MemoryLimiter::with_options(MemoryOptions::for_tests(clock.clone()));
    let ledger = Arc::new(ModelLedger::new(Arc::clone(&clock)));
    let clock_of_limiter = clock.clone();
    let options =
        LimiterOptions { clock: clock_of_limiter, leases_cached_max, ..LimiterOptions::default() };
    let tigerbeetle = TigerBeetleLimiter::new(ledger, options);
    let mut script = Script::new(seed);
    for number in 0..STEPS {
        let step = script.next_step(&*clock);
        let at = format!("seed {seed}, step {number}: {step:?}");
        match &step {
            Step::Pass(by) => clock.advance(*by),
            Step::Define(limit) => {
                let expected = memory.define(limit.clone()).await;
                assert_eq!(tigerbeetle.define(limit.clone()).await, expected, "{at}");
            }
            Step::Reserve(request) => {
                let expected = memory.reserve(request).await;
                let answer = tigerbeetle.reserve(request).await;
                let agree = agree(&script, request.lease, &expected, &answer);
                assert!(agree, "{at}\n{expected:?}\n{answer:?}");
                script.note(request, &expected);
            }
            Step::Complete(request) => {
                let expected = memory.complete(request).await;
                assert_eq!(tigerbeetle.complete(request).await, expected, "{at}");
            }
        }
        memory.sweep();
        tigerbeetle.tick().await;
        compare_states(&memory, &tigerbeetle, &at).await;
    }
}

/// Whether both answers agree, except for documented differences: hints are backoffs, one key is
/// named (the one for which the lease was denied first), and a lease ID used again with a further
/// key may be denied for that key.
fn agree(
    script: &Script,
    lease: LeaseId,
    memory: &Result<Decision, ReserveError>,
    tigerbeetle: &Result<Decision, ReserveError>,
) -> bool {
    use Decision::{Allowed, Denied};
    use DenialReason::NoRoom;
    match (memory, tigerbeetle) {
        (Ok(Allowed { reserved_at: memory }), Ok(Allowed { reserved_at: tigerbeetle })) => {
            tigerbeetle.since(*memory) < Duration::from_millis(1)
        }
        (
            Ok(Denied(Denial { reason: NoRoom { keys: memory }, .. })),
            Ok(Denied(Denial { reason: NoRoom { keys: tigerbeetle }, .. })),
        ) => {
            let was_denied = script.was_denied(lease);
            tigerbeetle.len() == 1 && (memory.contains(&tigerbeetle[0]) || was_denied)
        }
        (
            Err(ReserveError::LeaseConflict | ReserveError::LeaseEnded),
            Ok(Denied(Denial { reason: NoRoom { keys }, .. })),
        ) => keys.len() == 1 && script.was_allowed_without(lease, &keys[0]),
        (memory, tigerbeetle) => memory == tigerbeetle,
    }
}

async fn compare_states(
    memory: &MemoryLimiter,
    tigerbeetle: &TigerBeetleLimiter<Arc<ModelLedger>>,
    at: &str,
) {
    let expected: Vec<LimitState> = memory.states(&Page::default()).await.unwrap();
    let states = tigerbeetle.states(&Page::default()).await.unwrap();
    assert_eq!(states, expected, "{at}");
}
