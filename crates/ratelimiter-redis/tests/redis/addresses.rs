//! Where Redis is, and how it is reached (`RDS-08`).

use std::fs;
use std::path::PathBuf;

use ratelimiter_redis::{RedisConfig, RedisLimiter, RedisOptions, RedisSettings, TlsSettings};
use testkit::redis::{Certificates, Fixture, Persistence, TestRedis};

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
