//! Where Redis is, and how it is reached (`RDS-08`).

use std::fs;
use std::path::PathBuf;

use ratelimiter::Backend;
use ratelimiter_redis::{RedisConfig, RedisLimiter, RedisOptions, RedisSettings, TlsSettings};
use testkit::eventually;
use testkit::redis::{Certificates, Fixture, Persistence, SERVICE, TestRedis, TestSentinel};

use crate::calls::*;
use crate::rules::every_operation;

fn encrypted(url: &str, ca: Option<PathBuf>) -> RedisLimiter {
    encrypted_as(
        url,
        TlsSettings { ca: ca.map(|path| fs::read(path).unwrap()), ..TlsSettings::default() },
    )
}

fn encrypted_as(url: &str, tls: TlsSettings) -> RedisLimiter {
    let settings = RedisSettings { tls, request_timeout_ms: SOON_MS, ..RedisSettings::new(url) };
    RedisLimiter::new(RedisConfig::new(&settings).unwrap(), RedisOptions::default())
}

/// Why a limiter is not ready.
async fn reason(limiter: &RedisLimiter) -> (&'static str, String) {
    let problem = limiter.ready().await.expect_err("it is not ready");
    (problem.kind, problem.reason)
}

/// RDS-08
pub fn rds_08_a_connection_is_encrypted(_: &Fixture) {
    let certificates = Certificates::new();
    let redis = TestRedis::start_tls(Persistence::None, &[], &certificates);
    run(async {
        let limiter = encrypted(&redis.tls_url(), Some(certificates.ca()));
        every_operation(&limiter).await;
        let plain = limiter_on(&redis.url());
        assert_eq!(plain.registry().await.unwrap(), limiter.registry().await.unwrap());
    });
}

/// RDS-08
pub fn rds_08_a_server_may_ask_for_a_certificate(_: &Fixture) {
    let certificates = Certificates::new();
    let arguments = ["--tls-auth-clients", "yes"];
    let redis = TestRedis::start_tls(Persistence::None, &arguments, &certificates);
    run(async {
        let (kind, text) = reason(&encrypted(&redis.tls_url(), Some(certificates.ca()))).await;
        assert!(kind == "tls" && text.contains("redis.tls.cert"), "{kind}: {text}");
        let read = |path| Some(fs::read(path).unwrap());
        let tls = TlsSettings {
            ca: read(certificates.ca()),
            cert: read(certificates.client()),
            key: read(certificates.client_key()),
        };
        encrypted_as(&redis.tls_url(), tls.clone()).ready().await.unwrap();
        let wrong = TlsSettings { key: read(certificates.server_key()), ..tls };
        let settings = RedisSettings { tls: wrong, ..RedisSettings::new(redis.tls_url()) };
        let error = RedisConfig::new(&settings).unwrap_err().to_string();
        assert!(error.starts_with("redis.tls.key does not match"), "{error}");
    });
}

/// RDS-06, RDS-08
pub fn rds_08_why_a_connection_is_not_encrypted_is_told(_: &Fixture) {
    let certificates = Certificates::new();
    let redis = TestRedis::start_tls(Persistence::None, &[], &certificates);
    let other_ca = Certificates::new();
    run(async {
        let by_name = redis.tls_url().replace("127.0.0.1", "localhost");
        let ca = || Some(certificates.ca());
        let not_tls = redis.url().replace("redis://", "rediss://");
        let not_plain = redis.tls_url().replace("rediss://", "redis://");
        for (limiter, expected, part) in [
            (encrypted(&redis.tls_url(), None), "tls", "an authority that is not trusted"),
            (encrypted(&redis.tls_url(), Some(other_ca.ca())), "tls", "redis.tls.ca names its CA"),
            (encrypted(&by_name, ca()), "tls", "for another name"),
            (encrypted(&not_tls, ca()), "timeout", "does not speak TLS there"),
            (
                limiter_on(&not_plain),
                "away",
                "if it expects TLS there, redis.url begins with rediss://",
            ),
        ] {
            let (kind, text) = reason(&limiter).await;
            assert!(kind == expected && text.contains(part), "{part}: {kind}: {text}");
        }
    });
}

