use fastrand::Rng;
use ratelimiter::CAPACITY_MAX;

use super::*;

/// A script with all calls and with amounts of all sizes.
fn random(seed: u64) -> Script {
    let key = |(name, kind): (&str, KeyKind)| KeyProfile {
        key: LimitKey::new(name).expect("it is a key"),
        kind,
        seconds: 1..=4,
    };
    let keys =
        [("rpm", KeyKind::Rolling), ("slots", KeyKind::Concurrency), ("budget", KeyKind::Calendar)];
    let keys = keys.map(key).to_vec();
    let crowded = Profile::crowded(keys);
    Script::random(
        Rng::with_seed(seed),
        &match seed % 2 {
            0 => crowded,
            _ => Profile { amount_max: u64::MAX, capacities: 0..=CAPACITY_MAX, ..crowded },
        },
    )
}

#[test]
fn a_script_and_its_trace_read_as_the_script() {
    for seed in 0..100 {
        let script = random(seed);
        assert_eq!(script.to_string().parse::<Script>().expect("it is a script"), script);
        let (memory, mut trace) = (InMemory::new(|_| {}), String::new());
        for step in &script.0 {
            memory.play_traced(step, &mut trace);
        }
        assert_eq!(trace.parse::<Script>().expect("it is a script"), script);
    }
}

#[test]
fn what_is_not_a_step_is_refused() {
    for line in [
        "",
        "sweep",
        "1s",
        "1h sweep",
        "1s jump",
        "1s reserve",
        "1s reserve A",
        "1s reserve A rpm",
        "1s reserve A rpm=0",
        "1s reserve A rpm=2^65",
        "1s reserve A rpm=1 rpm=1",
        "1s reserve _ rpm=1",
        "1s renew A",
        "1s renew A 0",
        "1s renew A 1 rpm",
        "1s define rpm rolling 60s",
        "1s define rpm rolling 60s 1 perhaps",
        "1s define rpm bucket 60s 1",
        "limit rpm rolling 500ms 1",
    ] {
        assert!(line.parse::<Step>().is_err(), "{line}");
    }
}

#[test]
fn a_script_that_fails_prints_a_short_one_that_fails_too() {
    let play = |script: &Script, trace: &mut String| {
        let memory = InMemory::new(|_| {});
        for step in &script.0 {
            let answer = memory.play_traced(step, trace);
            let Answer::Decided(Ok(decision)) = answer else { continue };
            if !decision.is_allowed() {
                return Err(format!("\n{step} is denied"));
            }
        }
        Ok(())
    };
    let failed = random(0).check(play).expect_err("the script has denials");
    let (trace, failure) = failed.split_once("\n\n").expect("a trace, then the failure");
    assert!(failure.ends_with(" is denied\n"), "{failure}");
    let shortest: Script = trace.parse().expect("a trace is a script");
    assert!(shortest.0.len() <= 5, "{trace}");
    assert!(play(&shortest, &mut String::new()).is_err(), "{trace}");
}

#[test]
fn a_panic_is_a_failure_of_the_script() {
    let play = |script: &Script, trace: &mut String| {
        let memory = InMemory::new(|_| {});
        script.0.iter().for_each(|step| drop(memory.play_traced(step, trace)));
        assert!(!trace.contains("allowed"), "as if the limiter had panicked");
        Ok(())
    };
    let failed = random(0).check(play).expect_err("the script has reservations");
    assert!(failed.contains("allowed") && failed.ends_with("above\n"), "{failed}");
}

const MEMORY_NANOS: u64 = 60_000_000_000;
/// Times of TigerBeetle, and whether they agree with [`MEMORY_NANOS`] at a lag of 1 ms.
const OTHER_NANOS: [(u64, bool); 6] = [
    (0, false),
    (30_000_000_000, false),
    (MEMORY_NANOS - 1, false),
    (MEMORY_NANOS, true),
    (MEMORY_NANOS + 999_999, true),
    (MEMORY_NANOS + 1_000_000, false),
];

fn agree(step: &str, memory: &Answer, other: &Answer) -> bool {
    let step: Step = step.parse().expect("it is a step");
    History::default().agree(&step.call, memory, other, Duration::from_millis(1))
}

fn renewed(renewed_at: u64, lapses_at: u64) -> Answer {
    Answer::Renewed(Ok(Renewal::Renewed {
        renewed_at: Timestamp::from_unix_nanos(renewed_at),
        lapses_at: Timestamp::from_unix_nanos(lapses_at),
        shadow_denied: Vec::new(),
    }))
}

fn allowed(reserved_at: u64) -> Answer {
    let reserved_at = Timestamp::from_unix_nanos(reserved_at);
    Answer::Decided(Ok(Decision::Allowed { reserved_at, shadow_denied: Vec::new() }))
}

/// REN-02: clients renew at a third of the time until a lease lapses.
#[test]
fn answers_to_a_renew_that_lapse_early_do_not_agree() {
    let memory = renewed(MEMORY_NANOS, MEMORY_NANOS);
    for (nanos, agrees) in OTHER_NANOS {
        for other in [renewed(MEMORY_NANOS, nanos), renewed(nanos, MEMORY_NANOS)] {
            assert_eq!(agree("0s renew A 1 rpm=1", &memory, &other), agrees, "{other:?}");
        }
    }
}

#[test]
fn answers_to_a_reserve_that_begin_early_do_not_agree() {
    for (nanos, agrees) in OTHER_NANOS {
        let (memory, other) = (allowed(MEMORY_NANOS), allowed(nanos));
        assert_eq!(agree("0s reserve A rpm=1", &memory, &other), agrees, "{other:?}");
    }
}
