//! The rules of this backend alone (`RDS-01` to `RDS-08`).

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use ratelimiter::{
    Actuals, Backend, CompleteRequest, Decision, DefineError, KeyPattern, LeasePage, Limiter,
    NewAmounts, Page, RenewNumber, RenewRequest, ReserveError,
};
use ratelimiter_redis::{CAPACITY_MAX, RedisLimiter};
use testkit::eventually;
use testkit::redis::{Fixture, Persistence, TestRedis};

use crate::calls::*;
use crate::context::{TestContext, Time};
use crate::document;

/// How many round trips and script calls a limiter has made.
fn counts(limiter: &RedisLimiter) -> (u64, u64) {
    let seen = limiter.observations();
    (seen.round_trips, seen.calls)
}

/// RDS-01, RDS-05
pub fn rds_01_every_request_is_one_call_of_a_script(servers: &Fixture) {
    run(async {
        let limiter = TestContext::new(servers.shared(), Time::Real).limiter();
        limiter.define_all(vec![rolling("tokens", 60, 100), slots("slots", 60, 10)]).await.unwrap();
        // The scripts are loaded.
        let warm = request(&[("tokens", 1), ("slots", 1)]);
        let renew = |lease, number, amounts| {
            RenewRequest::new(lease, RenewNumber::new(number).unwrap(), amounts)
        };
        assert!(is_allowed(&limiter, &warm).await);
        assert!(
            limiter.renew(&renew(warm.lease, 1, NewAmounts::none())).await.unwrap().is_renewed()
        );
        limiter.complete(&complete(&warm, &[])).await.unwrap();

        let (trips, calls) = counts(&limiter);
        let first = request(&[("tokens", 5), ("slots", 1)]);
        assert!(is_allowed(&limiter, &first).await);
        assert_eq!(counts(&limiter), (trips + 1, calls + 1), "reserve");
        // The hold is not named, and its timeout begins again all the same.
        let amounts = NewAmounts::of([(key("tokens"), 7)]).unwrap();
        assert!(limiter.renew(&renew(first.lease, 1, amounts)).await.unwrap().is_renewed());
        assert_eq!(counts(&limiter), (trips + 2, calls + 2), "renew");
        limiter.complete(&complete(&first, &[])).await.unwrap();
        assert_eq!(counts(&limiter), (trips + 3, calls + 3), "complete");

        let batch: Vec<_> = (0..20).map(|_| request(&[("tokens", 1)])).collect();
        let answers = limiter.reserve_batch(&batch).await;
        assert!(answers.iter().all(|answer| answer.as_ref().unwrap().is_allowed()));
        assert_eq!(counts(&limiter), (trips + 4, calls + 23), "a batch is pipelined");
        let [.., up_to_32, up_to_64, up_to_128] = limiter.observations().pipeline_sizes;
        assert_eq!((up_to_32, up_to_64, up_to_128), (1, 0, 0));
    });
}

/// RDS-01, REG-01
pub fn rds_01_limiters_share_one_truth(servers: &Fixture) {
    run(async {
        let context = TestContext::new(servers.shared(), Time::Real);
        let (one, other) = (context.limiter(), context.limiter());
        one.define(rolling("tokens", 60, 10)).await.unwrap();
        assert!(is_allowed(&other, &request(&[("tokens", 6)])).await, "known at once");
        assert!(!is_allowed(&one, &request(&[("tokens", 5)])).await, "counted together");
        other.define(rolling("tokens", 60, 11)).await.unwrap();
        assert!(is_allowed(&one, &request(&[("tokens", 5)])).await, "no old definition decides");
        one.delete(&key("tokens")).await.unwrap();
        let answer = other.reserve(&request(&[("tokens", 1)])).await;
        assert_eq!(answer, Err(ReserveError::UnknownKey { key: key("tokens") }));
    });
}

