//! The same random script in memory and on Redis, in simulated time: the same answers, to the last hint, and the same usage.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ratelimiter::{
    Backend, Capacity, KeyPattern, LimitKey, LimitState, LimitStatus, Page, Renewal,
};
use ratelimiter_redis::{CAPACITY_MAX, RedisLimiter};
use testkit::RunSeed;
use testkit::redis::{Fixture, TestRedis};
use testkit::script::{self, Answer, Call, InMemory, KeyKind, KeyProfile, Profile, Script, Step};

use crate::context::TestContext;

const SEEDS: u64 = 150;
/// Longer than any script: memory counts from the sweep that notices that a lease has lapsed, Redis from the lapse.
const LONG: Duration = Duration::from_secs(400 * 86_400);

pub fn redis_answers_every_script_as_memory_does(servers: &Fixture) {
    let own = RunSeed::for_command("cargo test -p ratelimiter-redis --all-features --test redis");
    let count = std::env::var("SCRIPTS").map_or(SEEDS, |count| count.parse().unwrap());
    let first = std::env::var("SEED").map_or(0, |first| first.parse().unwrap());
    let profiles = [profile(), profile_with_templates()];
    for seed in (first..first + count).chain(own.seeds(10)) {
        let profile = &profiles[usize::from(seed % 3 == 2)];
        let script = in_micros(Script::random(Rng::with_seed(seed), profile));
        let checked =
            script.check(|script, trace| testkit::run(play(servers.shared(), script, trace)));
        if let Err(trace) = checked {
            panic!("SEED={seed}\n{trace}");
        }
    }
}

fn key(name: &str, kind: KeyKind, seconds: std::ops::RangeInclusive<u64>) -> KeyProfile {
    KeyProfile { key: LimitKey::new(name).unwrap(), kind, seconds }
}

fn profile() -> Profile {
    Profile::crowded(vec![
        key("short:a", KeyKind::Rolling, 1..=5),
        key("short:b", KeyKind::Rolling, 1..=9),
        key("slots:a", KeyKind::Concurrency, 1..=9),
        key("slots:b", KeyKind::Concurrency, 1..=19),
        key("budget:a", KeyKind::Calendar, 1..=9),
    ])
}

fn profile_with_templates() -> Profile {
    let short = |name| key(name, KeyKind::Rolling, 1..=5);
    let slots = |name| key(name, KeyKind::Concurrency, 1..=19);
    Profile {
        templates: vec![short("t:*:short"), short("t:**:short"), slots("t:*:slots")],
        undefined: vec![short("t:a:short"), short("t:a:b:short"), slots("t:a:slots")],
        ..Profile::crowded(vec![short("short:a"), slots("slots:a")])
    }
}

/// Redis knows whole microseconds.
fn in_micros(mut script: Script) -> Script {
    for step in &mut script.0 {
        let micros = u64::try_from(step.at.as_micros()).unwrap();
        step.at = Duration::from_micros(micros);
    }
    script.0.retain(|step| step.call != Call::Sweep);
    script
}

