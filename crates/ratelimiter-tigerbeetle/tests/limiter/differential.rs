//! Differential test against the memory backend.
//!
//! The same random script must give the same decisions, usage and debt, except for the documented
//! differences ([`History::agree`]).

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ratelimiter::{Backend, KeyPattern, LimitKey, LimitState, Page};
use ratelimiter_tigerbeetle::limiter::{LimiterOptions, TigerBeetleLimiter};
use testkit::RunSeed;
use testkit::script::{self, History, InMemory, KeyKind, KeyProfile, Profile, Script};
use tigerbeetle_model::ModelLedger;

use crate::context::run;

const SEEDS: std::ops::Range<u64> = 0..300;
const STEPS: usize = 150;
/// By how much a reservation may begin later than in memory.
const LAG: Duration = Duration::from_millis(1);

/// Memory against TigerBeetle, with a lease cache and without.
#[test]
fn both_backends_answer_the_same_script_alike() {
    let own = RunSeed::for_command("cargo test -p ratelimiter-tigerbeetle --test limiter alike");
    let (profile, with_templates) = (profile(), profile_with_templates());
    for seed in SEEDS.chain(own.seeds(60)) {
        let leases_cached_max = if seed % 2 == 0 { 1_000 } else { 0 };
        let profile = if seed % 3 == 2 { &with_templates } else { &profile };
        let checked = Script::random(Rng::with_seed(seed), profile).check(|script, trace| {
            let mut played = Ok(());
            run(async { played = play(script, leases_cached_max, trace).await });
            played
        });
        if let Err(trace) = checked {
            panic!("seed {seed}, {leases_cached_max} leases cached\n{trace}");
        }
    }
}

fn key(name: &str, kind: KeyKind, seconds: RangeInclusive<u64>) -> KeyProfile {
    KeyProfile { key: LimitKey::new(name).unwrap(), kind, seconds }
}

/// Templates that match the same keys are of one kind: on TigerBeetle the account of a key has what was
/// reserved under another one. There are no calendar limits among them, since the period of one that is
/// made anew goes on there.
fn profile_with_templates() -> Profile {
    let long = |name| key(name, KeyKind::Rolling, 100_000..=100_000);
    let short = |name| key(name, KeyKind::Rolling, 1..=5);
    let slots = |name| key(name, KeyKind::Concurrency, 1..=19);
    let keys = vec![long("long:a"), slots("slots:a"), key("budget:a", KeyKind::Calendar, 0..=0)];
    Profile {
        templates: vec![
            long("t:*:long"),
            long("t:**:long"),
            short("t:*:short"),
            slots("t:*:slots"),
            slots("t:a:*:slots"),
        ],
        undefined: vec![
            long("t:a:long"),
            long("t:a:b:long"),
            short("t:a:short"),
            short("t:b:short"),
            slots("t:a:slots"),
            slots("t:a:b:slots"),
        ],
        step_count: STEPS,
        ..Profile::portable(keys)
    }
}

fn profile() -> Profile {
    let keys = vec![
        key("long:a", KeyKind::Rolling, 100_000..=100_000),
        key("long:b", KeyKind::Rolling, 100_000..=100_000),
        key("short:a", KeyKind::Rolling, 1..=5),
        key("short:b", KeyKind::Rolling, 1..=5),
        key("slots:a", KeyKind::Concurrency, 1..=19),
        key("slots:b", KeyKind::Concurrency, 1..=19),
        key("budget:a", KeyKind::Calendar, 0..=0),
        key("budget:b", KeyKind::Calendar, 0..=0),
    ];
    Profile { step_count: STEPS, ..Profile::portable(keys) }
}

async fn play(script: &Script, leases_cached_max: usize, trace: &mut String) -> Result<(), String> {
    let memory = InMemory::new(|_| {});
    let ledger = Arc::new(ModelLedger::new(Arc::clone(&memory.clock)));
    let clock = memory.clock.clone();
    let options = LimiterOptions { clock, leases_cached_max, ..LimiterOptions::default() };
    let tigerbeetle = TigerBeetleLimiter::new(ledger, options);
    let mut history = History::default();
    for step in &script.0 {
        if memory.advance_to(step.at) > Duration::ZERO {
            memory.limiter.sweep();
            tigerbeetle.tick().await;
        }
        let expected = memory.play_traced(step, trace);
        let answer = script::play(&tigerbeetle, &step.call).await;
        if !history.agree(&step.call, &expected, &answer, LAG) {
            return Err(format!("\nmemory:      {expected:?}\nTigerBeetle: {answer:?}"));
        }
        history.note(&step.call, &expected);
        memory.limiter.sweep();
        tigerbeetle.tick().await;
        let expected = memory.limiter.states_now(&Page::default());
        let states = tigerbeetle.states(&Page::default()).await.unwrap();
        if states != expected {
            return Err(format!("\nmemory:      {expected:?}\nTigerBeetle: {states:?}"));
        }
        for template in expected.iter().filter(|state| state.limit.key.is_template()) {
            let template = KeyPattern::new(&template.limit.key).ok();
            let page = Page { template, ..Page::default() };
            let mut expected = memory.limiter.states_now(&page);
            // In memory an instance of which a lease has 0 units after a renew is listed too.
            expected.retain(|LimitState { usage, .. }| usage.used > 0 || usage.debt > 0);
            let states = tigerbeetle.states(&page).await.unwrap();
            if states != expected {
                return Err(format!("\nmemory:      {expected:?}\nTigerBeetle: {states:?}"));
            }
        }
    }
    Ok(())
}