/// REG-01
pub fn reg_01_definitions_made_at_once_are_all_kept(servers: &Fixture) {
    run(async {
        let context = TestContext::new(servers.shared(), Time::Real);
        let limiters: Vec<_> = (0..4).map(|_| context.limiter()).collect();
        let define = async |n: usize| {
            limiters[n % 4].define(rolling(&format!("limit:{n}"), 60, 1)).await.unwrap();
        };
        join_all((0..40).map(define)).await;
        for limiter in &limiters {
            assert_eq!(limiter.states(&Page::default()).await.unwrap().len(), 40);
        }
    });
}

/// RDS-02
pub fn rds_02_the_time_is_that_of_redis(servers: &Fixture) {
    run(async {
        let redis = servers.shared();
        let limiter = TestContext::new(redis, Time::Real).limiter();
        limiter.define(rolling("tokens", 60, 10)).await.unwrap();
        let time = || {
            let answer = redis.command(&["TIME"]);
            let mut lines = answer.lines().map(|line| line.parse::<u64>().unwrap());
            lines.next().unwrap() * 1_000_000 + lines.next().unwrap()
        };
        let before = time();
        let Decision::Allowed { reserved_at, .. } =
            limiter.reserve(&request(&[("tokens", 1)])).await.unwrap()
        else {
            panic!("there is room");
        };
        let reserved_at = reserved_at.unix_nanos() / 1_000;
        assert!((before..=time()).contains(&reserved_at));
    });
}

/// RDS-03
pub fn rds_03_nothing_is_denied_while_expired_reservations_are_left(servers: &Fixture) {
    const COUNT: u64 = 2_000;
    run(async {
        let context = TestContext::new(servers.shared(), Time::Simulated);
        let limiter = context.limiter();
        limiter.define(rolling("tokens", 1, COUNT)).await.unwrap();
        let requests: Vec<_> = (0..COUNT).map(|_| request(&[("tokens", 1)])).collect();
        for answer in limiter.reserve_batch(&requests).await {
            assert!(answer.unwrap().is_allowed());
        }
        assert!(!is_allowed(&limiter, &request(&[("tokens", 1)])).await);
        context.pass(Duration::from_secs(1)).await;
        let (_, calls) = counts(&limiter);
        assert!(is_allowed(&limiter, &request(&[("tokens", COUNT)])).await);
        let (_, calls_after) = counts(&limiter);
        assert!(calls_after - calls > 1, "one call collects a bounded number");
        let state = limiter.state(&key("tokens")).await.unwrap().unwrap();
        assert_eq!(state.usage.used, COUNT);
    });
}

/// RDS-03
pub fn rds_03_everything_but_definitions_and_debts_has_a_ttl(servers: &Fixture) {
    run(async {
        let redis = servers.shared();
        let context = TestContext::new(redis, Time::Real);
        let limiter = context.limiter();
        let limits = vec![rolling("tokens", 60, 100), slots("slots", 60, 2), rolling("t:*", 1, 5)];
        limiter.define_all(limits).await.unwrap();
        let open = request(&[("tokens", 5), ("slots", 1), ("t:a", 1)]);
        let ended = request(&[("tokens", 5), ("t:b", 1)]);
        assert!(is_allowed(&limiter, &open).await && is_allowed(&limiter, &ended).await);
        assert!(!is_allowed(&limiter, &request(&[("slots", 2)])).await);
        let renewed = RenewRequest::new(open.lease, RenewNumber::FIRST, NewAmounts::none());
        assert!(limiter.renew(&renewed).await.unwrap().is_renewed());
        let actuals = Actuals::of([(key("tokens"), 500)]).unwrap();
        limiter.complete(&CompleteRequest::new(ended.lease, actuals)).await.unwrap();
        limiter.complete(&complete(&open, &[])).await.unwrap();
        limiter.tick().await;
        // What was emptied is made anew.
        assert!(is_allowed(&limiter, &request(&[("slots", 1), ("t:a", 1)])).await);

        let names = context.names(redis);
        let kept = names.iter().filter(|name| redis.command(&["PTTL", name]) == "-1");
        let kept: Vec<_> = kept.map(|name| name.rsplit(':').next().unwrap()).collect();
        assert_eq!(kept, ["debts", "meta", "registry"], "of {names:?}");
    });
}