async fn play(redis: &TestRedis, script: &Script, trace: &mut String) -> Result<(), String> {
    let memory = InMemory::new(|options| options.remember_for = LONG);
    let context = TestContext::with_clock(redis, Some(Arc::clone(&memory.clock)));
    let on_redis = context.limiter_with(|options| {
        options.remember_for = LONG;
        options.hints.rolling.jitter = Duration::ZERO;
        options.hints.concurrency.jitter = Duration::ZERO;
    });
    for (number, step) in script.0.iter().enumerate() {
        let mut expected = memory.play_traced(step, trace);
        if let Answer::State(Ok(Some(state))) = &mut expected {
            count_as_redis_does(state);
        }
        context.tell_time();
        let answer = script::play(&*on_redis, &step.call).await;
        let has_deleted = script.0[..number].iter().any(|one| matches!(one.call, Call::Delete(_)));
        if has_deleted && is_another_lapse(&expected, &answer) {
            return Ok(());
        }
        if answer != expected
            && !is_repeated_denial(&script.0[..number], &step.call, &expected, &answer)
        {
            return Err(format!("\nmemory: {expected:?}\nRedis:  {answer:?}"));
        }
        memory.limiter.sweep();
        if number % 2 == 0 {
            on_redis.tick().await;
        }
        if compare_states(&memory, &on_redis).await? == Agreement::UpToHere {
            return Ok(());
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Agreement {
    Full,
    /// From here on the answers may differ.
    UpToHere,
}

async fn compare_states(memory: &InMemory, on_redis: &RedisLimiter) -> Result<Agreement, String> {
    let mut pages = vec![Page::default()];
    let defined = memory.limiter.states_now(&pages[0]);
    for template in defined.iter().filter(|state| state.limit.key.is_template()) {
        let template = KeyPattern::new(&template.limit.key).ok();
        pages.push(Page { template, ..Page::default() });
    }
    for page in pages {
        let mut expected = memory.limiter.states_now(&page);
        if page.template.is_some() {
            // In memory an instance of which a lease has 0 units after a renew is listed too.
            expected.retain(|state| state.usage.used > 0 || state.usage.debt > 0);
        }
        expected.iter_mut().for_each(count_as_redis_does);
        let states = on_redis.states(&page).await.unwrap();
        if states == expected {
            continue;
        }
        if page.template.is_some() && differ_in_force_only(&expected, &states) {
            return Ok(Agreement::UpToHere);
        }
        return Err(format!("\nmemory: {expected:?}\nRedis:  {states:?}"));
    }
    Ok(Agreement::Full)
}

/// A decrease of a limit that was made from a template became possible, and the next change of the template came before anybody used the limit: Redis
/// still has the capacity of before both.
fn differ_in_force_only(expected: &[LimitState], states: &[LimitState]) -> bool {
    let is_same = |(expected, state): (&LimitState, &LimitState)| {
        let mut like = state.clone();
        if matches!(state.status, LimitStatus::Decreasing { .. }) {
            like.limit.capacity = expected.limit.capacity;
            like.usage.available = expected.usage.available;
        }
        like == *expected
    };
    expected.len() == states.len() && expected.iter().zip(states).all(is_same)
}

/// What a limit has been in shadow mode is as much as can be counted.
fn count_as_redis_does(state: &mut LimitState) {
    if state.limit.capacity == Capacity::MAX {
        state.limit.capacity = Capacity::new(CAPACITY_MAX).unwrap();
        state.usage.available = CAPACITY_MAX - state.usage.used;
    }
}

/// A denied renew that is repeated has the hint by the definition of now, in memory by that of then.
fn is_repeated_denial(before: &[Step], call: &Call, expected: &Answer, answer: &Answer) -> bool {
    let Call::Renew(request) = call else { return false };
    let is_same = |step: &Step| matches!(&step.call, Call::Renew(one) if (one.lease, one.number) == (request.lease, request.number));
    match (expected, answer) {
        (
            Answer::Renewed(Ok(Renewal::Denied(expected))),
            Answer::Renewed(Ok(Renewal::Denied(denial))),
        ) => before.iter().any(is_same) && expected.reason == denial.reason,
        _ => false,
    }
}

/// Another difference: a renewed hold of a limit that was deleted goes on with its own timeout, in memory with the last one of the limit. The lease
/// may end at another time then.
fn is_another_lapse(expected: &Answer, answer: &Answer) -> bool {
    use Renewal::Renewed;
    match (expected, answer) {
        (
            Answer::Renewed(Ok(Renewed { renewed_at, lapses_at, .. })),
            Answer::Renewed(Ok(Renewed { renewed_at: same, lapses_at: other, .. })),
        ) => renewed_at == same && lapses_at != other,
        _ => false,
    }
}
