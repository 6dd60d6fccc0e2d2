//! Random scripts, and the limiters that play them.

use std::ops::RangeInclusive;
use std::time::Duration;

use fastrand::Rng;
use ratelimiter::{CAPACITY_MAX, LimitKey};
use testkit::script::{KeyKind, KeyProfile, Profile, Script};

/// A script, and the options of the limiter.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) script: Script,
    /// Without jitter every hint is compared exactly, with it against its bounds.
    pub(crate) has_jitter: bool,
    pub(crate) remember_seconds: u64,
    /// A bug planted in the limiter, to check that the model detects it.
    pub(crate) flaw: Option<Flaw>,
}

/// A bug that can be planted in the limiter by its options.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Flaw {
    ForgetsLeases,
    HintsTooLate,
}

impl Case {
    /// The case of this number in a run with this seed.
    pub(crate) fn random(seed: u64, number: u64) -> Self {
        let mut random = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let profile = profile(number, &mut random);
        let has_jitter = random.u8(..4) == 0;
        let remember_seconds = if random.bool() { 5 } else { 600 };
        let script = Script::random(random, &profile);
        Self { script, has_jitter, remember_seconds, flaw: None }
    }
}

fn profile(number: u64, random: &mut Rng) -> Profile {
    // The limits of a model or two, which are one group each, and limits outside them.
    let has_models = number % 200 >= 100;
    // The oracle scans all live reservations at every step, so there are few of these.
    let is_long = number.is_multiple_of(200) || number % 1_000 == 100;
    let (key_count, seconds) = match (has_models, is_long) {
        // Long windows, and changes between short and long ones.
        (false, false) if number.is_multiple_of(5) => (random.u8(1..=4), 3_590..=3_610),
        (false, true) if number.is_multiple_of(400) => (2, 3_600..=7_200),
        (false, false) => (random.u8(1..=4), 1..=4),
        (true, false) => (random.u8(2..=6), 1..=4),
        (false, true) => (2, 1..=60),
        (true, true) => (3, 1..=60),
    };
    let key = |number: u8| KeyProfile {
        key: if has_models { key_of_model(number) } else { key(number) },
        kind: match number % 3 {
            0 => KeyKind::Rolling,
            1 => KeyKind::Concurrency,
            _ => KeyKind::Calendar,
        },
        seconds: seconds.clone(),
    };
    let crowded = Profile {
        step_count: random.usize(10..=80),
        deletions_one_in: if has_models { 4 } else { 12 },
        has_growing_ids: !has_models || (!is_long && random.bool()),
        ..Profile::crowded((0..key_count).map(key).collect())
    };
    let crowded = match number % 3 == 2 && !is_long {
        true => with_templates(crowded, has_models, &seconds, random),
        false => crowded,
    };
    with_extremes(crowded, number, is_long)
}

/// Makes some scripts long, or their renews many, or their amounts large.
fn with_extremes(crowded: Profile, number: u64, is_long: bool) -> Profile {
    match number % 200 {
        // Enough calls that those of a long window are joined.
        0 if number.is_multiple_of(400) => Profile {
            step_count: 4_000,
            amount_max: 2,
            actual_max: 2,
            capacities: 700..=800,
            change_percent: 0,
            pass_percent: 25,
            pass_max: Duration::from_secs(20),
            ..crowded
        },
        // Long enough for one limit to have hundreds of live reservations, and for past leases to fill several chunks.
        _ if is_long => Profile {
            step_count: 2_000,
            amount_max: 2,
            actual_max: 2,
            capacities: 380..=420,
            change_percent: 1,
            pass_percent: 1,
            ..crowded
        },
        // Few leases that are renewed many times.
        20..=39 => Profile {
            step_count: 120,
            capacities: 20..=60,
            change_percent: 3,
            pass_percent: 8,
            renew_percent: 80,
            ..crowded
        },
        // Amounts near the limits of 64 bits.
        1..=9 => Profile {
            amount_max: u64::MAX,
            actual_max: u64::MAX,
            capacities: 0..=CAPACITY_MAX,
            ..crowded
        },
        _ => crowded,
    }
}

/// Adds templates, and keys that they match, to a script.
fn with_templates(
    profile: Profile,
    has_models: bool,
    seconds: &RangeInclusive<u64>,
    random: &mut Rng,
) -> Profile {
    const KINDS: [KeyKind; 3] = [KeyKind::Rolling, KeyKind::Concurrency, KeyKind::Calendar];
    let (templates, undefined): (&[&str], &[&str]) = match has_models {
        true => (
            &["global:llm:p:*:rpm", "global:llm:**", "global:llm:*:m9:*"],
            &["global:llm:p:m8:rpm", "global:llm:p:m9:rpm", "global:llm:p:m9:tpm"],
        ),
        false => (&["t:*", "t:**", "*:x"], &["t:a", "t:b", "t:a:x", "t:x"]),
    };
    let usual = KINDS[random.usize(..3)];
    let mut profiles = |texts: &[&str]| -> Vec<KeyProfile> {
        let profile = |text: &&str| KeyProfile {
            key: LimitKey::new(text).unwrap(),
            // Limits of one kind take over from each other.
            kind: if random.u8(..5) == 0 { KINDS[random.usize(..3)] } else { usual },
            seconds: seconds.clone(),
        };
        texts.iter().map(profile).collect()
    };
    Profile {
        templates: profiles(templates),
        undefined: profiles(undefined),
        keys_max: profile.keys.len() + undefined.len(),
        // Also without the templates.
        deletions_one_in: 4,
        ..profile
    }
}

/// A key outside any group.
fn key(number: u8) -> LimitKey {
    LimitKey::new(format!("k{number}")).unwrap()
}

/// Three keys of a model and one outside any group alternate.
fn key_of_model(number: u8) -> LimitKey {
    let model = format!("m{}", number / 4);
    match number % 4 {
        0 => LimitKey::llm_rpm("p", &model).unwrap(),
        1 => LimitKey::llm_concurrency("p", &model).unwrap(),
        2 => LimitKey::llm_tpm("p", &model).unwrap(),
        _ => key(number),
    }
}