/// RDS-03: of a limit that nobody uses any more, the reservations go soon after the last one has expired.
pub fn rds_03_what_has_expired_is_not_kept_for_another_window(servers: &Fixture) {
    const DAY_MS: u64 = 86_400_000;
    run(async {
        let redis = servers.shared();
        let context = TestContext::new(redis, Time::Simulated);
        let limiter = context.limiter();
        limiter.define(rolling("tokens", DAY_MS / 1_000, 10)).await.unwrap();
        let names = ["live:tokens", "limit:tokens"].map(|rest| name(&context, rest));
        for _ in 0..3 {
            assert!(is_allowed(&limiter, &request(&[("tokens", 1)])).await);
            for name in &names {
                let left: u64 = redis.command(&["PTTL", name]).parse().unwrap();
                assert!(left > DAY_MS, "it outlives the reservation: {left} ms");
                assert!(left <= DAY_MS * 5 / 4 + 61_000, "{left} ms");
            }
            context.pass(Duration::from_secs(12 * 3_600)).await;
        }
    });
}

/// RDS-03, CAL-01: of a calendar limit, what was used is few entries, however many leases have used it.
pub fn rds_03_what_was_used_of_a_calendar_limit_is_few_entries(servers: &Fixture) {
    const LEASES: u64 = 500;
    run(async {
        let redis = servers.shared();
        let context = TestContext::new(redis, Time::Simulated);
        let limiter = context.limiter();
        limiter.define(hourly("budget", 1_000_000)).await.unwrap();
        // More than are looked at, and all of them before the others.
        let open: Vec<_> = (0..200).map(|_| request(&[("budget", 1)])).collect();
        for answer in limiter.reserve_batch(&open).await {
            assert!(answer.unwrap().is_allowed());
        }
        let mut expected = open.len() as u64;
        for number in 0..LEASES {
            let request = request(&[("budget", 7)]);
            assert!(is_allowed(&limiter, &request).await);
            // Half of them in the plain case.
            let amount = if number % 2 == 0 { 3 } else { 9 };
            limiter.complete(&complete(&request, &[("budget", amount)])).await.unwrap();
            expected += amount;
        }
        assert_eq!(used(&limiter, "budget").await, expected);
        let entries: usize = entries(&context, redis, "budget");
        assert!(entries <= open.len() + 16, "{entries} entries");
        context.pass(Duration::from_secs(3_600)).await;
        assert!(is_allowed(&limiter, &request(&[("budget", 1_000_000)])).await, "after the reset");
    });
}

