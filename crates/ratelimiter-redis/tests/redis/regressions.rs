//! What once went wrong, or was tried in vain to go wrong.

use std::time::Duration;

use futures::future::join_all;
use ratelimiter::admission::{Turn, TurnBackend};
use ratelimiter::{
    Actuals, Backend, CompleteRequest, JobId, KeyPattern, Limiter, NewAmounts, Page, RenewError,
    RenewNumber, RenewRequest, Renewal, ReserveError, ReserveRequest,
};
use ratelimiter_redis::RedisLimiter;
use testkit::redis::{Fixture, Persistence, TestRedis};
use testkit::{Proxy, eventually};

use crate::calls::*;
use crate::context::{TestContext, Time};

/// RES-04: the lease of a limit that was deleted and defined again is told that it is allowed.
pub fn a_lease_of_a_replaced_limit_has_ended(servers: &Fixture) {
    run(async {
        let limiter = TestContext::new(servers.shared(), Time::Simulated).limiter();
        limiter.define(rolling("tokens", 60, 5)).await.unwrap();
        let old = request(&[("tokens", 5)]);
        assert!(is_allowed(&limiter, &old).await);
        limiter.delete(&key("tokens")).await.unwrap();
        limiter.define(rolling("tokens", 60, 5)).await.unwrap();
        let new = request(&[("tokens", 5)]);
        assert!(is_allowed(&limiter, &new).await);
        assert_eq!(limiter.reserve(&old).await, Err(ReserveError::LeaseEnded));
    });
}

/// TPL-04: as above with templates that are deleted and defined again.
pub fn an_old_lease_of_an_instance_does_not_free_what_another_holds(servers: &Fixture) {
    run(async {
        let limiter = TestContext::new(servers.shared(), Time::Simulated).limiter();
        limiter.define(rolling("t:*", 60, 5)).await.unwrap();
        let old = request(&[("t:a", 5)]);
        assert!(is_allowed(&limiter, &old).await);
        limiter.delete(&key("t:*")).await.unwrap();
        limiter.define(rolling("t:*", 60, 5)).await.unwrap();
        let new = request(&[("t:a", 5)]);
        assert!(is_allowed(&limiter, &new).await);
        limiter.complete(&complete(&old, &[("t:a", 0)])).await.unwrap();
        assert!(!is_allowed(&limiter, &request(&[("t:a", 5)])).await, "over-admission");
    });
}

/// TPL-06: as above, and in between the instance was not in use, and swept.
pub fn a_lease_from_before_a_sweep_does_not_free_what_another_holds(servers: &Fixture) {
    run(async {
        let context = TestContext::new(servers.shared(), Time::Simulated);
        let limiter = context.limiter();
        limiter.define(rolling("t:*", 60, 5)).await.unwrap();
        let old = request(&[("t:a", 5)]);
        assert!(is_allowed(&limiter, &old).await);
        limiter.delete(&key("t:*")).await.unwrap();
        limiter.define(rolling("t:*", 60, 5)).await.unwrap();
        let brief = request(&[("t:a", 5)]);
        assert!(is_allowed(&limiter, &brief).await);
        limiter.complete(&complete(&brief, &[("t:a", 0)])).await.unwrap();
        context.tick().await;
        let new = request(&[("t:a", 5)]);
        assert!(is_allowed(&limiter, &new).await);
        limiter.complete(&complete(&old, &[("t:a", 0)])).await.unwrap();
        assert!(!is_allowed(&limiter, &request(&[("t:a", 5)])).await, "over-admission");
    });
}

/// TPL-06, RDS-03: the TTL of the list of instances grows with new instances only, not with those in use.
pub fn the_list_of_instances_outlives_its_instances(servers: &Fixture) {
    run(async {
        let redis = servers.shared();
        let context = TestContext::new(redis, Time::Simulated);
        let limiter = context.limiter();
        limiter.define(rolling("t:*", 86_400, 500)).await.unwrap();
        assert!(is_allowed(&limiter, &request(&[("t:a", 1)])).await);
        let list = name(&context, "instances:t:*");
        // As much is left of it when the tenant was in use on each of 63 days and 23 hours.
        redis.command(&["PEXPIRE", &list, "3600000"]);
        for _ in 0..100 {
            context.pass(Duration::from_secs(43_200)).await;
            assert!(is_allowed(&limiter, &request(&[("t:a", 1)])).await);
        }
        let left: u64 = redis.command(&["PTTL", &list]).trim().parse().unwrap();
        assert!(left > 86_400_000, "the instance counts for a day, its list lasts {left} ms");
    });
}

