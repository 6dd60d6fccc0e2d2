//! Definitions live in Redis: every server has them, and none stores them elsewhere.

use std::fs;

use ratelimiter::{Backend, DefineError, LimitStatus, Limiter, ReserveError};
use ratelimiter_client::{BearerToken, HttpLimiter, HttpOptions};
use testkit::redis::{Fixture, Persistence, TestRedis};
use testkit::run;
use tokio::task::JoinSet;

use crate::deployment::Deployment;
use crate::processes::{ServerProcess, new_lease};

/// REG-01, RDS-01: no server decides by an outdated definition, not even once.
pub fn reg_01_rds_01_a_definition_at_one_server_holds_at_the_other_at_once(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.shared());
        let servers = on.two_servers().await;
        let limiters = servers.each_ref().map(ServerProcess::limiter);
        let mut used = 0;
        for (turn, capacity) in [1, 2, 3, 4].into_iter().enumerate() {
            let (here, there) = (&limiters[turn % 2], &limiters[(turn + 1) % 2]);
            let status = here.define(on.rolling("rate", 3_600, capacity)).await;
            assert_eq!(status, Ok(LimitStatus::Active));
            let reserve = async || there.reserve(&on.reserve(new_lease(), &[("rate", 1)])).await;
            assert!(reserve().await.unwrap().is_allowed());
            assert!(!reserve().await.unwrap().is_allowed(), "{capacity} units are in use");
            used += 1;
            assert_eq!(on.state(there, "rate").await.unwrap().usage.used, used);
        }
        limiters[0].delete(&on.key("rate")).await.unwrap();
        let answer = limiters[1].reserve(&on.reserve(new_lease(), &[("rate", 1)])).await;
        assert_eq!(answer, Err(ReserveError::UnknownKey { key: on.key("rate") }));
    });
}

/// REG-01, RDS-01
pub fn reg_01_rds_01_concurrent_changes_at_two_servers_lose_nothing(fixture: &Fixture) {
    const COUNT: usize = 40;
    run(async {
        let on = Deployment::on(fixture.shared());
        let servers = on.two_servers().await;
        let mut changes = JoinSet::new();
        for number in 0..COUNT {
            let limiter = servers[number % 2].limiter();
            let limit = on.rolling(&format!("rate:{number}"), 60, 5);
            changes.spawn(async move { limiter.define(limit).await.unwrap() });
        }
        while let Some(changed) = changes.join_next().await {
            assert_eq!(changed.unwrap(), LimitStatus::Active);
        }
        for server in &servers {
            for number in 0..COUNT {
                let state = on.state(&server.limiter(), &format!("rate:{number}")).await;
                assert_eq!(state.unwrap().limit.capacity.get(), 5);
            }
        }
    });
}

/// REG-01, DEF-08
pub fn reg_01_definitions_outlive_their_servers_and_need_no_file(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.shared());
        let server = on.server().await;
        server.limiter().define(on.rolling("rate", 60, 5)).await.unwrap();
        server.kill();
        let server = on.server().await;
        let state = on.state(&server.limiter(), "rate").await.unwrap();
        assert_eq!(state.limit, on.rolling("rate", 60, 5));
        assert_eq!(fs::read_dir(on.folder()).unwrap().count(), 0, "nothing is stored elsewhere");
    });
}

/// REG-01: `registry.limits_max` holds here too.
pub fn reg_01_only_so_many_limits_are_defined(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.shared()).with("RATELIMITER_REGISTRY__LIMITS_MAX", "2");
        let server = on.server().await;
        let limiter = server.limiter();
        let list = ["a", "b", "c"].map(|name| on.rolling(name, 60, 1)).to_vec();
        let put = async |name: &str, capacity: u64| {
            let key = on.key(name);
            let body = format!(
                r#"{{"key":"{key}","kind":"rolling","capacity":{capacity},"window_seconds":60}}"#
            );
            server.ask("PUT", "/v1/admin/limits", body).await
        };
        limiter.define_all(list).await.unwrap_err();
        assert_eq!(on.state(&limiter, "a").await, None, "all or none");
        assert_eq!((put("a", 1).await.0, put("b", 1).await.0), (200, 200));
        let (status, body) = put("c", 1).await;
        assert!(status == 409 && body.contains(r#""error":"too_many_limits""#), "{body}");
        assert!(body.contains("registry.limits_max"), "{body}");
        assert_eq!(put("a", 7).await.0, 200, "a change is not a further limit");
        limiter.delete(&on.key("b")).await.unwrap();
        assert_eq!(put("c", 1).await.0, 200);
    });
}