/// RDS-03, RES-02: on a window of an hour or more, what many leases have used is few entries for each 1/4096 of it, and returns late at most by that.
pub fn rds_03_res_02_what_was_used_of_a_long_window_is_few_entries(servers: &Fixture) {
    const SECONDS: u64 = 4_096;
    const PER_SECOND: usize = 64;
    const LEASES: usize = 10 * PER_SECOND;
    const PAUSE: Duration = Duration::from_micros(1_000_000 / PER_SECOND as u64);
    run(async {
        let redis = servers.shared();
        let context = TestContext::new(redis, Time::Simulated);
        let limiter = context.limiter();
        limiter.define(rolling("tokens", SECONDS, 1_000_000)).await.unwrap();
        let first: Vec<_> = (0..1_024).map(|_| request(&[("tokens", 1)])).collect();
        for answer in limiter.reserve_batch(&first).await {
            assert!(answer.unwrap().is_allowed());
        }
        context.pass(Duration::from_secs(1_000)).await;
        let mut amounts = Vec::new();
        for number in 0..LEASES {
            let request = request(&[("tokens", 7)]);
            assert!(is_allowed(&limiter, &request).await);
            // Half of them in the plain case.
            let amount = if number % 2 == 0 { 3 } else { 9 };
            limiter.complete(&complete(&request, &[("tokens", amount)])).await.unwrap();
            amounts.push(amount);
            context.pass(PAUSE).await;
        }
        let sum = first.len() as u64 + amounts.iter().sum::<u64>();
        assert_eq!(used(&limiter, "tokens").await, sum);
        let entries = entries(&context, redis, "tokens");
        assert!(entries <= first.len() + LEASES / PER_SECOND * 17 + 17, "{entries} entries");
        // To the moment when the first of them expires; those before them have.
        context.pass(Duration::from_secs(SECONDS - (LEASES / PER_SECOND) as u64)).await;
        for number in 0..LEASES {
            let left: u64 = amounts[number + 1..].iter().sum();
            let late: u64 = amounts[..=number].iter().rev().take(PER_SECOND).sum();
            let used = used(&limiter, "tokens").await;
            assert!((left..=left + late).contains(&used), "{number}: {used} of {left} + {late}");
            context.pass(PAUSE).await;
        }
        context.pass(Duration::from_secs(1)).await;
        assert_eq!(used(&limiter, "tokens").await, 0);
    });
}

/// RDS-03: as above, whatever pattern the amounts have.
pub fn rds_03_leases_that_use_nothing_do_not_keep_others_apart(servers: &Fixture) {
    run(async {
        let redis = servers.shared();
        let context = TestContext::new(redis, Time::Simulated);
        let limiter = context.limiter();
        limiter.define(hourly("budget", 1_000_000)).await.unwrap();
        for number in 1..=320 {
            let request = request(&[("budget", 7)]);
            assert!(is_allowed(&limiter, &request).await);
            let amount = if number % 16 == 0 { 0 } else { 3 };
            limiter.complete(&complete(&request, &[("budget", amount)])).await.unwrap();
        }
        assert_eq!(used(&limiter, "budget").await, 300 * 3);
        let entries = entries(&context, redis, "budget");
        assert!(entries <= 16, "{entries} entries");
    });
}

/// RDS-03: as above, after many leases that stay open.
pub fn rds_03_open_leases_do_not_keep_others_apart(servers: &Fixture) {
    // 1/4096 of it is 10 s.
    const SECONDS: u64 = 40_960;
    run(async {
        let redis = servers.shared();
        let context = TestContext::new(redis, Time::Simulated);
        let limiter = context.limiter();
        limiter.define(rolling("tokens", SECONDS, 1_000_000)).await.unwrap();
        // Not the moment between two steps.
        context.pass(Duration::from_secs(1)).await;
        let open: Vec<_> = (0..1_024).map(|_| request(&[("tokens", 1)])).collect();
        for answer in limiter.reserve_batch(&open).await {
            assert!(answer.unwrap().is_allowed());
        }
        for _ in 0..320 {
            context.pass(Duration::from_millis(10)).await;
            let request = request(&[("tokens", 1)]);
            assert!(is_allowed(&limiter, &request).await);
            limiter.complete(&complete(&request, &[])).await.unwrap();
        }
        let entries = entries(&context, redis, "tokens");
        // In two steps, if another begins.
        assert!(entries <= open.len() + 2 * 17, "{entries} entries");
    });
}