/// TPL-07: as above; what the lost list counted is never taken back.
pub fn a_lost_list_of_instances_takes_no_room_for_ever(servers: &Fixture) {
    run(async {
        let redis = servers.shared();
        let context = TestContext::new(redis, Time::Simulated);
        let limiter = context.limiter_with(|options| options.instances_max = 2);
        limiter.define_all(vec![rolling("a:*", 10, 5), rolling("b:*", 10, 5)]).await.unwrap();
        assert!(is_allowed(&limiter, &request(&[("a:1", 1)])).await);
        assert!(is_allowed(&limiter, &request(&[("a:2", 1)])).await);
        // 64 days after the last new instance of this template; others have kept `instance_counts`.
        redis.command(&["DEL", &name(&context, "instances:a:*")]);
        for _ in 0..20 {
            context.pass(Duration::from_secs(3600)).await;
        }
        let answer = limiter.reserve(&request(&[("b:1", 1)])).await.unwrap();
        assert!(answer.is_allowed(), "nothing is in use: {answer:?}");
    });
}

/// OPS-03: a script that fails midway keeps what it wrote. Users of Redis 7 have no channels by default.
pub fn a_user_without_channels_defines_all_or_nothing(_: &Fixture) {
    let redis = TestRedis::start(Persistence::None);
    redis.command(&["ACL", "SETUSER", "limiter", "on", ">secret", "~{ratelimiter}:*", "+@all"]);
    run(async {
        let url = redis.url().replace("redis://", "redis://limiter:secret@");
        let limiter = limiter_on(&url);
        let defined = limiter.define(rolling("tokens", 60, 10)).await;
        let state = limiter.state(&key("tokens")).await.unwrap();
        assert_eq!(defined.is_ok(), state.is_some(), "{defined:?}, and then {state:?}");
    });
}

/// RDS-03: what a refused change has collected is not counted any more.
pub fn a_refused_change_loses_count_of_nothing(_: &Fixture) {
    let redis = TestRedis::start(Persistence::None);
    redis.command(&["ACL", "SETUSER", "limiter", "on", ">secret", "~*", "+@all"]);
    run(async {
        let context = TestContext::new(&redis, Time::Simulated);
        let limiter = context.limiter();
        limiter.define(rolling("tokens", 10, 5)).await.unwrap();
        assert!(is_allowed(&limiter, &request(&[("tokens", 3)])).await);
        context.pass(Duration::from_secs(5)).await;
        assert!(is_allowed(&limiter, &request(&[("tokens", 2)])).await);
        context.pass(Duration::from_secs(6)).await;
        let url = redis.url().replace("redis://", "redis://limiter:secret@");
        let without_channels = context.limiter_at(&url);
        assert!(without_channels.define(rolling("tokens", 10, 9)).await.is_err());
        assert_eq!(used(&limiter, "tokens").await, 2);
    });
}

/// RDS-06: `/readyz` tells the reason.
pub fn a_redis_that_takes_no_writes_is_not_ready(_: &Fixture) {
    let redis = TestRedis::start(Persistence::None);
    run(async {
        let limiter = limiter_on(&redis.url());
        limiter.define(rolling("tokens", 600, 100)).await.unwrap();
        redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
        limiter.reserve(&request(&[("tokens", 1)])).await.unwrap_err();
        assert_eq!(limiter.problem().map(|problem| problem.kind), Some("memory"));
        let ready = limiter.ready().await;
        assert!(ready.is_err(), "no reserve is answered");
    });
}

/// RDS-06: one successful read between two refused writes: the problem is gone, and logged twice more.
pub fn a_read_does_not_end_a_problem_of_writes(_: &Fixture) {
    let redis = TestRedis::start(Persistence::None);
    run(async {
        let limiter = limiter_on(&redis.url());
        limiter.define(rolling("tokens", 600, 100)).await.unwrap();
        redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
        limiter.reserve(&request(&[("tokens", 1)])).await.unwrap_err();
        limiter.complete(&complete(&request(&[("tokens", 1)]), &[])).await.unwrap();
        assert!(limiter.problem().is_some(), "no reserve is answered");
    });
}