/// RDS-05, RDS-08
pub fn rds_08_a_failover_by_sentinels_is_followed(_: &Fixture) {
    run(async {
        let mut primary = TestRedis::start(Persistence::None);
        let replica = primary.start_replica(Persistence::None).await;
        let [gone, hanging, last] = TestSentinel::start_three(&primary, &replica).await;
        let sentinels = [gone, hanging, last];
        let limiter = limiter_on(&TestSentinel::url(&sentinels));
        limiter.define(rolling("tokens", 600, 100)).await.unwrap();
        let first = request(&[("tokens", 4)]);
        assert!(is_allowed(&limiter, &first).await);
        replica.catch_up(&primary).await;

        primary.kill();
        eventually("the limiter goes on", async || limiter.ready().await.is_ok()).await;
        assert_eq!(replica.replication("role"), "master");
        assert!(is_allowed(&limiter, &first).await, "a repeated lease counts once");
        assert!(is_allowed(&limiter, &request(&[("tokens", 1)])).await);
        assert_eq!(used(&limiter, "tokens").await, 5);

        // One sentinel is enough, whatever the others do.
        let [gone, hanging, _last] = sentinels;
        drop(gone);
        hanging.pause();
        replica.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        eventually("the limiter goes on", async || limiter.ready().await.is_ok()).await;
        assert_eq!(used(&limiter, "tokens").await, 5);
    });
}

/// Sentinels that watch servers, each since a failover with an epoch.
fn watching(servers: [(&TestRedis, u64); 3]) -> [TestSentinel; 3] {
    servers.map(|(server, epoch)| {
        let line = format!("sentinel config-epoch {SERVICE} {epoch}");
        TestSentinel::start_with(server.addr(), 2, &line, None)
    })
}

/// It waits for a majority as long as a busy machine may take.
fn patient_limiter_on(url: &str) -> RedisLimiter {
    limiter_with_timeout(url, 60_000)
}

/// RDS-08: a sentinel that is behind names the old primary, which does not know that there is another one.
pub fn rds_08_sentinels_that_are_behind_lead_nobody_astray(_: &Fixture) {
    run(async {
        let [old, present] = [(); 2].map(|()| TestRedis::start(Persistence::None));
        let sentinels = watching([(&old, 1), (&present, 2), (&present, 2)]);
        let url = TestSentinel::url(&sentinels);
        for _ in 0..20 {
            patient_limiter_on(&url).define(rolling("tokens", 600, 100)).await.unwrap();
            assert_eq!(old.command(&["DBSIZE"]), "0");
        }
        // With one of the others.
        sentinels[1].pause();
        patient_limiter_on(&url).define(rolling("more", 600, 100)).await.unwrap();
        assert_eq!(old.command(&["DBSIZE"]), "0");
    });
}

/// RDS-08: the sentinel with the highest epoch names a server that says itself that it is no primary.
pub fn rds_08_a_replica_that_a_sentinel_names_is_passed_over(_: &Fixture) {
    run(async {
        let [primary, other] = [(); 2].map(|()| TestRedis::start(Persistence::None));
        // Of another server: sentinels that watch servers of one service learn from each other.
        let replica = other.start_replica(Persistence::None).await;
        let sentinels = watching([(&replica, 9), (&primary, 2), (&primary, 2)]);
        let url = TestSentinel::url(&sentinels);
        for _ in 0..20 {
            patient_limiter_on(&url).ready().await.unwrap();
        }
    });
}