/// RES-02: what was reserved in a shorter window returns when that has passed, though the step of the new one is longer.
pub fn res_02_what_was_used_of_an_earlier_window_returns_with_it(servers: &Fixture) {
    const HOUR: u64 = 3_600;
    run(async {
        let context = TestContext::new(servers.shared(), Time::Simulated);
        let limiter = context.limiter();
        limiter.define(rolling("tokens", HOUR, 1_000_000)).await.unwrap();
        let requests: Vec<_> = (0..1_100).map(|_| request(&[("tokens", 1)])).collect();
        for answer in limiter.reserve_batch(&requests).await {
            assert!(answer.unwrap().is_allowed());
        }
        // 1/4096 of it is 10 minutes.
        limiter.define(rolling("tokens", 31 * 24 * HOUR, 1_000_000)).await.unwrap();
        assert!(is_allowed(&limiter, &request(&[("tokens", 1)])).await);
        for request in &requests {
            limiter.complete(&complete(request, &[])).await.unwrap();
        }
        assert_eq!(used(&limiter, "tokens").await, 1_101);
        context.pass(Duration::from_secs(HOUR)).await;
        assert_eq!(used(&limiter, "tokens").await, 1);
    });
}

/// How many entries Redis has for what is live of a limit.
fn entries(context: &TestContext, redis: &TestRedis, key: &str) -> usize {
    redis.command(&["ZCARD", &name(context, &format!("live:{key}"))]).parse().unwrap()
}

/// RDS-03, TPL-05
pub fn rds_03_what_is_not_in_use_goes(servers: &Fixture) {
    run(async {
        let redis = servers.shared();
        let context = TestContext::new(redis, Time::Simulated);
        let limiter = context.limiter();
        limiter.define(slots("t:*", 10, 5)).await.unwrap();
        let requests: Vec<_> = (0..300).map(|n| request(&[(&format!("t:{n}"), 1)])).collect();
        for answer in limiter.reserve_batch(&requests).await {
            assert!(answer.unwrap().is_allowed());
        }
        assert_eq!(limiter.leases(&LeasePage::default()).await.unwrap().len(), 100);
        context.pass(Duration::from_secs(10)).await;
        for _ in 0..10 {
            limiter.tick().await;
        }
        assert_eq!(limiter.open_leases(), 0);
        assert_eq!(limiter.instances_by_template(), []);
        let is_used = |name: &&String| name.contains(":limit:") || name.contains(":live:");
        assert_eq!(context.names(redis).iter().filter(is_used).count(), 0);
    });
}

/// RDS-04
pub fn rds_04_two_installations_on_one_redis_do_not_meet(servers: &Fixture) {
    run(async {
        let redis = servers.shared();
        let contexts = [(); 2].map(|()| TestContext::new(redis, Time::Real));
        let [one, other] = contexts.each_ref().map(TestContext::limiter);
        one.define(rolling("tokens", 60, 10)).await.unwrap();
        let same = request(&[("tokens", 10)]);
        assert_eq!(
            other.reserve(&same).await,
            Err(ReserveError::UnknownKey { key: key("tokens") })
        );
        other.define(rolling("tokens", 60, 10)).await.unwrap();
        assert!(is_allowed(&one, &same).await && is_allowed(&other, &same).await);
        for context in &contexts {
            let tag = format!("{{{}}}:", context.prefix());
            assert!(context.names(redis).iter().all(|name| name.starts_with(&tag)));
        }
    });
}

/// RDS-05, RDS-06
pub fn rds_05_a_redis_that_was_away_is_found_again(_: &Fixture) {
    let mut redis = TestRedis::start(Persistence::AofAlways);
    run(async {
        let limiter = limiter_on(&redis.url());
        limiter.define(rolling("tokens", 600, 10)).await.unwrap();
        let first = request(&[("tokens", 4)]);
        assert!(is_allowed(&limiter, &first).await);
        redis.kill();
        let answer = limiter.reserve(&request(&[("tokens", 4)])).await;
        assert!(matches!(answer, Err(ReserveError::Unanswered(_))), "{answer:?}");
        assert_eq!(limiter.ready().await.unwrap_err().kind, "away");
        redis.restart();
        // The script cache is gone with the process.
        eventually("redis answers", async || limiter.ready().await.is_ok()).await;
        assert!(is_allowed(&limiter, &first).await, "a repeated lease counts once");
        let state = limiter.state(&key("tokens")).await.unwrap().unwrap();
        assert_eq!(state.usage.used, 4);
    });
}

