//! After each of many calls, what is counted is what is there.

use std::time::Duration;

use fastrand::Rng;
use ratelimiter::clock::Clock;
use ratelimiter::{Backend, Limiter, NewAmounts, RenewNumber, RenewRequest};
use testkit::redis::{Fixture, Persistence, TestRedis};
use testkit::script::{self, KeyKind, KeyProfile, Profile, Script};

use crate::calls::*;
use crate::context::{TestContext, Time};

/// What is counted is what is there, and has a TTL.
const AUDIT: &str = r"
local P = KEYS[1]
local bad = {}
local now = tonumber(redis.call('GET', P .. 'now'))
local function say(...) bad[#bad + 1] = table.concat({...}, ' ') end
for _, name in ipairs(redis.call('KEYS', '*')) do
  if name:sub(1, #P) == P then
    local rest = name:sub(#P + 1)
    local ttl = redis.call('PTTL', name)
    if ttl < 0 and rest ~= 'now' and rest ~= 'meta' and rest ~= 'registry' and rest ~= 'debts' then
      say('no ttl', rest)
    end
    local key = rest:match('^limit:(.*)$')
    if key then
      local kind, used, open, next_expiry, sequence, _, kept, cap, template = cmsgpack.unpack(redis.call('GET', name))
      local members = redis.call('ZRANGE', P .. 'live:' .. key, 0, -1, 'WITHSCORES')
      local u, o = 0, 0
      for at = 1, #members, 2 do
        local s, units = members[at]:match('([oc])(%d+)$')
        u = u + units
        if s == 'o' then o = o + 1 end
        local score = tonumber(members[at + 1])
        if score < next_expiry then say('next too late', key) end
        if score > kept then say('kept too short', key) end
        if tonumber(members[at]:match('^[+*]?(%d+)')) > sequence then say('sequence', key) end
      end
      if u ~= used or o ~= open then say(key, 'used', used, u, 'open', open, o) end
      if template ~= '' and not redis.call('ZSCORE', P .. 'instances:' .. template, key) then say('not listed', key) end
    end
    key = rest:match('^live:(.*)$')
    if key and redis.call('EXISTS', P .. 'limit:' .. key) == 0 then say('live without limit', key) end
  end
end
local total = 0
for _, name in ipairs(redis.call('KEYS', '*')) do
  if name:sub(1, #P) == P and name:sub(#P + 1):match('^instances:') then
    total = total + redis.call('ZCARD', name)
  end
end
local counted = tonumber(redis.call('HGET', P .. 'instance_counts', 'total') or 0)
if counted ~= total then say('total', counted, total) end
return table.concat(bad, '; ')
";

/// Random scripts while the clock of Redis jumps.
pub fn counts_hold_when_the_clock_jumps(_: &Fixture) {
    let redis = &TestRedis::start(Persistence::None);
    let count = std::env::var("SCRIPTS").map_or(60, |count| count.parse().unwrap());
    let first: u64 = std::env::var("SEED").map_or(0, |first| first.parse().unwrap());
    let profile = profile();
    let mut seen = [0_u32; 3];
    for seed in first..first + count {
        let script = Script::random(Rng::with_seed(seed), &profile);
        testkit::run(async {
            let context = TestContext::new(redis, Time::Simulated);
            let limiter = context.limiter();
            let mut random = Rng::with_seed(seed);
            let base =
                context.clock.as_ref().unwrap().now().unix_nanos() / 1_000 + 4_000_000_000_000;
            let mut offset: i64 = 0;
            for (number, step) in script.0.iter().enumerate() {
                if random.u8(..10) == 0 {
                    offset = random.i64(-100_000_000_000..100_000_000_000);
                }
                if random.u8(..20) == 0 {
                    offset -= random.i64(0..3_000_000);
                }
                let at = i64::try_from(base).unwrap()
                    + offset
                    + i64::try_from(step.at.as_micros()).unwrap();
                redis.command(&["SET", &name(&context, "now"), &at.to_string()]);
                if matches!(step.call, script::Call::Sweep) {
                    limiter.tick().await;
                } else {
                    let answer = script::play(&*limiter, &step.call).await;
                    let text = format!("{answer:?}");
                    assert!(
                        !text.contains("Unanswered"),
                        "SEED={seed} step {number} {:?}: {text}",
                        step.call
                    );
                    let is_good = ["Allowed", "Renewed(Ok(Renewed", "Completed(Ok"];
                    for (count, good) in seen.iter_mut().zip(is_good) {
                        *count += u32::from(text.contains(good));
                    }
                }
                if random.u8(..4) == 0 {
                    limiter.tick().await;
                }
                let found = redis.command(&["EVAL", AUDIT, "1", &name(&context, "")]);
                assert!(
                    found.trim().is_empty(),
                    "SEED={seed} step {number} {:?}: {found}",
                    step.call
                );
            }
        });
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

/// REN-01, RES-02: the clock of Redis goes back, and a lease gives back some of a part that was collected. The rest counts no more.
pub fn a_part_that_was_collected_is_not_stored_again(servers: &Fixture) {
    run(async {
        let redis = servers.shared();
        let context = TestContext::new(redis, Time::Simulated);
        let limiter = context.limiter();
        let set_clock = clock_of(&context, redis);
        limiter.define(rolling("tokens", 60, 100)).await.unwrap();
        let one = request(&[("tokens", 20)]);
        assert!(is_allowed(&limiter, &one).await);
        let renew = async |number, amount| {
            let number = RenewNumber::new(number).unwrap();
            let amounts = NewAmounts::of([(key("tokens"), amount)]).unwrap();
            let request = RenewRequest::new(one.lease, number, amounts);
            assert!(limiter.renew(&request).await.unwrap().is_renewed(), "to {amount}");
        };
        set_clock(30);
        renew(1, 30).await;
        set_clock(61);
        assert_eq!(used(&limiter, "tokens").await, 10, "the first part has expired");
        set_clock(40);
        renew(2, 25).await;
        assert!(is_allowed(&limiter, &request(&[("tokens", 90)])).await);
        // The lease, and all of its parts, have expired; the 90 have not.
        set_clock(91);
        assert!(!is_allowed(&limiter, &request(&[("tokens", 11)])).await, "over-admission");
        let found = redis.command(&["EVAL", AUDIT, "1", &name(&context, "")]);
        assert_eq!(found.trim(), "");
    });
}

/// REN-01, RES-02: as above, of a lease with so many parts that they become one.
pub fn parts_that_were_collected_are_not_joined(servers: &Fixture) {
    run(async {
        let redis = servers.shared();
        let context = TestContext::new(redis, Time::Simulated);
        let limiter = context.limiter();
        let set_clock = clock_of(&context, redis);
        limiter.define(rolling("tokens", 60, 200)).await.unwrap();
        let one = request(&[("tokens", 10)]);
        assert!(is_allowed(&limiter, &one).await);
        for number in 1..=8 {
            // Five parts in the first seconds, the others later.
            set_clock(if number < 5 { number } else { 25 + number });
            if number == 8 {
                set_clock(65);
                assert_eq!(used(&limiter, "tokens").await, 30, "five have expired");
                set_clock(50);
            }
            let amounts = NewAmounts::of([(key("tokens"), 10 + number * 10)]).unwrap();
            let number = RenewNumber::new(number).unwrap();
            let renewal = limiter.renew(&RenewRequest::new(one.lease, number, amounts)).await;
            assert!(renewal.unwrap().is_renewed());
        }
        assert_eq!(used(&limiter, "tokens").await, 40);
        let found = redis.command(&["EVAL", AUDIT, "1", &name(&context, "")]);
        assert_eq!(found.trim(), "");
    });
}

/// Sets the clock of Redis, in seconds from now.
fn clock_of(context: &TestContext, redis: &TestRedis) -> impl Fn(u64) {
    let start = context.clock.as_ref().unwrap().now().unix_nanos() / 1_000;
    let name = name(context, "now");
    move |seconds| {
        redis.command(&["SET", &name, &(start + seconds * 1_000_000).to_string()]);
    }
}

fn profile() -> Profile {
    let part = |name: &str, kind, seconds| KeyProfile { key: key(name), kind, seconds };
    Profile {
        templates: vec![
            part("t:*:short", KeyKind::Rolling, 1..=5),
            part("t:**:short", KeyKind::Rolling, 1..=5),
            part("t:*:slots", KeyKind::Concurrency, 1..=19),
        ],
        undefined: vec![
            part("t:a:short", KeyKind::Rolling, 1..=5),
            part("t:a:b:short", KeyKind::Rolling, 1..=5),
            part("t:a:slots", KeyKind::Concurrency, 1..=19),
        ],
        ..Profile::crowded(vec![
            part("short:a", KeyKind::Rolling, 1..=5),
            part("slots:a", KeyKind::Concurrency, 1..=9),
            part("budget:a", KeyKind::Calendar, 1..=9),
        ])
    }
}

/// RDS-06, RES-01: no script stops midway when memory is short.
pub fn nothing_is_half_done_without_memory(_: &Fixture) {
    let redis = &TestRedis::start(Persistence::None);
    run(async {
        let context = TestContext::new(redis, Time::Simulated);
        let limiter = context.limiter();
        let limits = vec![
            rolling("a", 10, 100),
            rolling("b", 60, 100),
            slots("c", 60, 100),
            rolling("t:*", 60, 100),
        ];
        limiter.define_all(limits).await.unwrap();
        let some: Vec<_> = (0..40)
            .map(|n| request(&[("a", 1), ("b", 1), ("c", 1), (["t:x", "t:y"][n % 2], 1)]))
            .collect();
        for one in &some {
            assert!(is_allowed(&limiter, one).await);
        }
        let audit = || redis.command(&["EVAL", AUDIT, "1", &name(&context, "")]);
        let mut counts = [0; 3];
        for (n, one) in some.iter().enumerate() {
            redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
            if n == 20 {
                context.clock.as_ref().unwrap().advance(Duration::from_secs(11));
                redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
                context.tell_time();
                redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
            }
            let reserved =
                limiter.reserve(&request(&[("a", 1), ("b", 1), ("c", 1), ("t:z", 1)])).await;
            let amounts = NewAmounts::of([(key("b"), 3), (key("t:x"), 0)]).unwrap();
            let renewed =
                limiter.renew(&RenewRequest::new(one.lease, RenewNumber::FIRST, amounts)).await;
            let completed = limiter.complete(&complete(one, &[("a", 500), ("b", 2)])).await;
            limiter.tick().await;
            redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
            let outcomes = [reserved.is_ok(), renewed.is_ok(), completed.is_ok()];
            counts.iter_mut().zip(outcomes).for_each(|(count, is_ok)| *count += u32::from(is_ok));
            let found = audit();
            assert!(found.trim().is_empty(), "{n}: {found}");
        }
        // Both outcomes were seen, and the audit would have noticed.
        assert!(counts.iter().any(|count| *count < 40) && counts[2] > 0, "{counts:?}");
        redis.command(&["DEL", &name(&context, "live:b")]);
        assert!(!audit().trim().is_empty());
    });
}