/// RES-05, WAIT-01: a lease that was denied stays denied, so nobody waits with it.
pub fn nobody_waits_with_a_denied_lease(servers: &Fixture) {
    run(async {
        let limiter = TestContext::new(servers.shared(), Time::Simulated).limiter();
        limiter.define(rolling("tokens", 60, 5)).await.unwrap();
        assert!(is_allowed(&limiter, &request(&[("tokens", 5)])).await);
        let denied = request(&[("tokens", 1)]);
        assert!(!is_allowed(&limiter, &denied).await);
        let turn = Turn { attempt: Some(0), ..Turn::default() };
        let answer = limiter.reserve_in_turn(&denied, turn).await.unwrap();
        assert_eq!(answer.ask_again_after, None, "asking again changes nothing");
    });
}

/// Redis admits an attempt, and the answer is lost.
async fn lose_the_answer(redis: &TestRedis, limiter: &RedisLimiter, one: &ReserveRequest) {
    redis.pause();
    let turn = Turn { attempt: Some(0), may_return: true, behind: None };
    let answer = limiter.reserve_in_turn(one, turn).await;
    assert!(matches!(answer, Err(ReserveError::Unanswered(_))), "{answer:?}");
    redis.resume();
    let observer = limiter_on(&redis.url());
    eventually("it was admitted", async || used(&observer, "tokens").await == 5).await;
}

/// WAIT-04: an attempt whose answer was lost was admitted; the next one of the same waiter finds it, and may return it.
pub fn wait_04_an_attempt_without_an_answer_can_be_returned(_: &Fixture) {
    let redis = TestRedis::start(Persistence::None);
    run(async {
        let limiter = limiter_with_timeout(&redis.url(), 3_000);
        limiter_on(&redis.url()).define(rolling("tokens", 600, 5)).await.unwrap();
        let turn = |attempt| Turn { attempt: Some(attempt), may_return: true, behind: None };
        // It is connected, and its script loaded.
        let warm = request(&[("tokens", 1)]);
        assert!(is_allowed(&limiter, &warm).await);
        limiter.complete(&complete(&warm, &[("tokens", 0)])).await.unwrap();
        let one = request(&[("tokens", 5)]);
        lose_the_answer(&redis, &limiter, &one).await;
        let found = limiter.reserve_in_turn(&one, turn(1)).await.unwrap();
        assert!(found.decision.is_allowed() && found.is_new, "{found:?}");
        limiter.return_lease(&one).await.unwrap();
        assert_eq!(used(&limiter, "tokens").await, 0);

        // What a caller was told of is not returned.
        let two = request(&[("tokens", 5)]);
        assert!(limiter.reserve_in_turn(&two, turn(0)).await.unwrap().is_new);
        assert!(!limiter.reserve_in_turn(&two, turn(0)).await.unwrap().is_new);
        limiter.return_lease(&two).await.unwrap();
        assert_eq!(used(&limiter, "tokens").await, 5);
    });
}

/// WAIT-04: as above, when the caller has gone before the next attempt.
pub fn wait_04_giving_up_finds_an_attempt_without_an_answer(_: &Fixture) {
    let redis = TestRedis::start(Persistence::None);
    run(async {
        let limiter = limiter_with_timeout(&redis.url(), 3_000);
        limiter_on(&redis.url()).define(rolling("tokens", 600, 5)).await.unwrap();
        // It is connected, and its script loaded.
        let warm = request(&[("tokens", 1)]);
        assert!(is_allowed(&limiter, &warm).await);
        limiter.complete(&complete(&warm, &[("tokens", 0)])).await.unwrap();
        let one = request(&[("tokens", 5)]);
        lose_the_answer(&redis, &limiter, &one).await;
        let other = request(&[("tokens", 5)]);
        let denial = limiter.reserve(&other).await.unwrap().denial().unwrap().clone();
        let given_up = limiter.give_up(&one, denial).await.unwrap();
        assert!(given_up.decision.is_allowed() && given_up.is_new, "{given_up:?}");
    });
}