/// RDS-06
pub fn rds_06_a_lost_script_cache_is_not_noticed(_: &Fixture) {
    let redis = TestRedis::start(Persistence::None);
    run(async {
        let limiter = limiter_on(&redis.url());
        limiter.define(rolling("tokens", 600, 100)).await.unwrap();
        for _ in 0..3 {
            redis.command(&["SCRIPT", "FLUSH"]);
            let one = request(&[("tokens", 1)]);
            assert!(is_allowed(&limiter, &one).await);
            redis.command(&["SCRIPT", "FLUSH"]);
            limiter.complete(&complete(&one, &[])).await.unwrap();
            redis.command(&["SCRIPT", "FLUSH"]);
            let batch: Vec<_> = (0..5).map(|_| request(&[("tokens", 1)])).collect();
            for answer in limiter.reserve_batch(&batch).await {
                assert!(answer.unwrap().is_allowed());
            }
        }
    });
}

/// RDS-06
pub fn rds_06_the_reason_is_told(_: &Fixture) {
    let primary = TestRedis::start(Persistence::None);
    let (host, port) = (primary.addr().ip().to_string(), primary.addr().port().to_string());
    let replica = TestRedis::start_with(Persistence::None, &["--replicaof", &host, &port]);
    run(async {
        let reason = async |limiter: &RedisLimiter| {
            let answer = limiter.reserve(&request(&[("tokens", 1)])).await;
            assert!(matches!(answer, Err(ReserveError::Unanswered(_))), "{answer:?}");
            let problem = limiter.problem().expect("there is a reason");
            (problem.kind, problem.reason)
        };
        let limiter = limiter_on(&primary.url());
        limiter.define(rolling("tokens", 600, 100)).await.unwrap();

        let on_replica = limiter_on(&replica.url());
        eventually("the replica has the definitions", async || {
            on_replica.state(&key("tokens")).await.is_ok_and(|state| state.is_some())
        })
        .await;
        assert_eq!(reason(&on_replica).await.0, "read_only");

        primary.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let (kind, text) = reason(&limiter).await;
        assert!(kind == "memory" && text.contains("maxmemory"), "{kind}: {text}");
        primary.command(&["CONFIG", "SET", "maxmemory", "0"]);
        assert!(is_allowed(&limiter, &request(&[("tokens", 1)])).await, "it goes on by itself");

        primary.command(&["ACL", "SETUSER", "reader", "on", ">secret", "~*", "+ping", "+get"]);
        let reader = primary.url().replace("redis://", "redis://reader:secret@");
        assert_eq!(reason(&limiter_on(&reader)).await.0, "permission");
        let wrong = primary.url().replace("redis://", "redis://reader:wrong@");
        let (kind, text) = reason(&limiter_on(&wrong)).await;
        assert!(kind == "auth" && !text.contains("wrong@"), "{kind}: {text}");
    });
}

/// RDS-06: a policy that evicts loses reservations.
pub fn rds_06_what_redis_says_of_itself_is_known(_: &Fixture) {
    let redis = TestRedis::start_with(Persistence::None, &["--maxmemory", "100mb"]);
    run(async {
        let limiter = limiter_on(&redis.url());
        limiter.define(rolling("tokens", 600, 100)).await.unwrap();
        let server = limiter.observations().server.unwrap();
        assert!(server.version.split('.').next().unwrap().parse::<u32>().unwrap() >= 7);
        assert_eq!(server.maxmemory_bytes, 100 * 1024 * 1024);
        assert!(server.used_memory_bytes > 0 && !server.may_evict(), "{server:?}");
        redis.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
        eventually("a tick notices", async || {
            limiter.tick().await;
            limiter.observations().server.unwrap().may_evict()
        })
        .await;
        // A user without the right to ask is served all the same.
        redis
            .command(&["ACL", "SETUSER", "app", "on", ">s", "~*", "&*", "+@all", "-info", "-llen"]);
        let app = limiter_on(&redis.url().replace("redis://", "redis://app:s@"));
        assert!(is_allowed(&app, &request(&[("tokens", 1)])).await);
        app.tick().await;
        assert_eq!((app.observations().server, app.problem()), (None, None));
    });
}

