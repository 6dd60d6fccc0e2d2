//! A Redis that speaks TLS.

use ratelimiter::Backend;
use testkit::redis::{Certificates, Fixture, Persistence, TestRedis};
use testkit::run;

use crate::definitions::check;
use crate::deployment::Deployment;
use crate::outages::{is_back, not_ready, reserve_is_refused};

const CA: &str = "RATELIMITER_REDIS__TLS__CA";

/// RDS-08
pub fn rds_08_a_server_talks_to_redis_through_tls(_: &Fixture) {
    run(async {
        let certificates = Certificates::new();
        let arguments = ["--tls-auth-clients", "yes", "--requirepass", "s3cret"];
        let redis = TestRedis::start_tls(Persistence::None, &arguments, &certificates);
        let url = redis.tls_url().replace("rediss://", "rediss://:s3cret@");
        let path = |path: std::path::PathBuf| path.display().to_string();
        let on = Deployment::at(url)
            .with(CA, path(certificates.ca()))
            .with("RATELIMITER_REDIS__TLS__CERT", path(certificates.client()))
            .with("RATELIMITER_REDIS__TLS__KEY", path(certificates.client_key()));
        let server = on.server().await;
        server.limiter().define(on.rolling("rate", 60, 5)).await.unwrap();
        is_back(&on, &server).await;
        let (is_success, text) = check(&on);
        let place = format!("rediss://{}/0", redis.tls_addr());
        assert!(is_success && text == format!("config: ok\n{place}: ok, 1 limits\n"), "{text}");
    });
}

/// RDS-06, RDS-08
pub fn rds_08_why_a_connection_is_not_encrypted_is_told(_: &Fixture) {
    run(async {
        let certificates = Certificates::new();
        let redis = TestRedis::start_tls(Persistence::None, &[], &certificates);
        let ca = |of: &Certificates| of.ca().display().to_string();
        let plain = redis.tls_url().replace("rediss://", "redis://");
        let encrypted = redis.url().replace("redis://", "rediss://");
        for (on, reason) in [
            (Deployment::at(redis.tls_url()), "an authority that is not trusted"),
            (
                Deployment::at(redis.tls_url()).with(CA, ca(&Certificates::new())),
                "an authority that is not trusted",
            ),
            (
                Deployment::at(encrypted).with(CA, ca(&certificates)).with_brief_timeouts(),
                "does not speak TLS there",
            ),
            (Deployment::at(plain), "redis.url begins with rediss://"),
        ] {
            let server = on.listening();
            not_ready(&server, reason).await;
            reserve_is_refused(&on, &server, reason).await;
            server.server.process.signal("TERM");
            let (_, log) = server.server.process.wait();
            assert!(log.contains("redis does not answer"), "{log}");
        }
    });
}

/// CFG-02, RDS-08
pub fn rds_08_a_ca_that_cannot_be_used_is_refused_by_name(_: &Fixture) {
    let certificates = Certificates::new();
    let key = certificates.server_key().display().to_string();
    let ca = certificates.ca().display().to_string();
    for (url, ca, told) in [
        (
            "rediss://127.0.0.1:1",
            "/nowhere/ca.pem",
            "redis.tls.ca: /nowhere/ca.pem: cannot be read",
        ),
        ("rediss://127.0.0.1:1", key.as_str(), "contains no certificate in PEM format"),
        (
            "redis://127.0.0.1:1",
            ca.as_str(),
            "redis.tls.ca: needs a URL that begins with rediss://",
        ),
    ] {
        let (is_success, text) = check(&Deployment::at(url.to_owned()).with(CA, ca));
        assert!(!is_success && text.contains(CA) && text.contains(told), "{text}");
    }
}