/// RDS-05: after a failover the address leads to another server, so a connection to a replica is dropped.
pub fn a_connection_to_a_replica_is_dropped(_: &Fixture) {
    let redis = TestRedis::start(Persistence::None);
    run(async {
        let limiter = limiter_on(&redis.url());
        limiter.define(rolling("tokens", 600, 1000)).await.unwrap();
        for _ in 0..4 {
            assert!(is_allowed(&limiter, &request(&[("tokens", 1)])).await);
        }
        let ids = || {
            let list = redis.command(&["CLIENT", "LIST", "TYPE", "normal"]);
            let lines = list.lines().filter(|line| line.contains("cmd=evalsha"));
            lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let before = ids();
        assert!(!before.is_empty());
        redis.command(&["CONFIG", "SET", "replica-serve-stale-data", "yes"]);
        // It has no primary that answers, so it keeps its data.
        redis.cut_replication();
        for _ in 0..6 {
            limiter.reserve(&request(&[("tokens", 1)])).await.unwrap_err();
        }
        assert_eq!(limiter.problem().unwrap().kind, "read_only");
        let kept: Vec<_> = ids().into_iter().filter(|id| before.contains(id)).collect();
        assert_eq!(kept, Vec::<String>::new(), "of {before:?}");
    });
}

/// RDS-03: bounded work in one script.
pub fn a_lower_bound_of_past_leases_is_reached_step_by_step(servers: &Fixture) {
    run(async {
        let redis = servers.shared();
        let context = TestContext::new(redis, Time::Simulated);
        let limiter = context.limiter_with(|options| options.remember_max = 10);
        limiter.define(rolling("tokens", 60, 5)).await.unwrap();
        let fill = "local now = redis.call('GET', KEYS[1] .. 'now') for n = 1, 100000 do \
                    redis.call('RPUSH', KEYS[1] .. 'past', string.format('%.0f:%d', now + 6e8, n)) end";
        redis.command(&["EVAL", fill, "1", &name(&context, "")]);
        let past =
            || -> u64 { redis.command(&["LLEN", &name(&context, "past")]).trim().parse().unwrap() };
        let one = request(&[("tokens", 1)]);
        assert!(is_allowed(&limiter, &one).await);
        redis.command(&["CONFIG", "RESETSTAT"]);
        limiter.complete(&complete(&one, &[])).await.unwrap();
        let spent = redis.command(&["INFO", "commandstats"]);
        let spent =
            spent.lines().find(|line| line.starts_with("cmdstat_eval")).unwrap_or("").to_owned();
        assert!(past() > 90_000, "one script forgot {} leases: {spent}", 100_001 - past());
    });
}

/// OPS-03: the cost of many definitions.
pub fn many_definitions_take_few_round_trips(servers: &Fixture) {
    run(async {
        let limiter = TestContext::new(servers.shared(), Time::Real).limiter();
        let limits: Vec<_> = (0..10_000).map(|n| rolling(&format!("limit:{n}"), 60, 1)).collect();
        limiter.define_all(limits).await.unwrap();
        let trips = limiter.observations().round_trips;
        assert!(trips < 1_000, "{trips} round trips");
    });
}

/// RDS-05: definitions that nobody understands are not read once for each request, one after the other.
pub fn a_document_that_is_not_understood_is_read_once(servers: &Fixture) {
    run(async {
        let redis = servers.shared();
        let context = TestContext::new(redis, Time::Real);
        let (limiter, other) = (context.limiter(), context.limiter());
        limiter.define(rolling("tokens", 60, 500)).await.unwrap();
        assert!(is_allowed(&limiter, &request(&[("tokens", 1)])).await);
        other.define(rolling("more", 60, 500)).await.unwrap();
        redis.command(&["SET", &name(&context, "registry"), "{"]);
        let requests: Vec<_> = (0..200).map(|_| request(&[("tokens", 1)])).collect();
        redis.command(&["CONFIG", "RESETSTAT"]);
        let before = limiter.observations().calls;
        join_all(requests.iter().map(|one| limiter.reserve(one))).await;
        let calls = limiter.observations().calls - before;
        assert!(calls <= 210, "200 requests made {calls} calls");
    });
}

/// TPL-06: a page begins where the one before ended.
pub fn a_page_of_instances_does_not_read_those_before(servers: &Fixture) {
    run(async {
        let limiter = TestContext::new(servers.shared(), Time::Real)
            .limiter_with(|options| options.new_instances_per_second_max = 1_000_000);
        limiter.define(slots("t:*", 600, 5)).await.unwrap();
        for some in (0..5_000).collect::<Vec<_>>().chunks(256) {
            let batch: Vec<_> =
                some.iter().map(|n| request(&[(&format!("t:{n:05}"), 1)])).collect();
            limiter.reserve_batch(&batch).await.into_iter().for_each(|one| drop(one.unwrap()));
        }
        let page = Page {
            template: KeyPattern::new(key("t:*")).ok(),
            after: Some(key("t:04990")),
            count_max: Some(5),
            ..Page::default()
        };
        let before = limiter.observations().round_trips;
        assert_eq!(limiter.states(&page).await.unwrap().len(), 5);
        let trips = limiter.observations().round_trips - before;
        assert!(trips <= 5, "{trips} round trips for 5 limits");
    });
}

/// RDS-08, TPL-05: a URL may choose the third version of the protocol.
pub fn instances_go_with_resp3_too(_: &Fixture) {
    let redis = TestRedis::start(Persistence::None);
    run(async {
        let limiter = limiter_on(&format!("{}/?protocol=resp3", redis.url()));
        limiter.define(slots("t:*", 600, 5)).await.unwrap();
        let one = request(&[("t:a", 1)]);
        assert!(is_allowed(&limiter, &one).await);
        limiter.complete(&complete(&one, &[])).await.unwrap();
        for _ in 0..5 {
            limiter.tick().await;
        }
        assert_eq!(redis.command(&["EXISTS", "{ratelimiter}:limit:t:a"]).trim(), "0");
    });
}

/// TPL-04: a server that stops between a change of templates and what follows from it leaves the rest to nobody.
pub fn debts_go_with_their_template_after_a_failure_midway(_: &Fixture) {
    let redis = TestRedis::start(Persistence::None);
    redis.command(&["ACL", "SETUSER", "limiter", "on", ">secret", "~*", "&*", "+@all"]);
    run(async {
        let url = redis.url().replace("redis://", "redis://limiter:secret@");
        let limiter = limiter_on(&url);
        limiter.define(rolling("t:*", 1, 5)).await.unwrap();
        let one = request(&[("t:a", 5)]);
        assert!(is_allowed(&limiter, &one).await);
        limiter.complete(&complete(&one, &[("t:a", 100)])).await.unwrap();
        assert_eq!(redis.command(&["HLEN", "{ratelimiter}:debts"]).trim(), "1");
        // The server cannot go on after the definitions have changed.
        redis.command(&["ACL", "SETUSER", "limiter", "-hgetall"]);
        limiter.delete(&key("t:*")).await.unwrap_err();
        redis.command(&["ACL", "SETUSER", "limiter", "+hgetall"]);
        let _repeated = limiter.delete(&key("t:*")).await;
        for _ in 0..10 {
            limiter.tick().await;
        }
        assert_eq!(redis.command(&["HLEN", "{ratelimiter}:debts"]).trim(), "0", "nobody owes it");
    });
}

/// RDS-05: a batch is pipelined, also after the definitions have changed.
pub fn a_batch_stays_a_batch_when_definitions_change(servers: &Fixture) {
    run(async {
        let context = TestContext::new(servers.shared(), Time::Real);
        let (limiter, other) = (context.limiter(), context.limiter());
        limiter.define(rolling("tokens", 60, 500)).await.unwrap();
        assert!(is_allowed(&limiter, &request(&[("tokens", 1)])).await);
        other.define(rolling("more", 60, 500)).await.unwrap();
        let before = limiter.observations().round_trips;
        let batch: Vec<_> = (0..256).map(|_| request(&[("tokens", 1)])).collect();
        limiter.reserve_batch(&batch).await.into_iter().for_each(|one| drop(one.unwrap()));
        let trips = limiter.observations().round_trips - before;
        assert!(trips < 20, "{trips} round trips");
    });
}

/// RDS-03
pub fn past_leases_have_a_ttl_when_none_is_remembered(servers: &Fixture) {
    run(async {
        let redis = servers.shared();
        let context = TestContext::new(redis, Time::Real);
        let limiter = context.limiter_with(|options| options.remember_for = Duration::ZERO);
        limiter.define(rolling("tokens", 60, 500)).await.unwrap();
        for _ in 0..10 {
            let one = request(&[("tokens", 1)]);
            assert!(is_allowed(&limiter, &one).await);
            limiter.complete(&complete(&one, &[])).await.unwrap();
        }
        assert_ne!(redis.command(&["PTTL", &name(&context, "past")]).trim(), "-1");
    });
}

/// OPS-03: two definitions of one key in one call.
pub fn one_key_twice_in_one_call_is_as_in_memory(servers: &Fixture) {
    run(async {
        let limiter = TestContext::new(servers.shared(), Time::Simulated).limiter();
        let memory = ratelimiter::MemoryLimiter::default();
        let both = || vec![rolling("a", 60, 5), slots("a", 60, 5)];
        let expected = memory.define_all(both()).await;
        assert_eq!(limiter.define_all(both()).await, expected);
    });
}

/// RES-07, DEF-01: the largest of everything.
pub fn the_largest_request_is_answered(servers: &Fixture) {
    run(async {
        let limiter = TestContext::new(servers.shared(), Time::Simulated).limiter();
        let odd = |n: usize| format!("{{}}%d%%\"'\\é{n:02}{}", "ü".repeat(100));
        let names: Vec<_> = (0..32)
            .map(|n| {
                let text = odd(n);
                let rest = 256 - text.len();
                format!("{text}{}", "x".repeat(rest))
            })
            .collect();
        let limits = names.iter().enumerate().map(|(n, name)| match n % 2 {
            0 => rolling(name, 2_678_400, ratelimiter_redis::CAPACITY_MAX),
            _ => slots(name, 86_400, ratelimiter_redis::CAPACITY_MAX),
        });
        limiter.define_all(limits.collect()).await.unwrap();
        let amounts: Vec<_> =
            names.iter().map(|name| (name.as_str(), ratelimiter_redis::CAPACITY_MAX - 9)).collect();
        let mut one = request(&amounts);
        one.job = Some(JobId::new("j".repeat(256)).unwrap());
        assert!(is_allowed(&limiter, &one).await);
        assert!(is_allowed(&limiter, &one).await, "again");
        let too_much: Vec<_> = names.iter().map(|name| (name.as_str(), u64::MAX)).collect();
        let refused = limiter.reserve(&request(&too_much)).await;
        assert!(matches!(refused, Err(ReserveError::AmountExceedsCapacity { .. })), "{refused:?}");
        let grown = |number, by: u64| {
            let amounts =
                names.iter().map(|name| (key(name), ratelimiter_redis::CAPACITY_MAX - 9 + by));
            RenewRequest::new(
                one.lease,
                RenewNumber::new(number).unwrap(),
                NewAmounts::of(amounts).unwrap(),
            )
        };
        for n in 1..=9 {
            assert!(limiter.renew(&grown(u64::MAX - 10 + n, n)).await.unwrap().is_renewed(), "{n}");
        }
        let listed = limiter.leases(&Default::default()).await.unwrap();
        assert_eq!(listed[0].amounts.len(), 32);
        let actuals = names.iter().step_by(2).map(|name| (key(name), u64::MAX));
        let actuals = Actuals::of(actuals).unwrap();
        limiter.complete(&CompleteRequest::new(one.lease, actuals)).await.unwrap();
        let state = limiter.state(&key(&names[0])).await.unwrap().unwrap();
        assert_eq!(state.usage.debt, u128::from(u64::MAX - ratelimiter_redis::CAPACITY_MAX));
    });
}

/// REN-02: the only hold that is left has lapsed, and another one was of a limit that is of another kind now.
pub fn a_lease_ends_with_its_last_hold_when_another_becomes_a_reservation(servers: &Fixture) {
    run(async {
        let context = TestContext::new(servers.shared(), Time::Simulated);
        let limiter = context.limiter();
        limiter.define_all(vec![slots("short", 1, 5), slots("changes", 3, 5)]).await.unwrap();
        let one = request(&[("short", 1), ("changes", 1)]);
        assert!(is_allowed(&limiter, &one).await);
        context.pass(Duration::from_secs(1)).await;
        limiter.delete(&key("changes")).await.unwrap();
        limiter.define(rolling("changes", 60, 5)).await.unwrap();
        let renew = async |number| {
            let amounts = NewAmounts::of([(key("changes"), 2)]).unwrap();
            let number = RenewNumber::new(number).unwrap();
            limiter.renew(&RenewRequest::new(one.lease, number, amounts)).await
        };
        let Ok(Renewal::Renewed { renewed_at, lapses_at, .. }) = renew(1).await else {
            panic!("it has a hold until the renew");
        };
        assert!(lapses_at <= renewed_at, "until {lapses_at:?}");
        assert_eq!(renew(2).await, Err(RenewError::LeaseEnded));
    });
}

/// RDS-05, RDS-06: Redis hangs after it has said that the definitions have changed. They are read once for all that wait for them, with one reason.
pub fn rds_05_rds_06_who_waits_for_the_definitions_is_told_why(_: &Fixture) {
    let redis = TestRedis::start(Persistence::None);
    // With one thread, requests that begin together are one pipeline, and have one answer.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (addr, proxy) = Proxy::tcp(redis.addr());
        let limiter = limiter_on(&format!("redis://{addr}"));
        limiter.define(rolling("tokens", 60, 10)).await.unwrap();
        let other = limiter_on(&redis.url());
        let requests: Vec<_> = (0..8).map(|_| request(&[("tokens", 1)])).collect();
        for is_batch in [true, false] {
            assert!(is_allowed(&limiter, &request(&[("tokens", 1)])).await);
            other.define(rolling("more", 60, if is_batch { 10 } else { 11 })).await.unwrap();
            let before = limiter.observations().round_trips;
            proxy.stall_at_answer(2);
            let answers = match is_batch {
                true => limiter.reserve_batch(&requests).await,
                false => join_all(requests.iter().map(|one| limiter.reserve(one))).await,
            };
            for answer in answers {
                let Err(ReserveError::Unanswered(why)) = answer else { panic!("{answer:?}") };
                assert!(why.reason.contains("no answer in time"), "{why:?}");
            }
            if is_batch {
                assert_eq!(limiter.observations().round_trips, before + 2);
            }
            proxy.stall(false);
        }
    });
}