/// RDS-07
pub fn rds_07_a_kill_loses_nothing_that_was_answered(_: &Fixture) {
    for persistence in [Persistence::AofAlways, Persistence::AofEverySecond] {
        let mut redis = TestRedis::start(persistence);
        run(async {
            let limiter = limiter_on(&redis.url());
            limiter.define(rolling("tokens", 600, 1_000)).await.unwrap();
            let requests: Vec<_> = (0..200).map(|_| request(&[("tokens", 1)])).collect();
            for answer in limiter.reserve_batch(&requests).await {
                assert!(answer.unwrap().is_allowed());
            }
            // With `everysec` Redis may answer before it has written, while the disk is slow.
            let is_written =
                || redis.command(&["INFO", "persistence"]).contains("aof_buffer_length:0");
            eventually("redis has written", async || is_written()).await;
            redis.kill();
            redis.restart();
            eventually("redis answers", async || limiter.ready().await.is_ok()).await;
            let state = limiter.state(&key("tokens")).await.unwrap().unwrap();
            assert_eq!(state.usage.used, 200, "{persistence:?}");
            for answer in limiter.reserve_batch(&requests).await {
                assert!(answer.unwrap().is_allowed(), "all leases are known");
            }
        });
    }
}

/// RDS-08
pub fn rds_08_a_url_names_user_password_and_database(_: &Fixture) {
    let redis = TestRedis::start(Persistence::None);
    // As the documentation says.
    let page = include_str!("../../../../docs/operations/redis.md");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER ")).unwrap();
    let answer = redis.command(&line.split(' ').collect::<Vec<_>>());
    assert_eq!(answer, "OK");
    run(async {
        let url = redis.url().replace("redis://", "redis://ratelimiter:PASSWORD@");
        let limiter = limiter_on(&format!("{url}/3"));
        every_operation(&limiter).await;
        let follow = limiter.follow_changes(|| {});
        let subscribed =
            eventually("it may subscribe", async || limiter.observations().is_subscribed);
        tokio::select! { _ = follow => {}, () = subscribed => {} }
        let seen = limiter.observations();
        assert!(seen.server.is_some() && seen.past_leases > 0, "{seen:?}");
        document::every_operation(&document::document_at(&url, "ratelimiter")).await;
        let other = limiter_on(&url);
        assert_eq!(other.states(&Page::default()).await.unwrap(), [], "database 0 is empty");
    });
}

/// Every operation that is not about time.
pub async fn every_operation(limiter: &RedisLimiter) {
    limiter.define(slots("t:*", 60, 5)).await.unwrap();
    limiter.define_all(vec![rolling("tokens", 600, 10), rolling("old", 600, 1)]).await.unwrap();
    let one = request(&[("tokens", 1), ("t:a", 1)]);
    assert!(is_allowed(limiter, &one).await);
    assert!(!is_allowed(limiter, &request(&[("tokens", 10)])).await);
    let more = NewAmounts::of([(key("tokens"), 2)]).unwrap();
    let renew = RenewRequest::new(one.lease, RenewNumber::FIRST, more);
    assert!(limiter.renew(&renew).await.unwrap().is_renewed());
    assert_eq!(limiter.leases(&LeasePage::default()).await.unwrap().len(), 1);
    let template = KeyPattern::new(key("t:*")).ok();
    let instances = limiter.states(&Page { template, ..Page::default() }).await.unwrap();
    assert_eq!(instances.len(), 1);
    let actuals = Actuals::of([(key("tokens"), 50)]).unwrap();
    limiter.complete(&CompleteRequest::new(one.lease, actuals)).await.unwrap();
    assert_eq!(limiter.forgive(&key("tokens")).await.unwrap(), 48);
    let other = request(&[("t:a", 1)]);
    assert!(is_allowed(limiter, &other).await);
    limiter.release(other.lease).await.unwrap();
    limiter.delete(&key("old")).await.unwrap();
    limiter.define(slots("t:*", 60, 4)).await.unwrap();
    limiter.delete(&key("t:*")).await.unwrap();
    limiter.tick().await;
    assert_eq!(limiter.problem(), None);
}

