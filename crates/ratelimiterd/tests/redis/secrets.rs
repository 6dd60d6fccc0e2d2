//! The password of `redis.url`.

use ratelimiter::Backend;
use testkit::redis::{Fixture, Persistence, TestRedis};
use testkit::run;

use crate::deployment::Deployment;

/// RDS-08
pub fn rds_08_a_password_is_in_no_log_at_any_level(_: &Fixture) {
    run(async {
        let mut redis = TestRedis::start_with(Persistence::None, &["--requirepass", "s3cret"]);
        let on = Deployment::at(format!("redis://default:s3cret@{}/2", redis.addr()))
            .with_brief_timeouts()
            .with("RATELIMITER_LOG__LEVEL", "trace");
        let server = on.server().await;
        server.limiter().define(on.rolling("rate", 60, 5)).await.unwrap();
        redis.kill();
        let answer = server.limiter().define(on.rolling("rate", 60, 6)).await;
        let (_, ready) = server.get("/readyz").await;
        let (_, metrics) = server.get("/metrics").await;
        server.server.process.signal("TERM");
        let (_, log) = server.server.process.wait();
        assert!(log.contains(&format!("registry=redis://{}/2", redis.addr())), "{log}");
        assert!(log.contains("redis does not answer"), "{log}");
        for text in [log, ready, metrics, format!("{answer:?}")] {
            assert!(!text.contains("s3cret"), "{text}");
        }
    });
}