/// FLUSHALL while limiters run: an answer, no endless loop, and definitions can be made again.
pub fn lost_data_is_noticed(_: &Fixture) {
    let redis = TestRedis::start(Persistence::None);
    run(async {
        let limiter = limiter_on(&redis.url());
        limiter.define_all(vec![rolling("tokens", 60, 10), rolling("t:*", 60, 10)]).await.unwrap();
        let one = request(&[("tokens", 1), ("t:a", 1)]);
        assert!(is_allowed(&limiter, &one).await);
        redis.command(&["FLUSHALL"]);
        limiter.tick().await;
        limiter.complete(&complete(&one, &[("tokens", 5)])).await.unwrap();
        let answer = limiter.reserve(&request(&[("tokens", 1)])).await;
        assert_eq!(answer, Err(ReserveError::UnknownKey { key: key("tokens") }));
        limiter.define(rolling("tokens", 60, 10)).await.unwrap();
        assert!(is_allowed(&limiter, &request(&[("tokens", 1)])).await);
        eventually("ready", async || limiter.ready().await.is_ok()).await;
    });
}

/// RES-02: a policy other than `noeviction` takes single keys. A lost count is never below what is there for ever after.
pub fn an_evicted_limit_does_not_count_below_zero(servers: &Fixture) {
    run(async {
        let redis = servers.shared();
        let context = TestContext::new(redis, Time::Simulated);
        let limiter = context.limiter();
        limiter.define(rolling("tokens", 60, 10)).await.unwrap();
        let one = request(&[("tokens", 5)]);
        assert!(is_allowed(&limiter, &one).await);
        redis.command(&["DEL", &name(&context, "limit:tokens")]);
        limiter.complete(&complete(&one, &[("tokens", 0)])).await.unwrap();
        context.pass(Duration::from_secs(3600)).await;
        assert!(is_allowed(&limiter, &request(&[("tokens", 10)])).await);
        assert!(!is_allowed(&limiter, &request(&[("tokens", 5)])).await, "15 of 10, an hour later");
    });
}

/// RES-02: as above, the other way round: what was lost counts for ever.
pub fn an_evicted_set_does_not_count_for_ever(servers: &Fixture) {
    run(async {
        let redis = servers.shared();
        let context = TestContext::new(redis, Time::Simulated);
        let limiter = context.limiter();
        limiter.define(rolling("tokens", 60, 10)).await.unwrap();
        assert!(is_allowed(&limiter, &request(&[("tokens", 5)])).await);
        redis.command(&["DEL", &name(&context, "live:tokens")]);
        context.pass(Duration::from_secs(3600)).await;
        assert!(is_allowed(&limiter, &request(&[("tokens", 10)])).await, "nothing is live");
    });
}