/// RES-07
pub fn res_07_a_capacity_that_cannot_be_counted_is_refused(servers: &Fixture) {
    run(async {
        let limiter = TestContext::new(servers.shared(), Time::Real).limiter();
        limiter.define(rolling("most", 60, CAPACITY_MAX)).await.unwrap();
        let error = limiter.define(rolling("more", 60, CAPACITY_MAX + 1)).await.unwrap_err();
        let capacity_max = CAPACITY_MAX;
        assert_eq!(error, DefineError::CapacityOutOfRange { key: key("more"), capacity_max });
        assert_eq!(limiter.state(&key("more")).await.unwrap(), None);
    });
}

/// DEF-09, RES-03: neither of a reservation, nor of a hold.
pub fn def_09_a_lease_of_a_deleted_limit_takes_nothing_of_its_successor(servers: &Fixture) {
    run(async {
        let limiter = TestContext::new(servers.shared(), Time::Real).limiter();
        let limits = || [rolling("tokens", 60, 10), slots("slots", 60, 1)];
        let needs = [("tokens", 5), ("slots", 1)];
        limiter.define_all(limits().to_vec()).await.unwrap();
        let before = request(&needs);
        assert!(is_allowed(&limiter, &before).await);
        // The second time nothing of them is in use.
        for _ in 0..2 {
            for limit in limits() {
                limiter.delete(&limit.key).await.unwrap();
                limiter.define(limit).await.unwrap();
            }
        }
        assert!(is_allowed(&limiter, &request(&needs)).await);
        limiter.complete(&complete(&before, &[("tokens", 0)])).await.unwrap();
        assert_eq!(used(&limiter, "tokens").await, 5);
        assert_eq!(used(&limiter, "slots").await, 1);
        assert!(!is_allowed(&limiter, &request(&needs)).await, "over-admission");
    });
}

/// RDS-01, RES-01: many at once, at several limiters, never hold more than there is.
pub fn rds_01_no_schedule_of_requests_over_admits(servers: &Fixture) {
    run(async {
        let context = TestContext::new(servers.shared(), Time::Real);
        let limiters: Vec<Arc<RedisLimiter>> = (0..3).map(|_| context.limiter()).collect();
        limiters[0]
            .define_all(vec![slots("slots", 60, 7), rolling("tokens", 60, 500)])
            .await
            .unwrap();
        let held = std::sync::atomic::AtomicI64::new(0);
        let work = async |n: usize| {
            let (limiter, mut random) = (&limiters[n % 3], fastrand::Rng::with_seed(n as u64));
            for _ in 0..30 {
                let one = request(&[("slots", random.u64(1..=3)), ("tokens", 1)]);
                if !is_allowed(limiter, &one).await {
                    continue;
                }
                let units = i64::try_from(one.requirements[0].amount.get()).unwrap();
                let before = held.fetch_add(units, std::sync::atomic::Ordering::SeqCst);
                assert!(before + units <= 7, "{before} and {units} of 7");
                held.fetch_sub(units, std::sync::atomic::Ordering::SeqCst);
                let elsewhere = &limiters[random.usize(..3)];
                elsewhere.complete(&complete(&one, &[])).await.unwrap();
            }
        };
        join_all((0..24).map(work)).await;
        let state = limiters[0].state(&key("slots")).await.unwrap().unwrap();
        assert_eq!(state.usage.used, 0, "nothing leaks");
    });
}