/// REG-01, OPS-04
pub fn reg_01_ops_04_a_change_is_logged_with_its_caller_and_both_definitions(fixture: &Fixture) {
    run(async {
        let tokens = "[{name: ops-team, token: open-sesame, may: [admin]}]";
        let on = Deployment::on(fixture.shared())
            .with("RATELIMITER_AUTH__TOKENS", tokens)
            .with("RATELIMITER_LOG__FORMAT", "text");
        let server = on.server().await;
        let token = Some(BearerToken::new("open-sesame").unwrap());
        let options = HttpOptions { token, ..HttpOptions::default() };
        let limiter = HttpLimiter::with_options(&server.server.url(), options).unwrap();
        let key = on.key("rate");
        limiter.define(on.rolling("rate", 60, 5)).await.unwrap();
        limiter.define(on.rolling("rate", 60, 5)).await.unwrap();
        limiter.define(on.rolling("rate", 60, 8)).await.unwrap();
        limiter.delete(&key).await.unwrap();
        server.server.process.signal("TERM");
        let (_, log) = server.server.process.wait();
        let changes: Vec<_> = log.lines().filter(|line| line.contains("limit de")).collect();
        assert_eq!(changes.len(), 3, "a definition that changes nothing has no line:\n{log}");
        for (line, (old, new)) in changes.iter().zip([
            ("old=none", r#""capacity":5"#),
            (r#""capacity":5"#, r#""capacity":8"#),
            (r#""capacity":8"#, "new=none"),
        ]) {
            for part in ["ops-team", key.as_str(), old, new] {
                assert!(line.contains(part), "{part} in {line}");
            }
            assert!(line.find(old) < line.rfind(new), "{line}");
        }
    });
}

/// REG-01, OPS-04: the server does not know that it was not made.
pub fn reg_01_ops_04_a_change_that_redis_does_not_confirm_is_logged_too(_: &Fixture) {
    run(async {
        let redis = TestRedis::start(Persistence::None);
        let on = Deployment::on(&redis);
        let server = on.server().await;
        let limiter = server.limiter();
        limiter.define(on.rolling("rate", 60, 5)).await.unwrap();
        // From here on Redis answers, but writes nothing.
        redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let answer = limiter.define(on.rolling("rate", 60, 50)).await;
        let Err(DefineError::Unanswered(unanswered)) = &answer else { panic!("{answer:?}") };
        assert!(unanswered.reason.contains("is not known yet"), "{unanswered}");
        redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_eq!(on.state(&limiter, "rate").await.unwrap().limit.capacity.get(), 5);
        server.server.process.signal("TERM");
        let (_, log) = server.server.process.wait();
        let mut lines = log.lines().filter(|line| line.contains("limit perhaps changed"));
        let (Some(line), None) = (lines.next(), lines.next()) else { panic!("{log}") };
        for part in [r#""capacity":5,"#, r#""capacity":50,"#, "maxmemory is reached"] {
            assert!(line.contains(part), "{part} in {line}");
        }
    });
}

/// RDS-04
pub fn rds_04_installations_with_different_prefixes_do_not_meet(fixture: &Fixture) {
    run(async {
        let ones = [(); 2].map(|()| Deployment::on(fixture.shared()));
        let servers = [ones[0].server().await, ones[1].server().await];
        let [first, second] = servers.each_ref().map(ServerProcess::limiter);
        let on = &ones[0];
        first.define(on.rolling("rate", 60, 5)).await.unwrap();
        assert_eq!(on.state(&second, "rate").await, None);
        second.define(on.rolling("rate", 60, 1)).await.unwrap();
        let request = on.reserve(new_lease(), &[("rate", 1)]);
        assert!(first.reserve(&request).await.unwrap().is_allowed());
        assert_eq!(on.state(&second, "rate").await.unwrap().usage.used, 0);
        assert_eq!(on.state(&first, "rate").await.unwrap().limit.capacity.get(), 5);
    });
}

/// REG-01, CMD-02
pub fn reg_01_check_reads_the_limits_in_redis(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.shared());
        let server = on.server().await;
        server.limiter().define(on.rolling("rate", 60, 5)).await.unwrap();
        let (is_success, text) = check(&on);
        let place = format!("redis://{}/0", fixture.shared().addr());
        assert!(is_success && text == format!("config: ok\n{place}: ok, 1 limits\n"), "{text}");
        let nowhere = Deployment::at("redis://app:s3cret@127.0.0.1:1".to_owned());
        let (is_success, text) = check(&nowhere.with_brief_timeouts());
        assert!(!is_success && text.contains("it cannot be reached"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    });
}

pub fn check(on: &Deployment) -> (bool, String) {
    let mut command = on.program_as("check");
    let output = command.current_dir(on.folder()).output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}