/// RDS-08: the first connection to another server ends those to the one before, which may still answer.
pub fn rds_08_all_connections_are_to_one_primary(_: &Fixture) {
    run(async {
        let [old, present] = [(); 2].map(|()| TestRedis::start(Persistence::None));
        let sentinel = TestSentinel::start(old.addr(), 1);
        let url = TestSentinel::url(std::slice::from_ref(&sentinel));
        let settings = RedisSettings {
            connections: 2,
            request_timeout_ms: SOON_MS,
            ..RedisSettings::new(url)
        };
        let config = RedisConfig::new(&settings).unwrap();
        let limiter = RedisLimiter::new(config, RedisOptions::default());
        let ids = || -> Vec<String> {
            let clients = old.command(&["CLIENT", "LIST", "TYPE", "normal"]);
            let of_limiter = clients.lines().filter(|line| line.contains("cmd=eval"));
            let id = |line: &str| line.split([' ', '=']).nth(1).map(str::to_owned);
            of_limiter.filter_map(id).collect()
        };
        eventually("it has two connections", async || {
            limiter.ready().await.unwrap();
            ids().len() == 2
        })
        .await;
        let port = present.addr().port().to_string();
        assert_eq!(sentinel.command(&["SENTINEL", "REMOVE", SERVICE]), "OK");
        let monitor = ["SENTINEL", "MONITOR", SERVICE, "127.0.0.1", &port, "1"];
        assert_eq!(sentinel.command(&monitor), "OK");
        assert_eq!(old.command(&["CLIENT", "KILL", "ID", &ids()[0]]), "1");
        eventually("it has left", async || {
            drop(limiter.ready().await);
            ids().is_empty()
        })
        .await;
        limiter.ready().await.unwrap();
    });
}

/// RDS-08: one URL has the passwords of both, and TLS is for both.
pub fn rds_08_sentinels_may_have_a_password_and_tls(_: &Fixture) {
    let certificates = Certificates::new();
    let arguments = ["--requirepass", "s3cret"];
    let redis = TestRedis::start_tls(Persistence::None, &arguments, &certificates);
    let lines = format!("requirepass 0ther\nsentinel auth-pass {SERVICE} s3cret");
    let sentinel = TestSentinel::start_with(redis.tls_addr(), 1, &lines, Some(&certificates));
    let ca = || Some(certificates.ca());
    run(async {
        let url = format!("rediss+sentinel://:s3cret@{}/{SERVICE}/1", sentinel.addr());
        let (kind, text) = reason(&encrypted(&url, ca())).await;
        assert!(kind == "auth" && text.contains("sentinel_password"), "{kind}: {text}");
        let limiter = encrypted(&format!("{url}?sentinel_password=0ther"), ca());
        every_operation(&limiter).await;
    });
}

/// RDS-06, RDS-08
pub fn rds_08_why_sentinels_lead_nowhere_is_told(_: &Fixture) {
    let mut redis = TestRedis::start(Persistence::None);
    let sentinel = TestSentinel::start(redis.addr(), 1);
    run(async {
        let known = TestSentinel::url(std::slice::from_ref(&sentinel));
        limiter_on(&known).ready().await.unwrap();
        let nowhere = format!("redis+sentinel://127.0.0.1:1,127.0.0.1:2/{SERVICE}");
        let not_one = format!("redis+sentinel://{}/{SERVICE}", redis.addr());
        let plain = known.replace("redis+", "rediss+");
        for (limiter, expected, part) in [
            (limiter_on(&nowhere), "away", "no sentinel can be reached"),
            (limiter_on(&not_one), "sentinel", "is no sentinel"),
            (limiter_on(&known.replace(SERVICE, "other")), "sentinel", "does not know the service"),
            (limiter_with_timeout(&plain, 1_000), "timeout", "if it does not speak TLS there"),
        ] {
            let (kind, text) = reason(&limiter).await;
            assert!(kind == expected && text.contains(part), "{part}: {kind}: {text}");
            assert!(kind == "timeout" || !text.contains("TLS"), "{part}: {text}");
        }
        redis.kill();
        let (kind, text) = reason(&limiter_on(&known)).await;
        assert!(kind == "away" && !text.contains("no sentinel"), "{kind}: {text}");
    });
}
