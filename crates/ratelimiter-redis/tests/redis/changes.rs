//! Changes that limiters announce to each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratelimiter::Backend;
use ratelimiter_redis::RedisLimiter;
use testkit::eventually;
use testkit::redis::{Fixture, Persistence, TestRedis};
use tokio::task::JoinHandle;

use crate::calls::*;
use crate::context::{TestContext, Time};

/// A limiter that makes no request, but follows changes.
pub struct Follower {
    limiter: Arc<RedisLimiter>,
    calls: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Follower {
    pub async fn start(limiter: Arc<RedisLimiter>) -> Self {
        let calls = Arc::new(AtomicU64::new(0));
        let (following, counted) = (Arc::clone(&limiter), Arc::clone(&calls));
        let task = tokio::spawn(async move {
            let count = || {
                counted.fetch_add(1, Ordering::SeqCst);
            };
            following.follow_changes(count).await;
        });
        let follower = Self { limiter, calls, task };
        follower.is_subscribed().await;
        // It has read what was there before.
        eventually("it follows", async || follower.calls.load(Ordering::SeqCst) > 0).await;
        follower
    }

    async fn is_subscribed(&self) {
        eventually("it is subscribed", async || self.limiter.observations().is_subscribed).await;
    }

    /// Waits until a key is governed by a definition or not. Nothing is asked of Redis.
    async fn knows(&self, name: &str, is_known: bool) {
        eventually("it knows the change", async || {
            self.limiter.metrics_key(&key(name)).is_some() == is_known
        })
        .await;
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// RDS-01
pub fn rds_01_a_change_is_known_elsewhere_without_a_request(servers: &Fixture) {
    run(async {
        let context = TestContext::new(servers.shared(), Time::Real);
        let (one, other) = (context.limiter(), Follower::start(context.limiter()).await);
        let calls = other.calls.load(Ordering::SeqCst);
        one.define(rolling("tokens", 60, 10)).await.unwrap();
        other.knows("tokens", true).await;
        eventually("it is told", async || other.calls.load(Ordering::SeqCst) > calls).await;
        one.delete(&key("tokens")).await.unwrap();
        other.knows("tokens", false).await;
        eventually("both are counted", async || other.limiter.observations().changes == 2).await;
    });
}

/// RDS-01, RDS-05: what was announced meanwhile is lost, so the definitions are read again.
pub fn rds_01_changes_are_followed_again_after_the_connection_is_lost(_: &Fixture) {
    let mut redis = TestRedis::start(Persistence::AofAlways);
    run(async {
        let one = limiter_on(&redis.url());
        let other = Follower::start(Arc::new(limiter_on(&redis.url()))).await;
        for name in ["a", "b"] {
            // In any order with the change.
            assert_eq!(redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]), "1");
            one.define(rolling(name, 60, 10)).await.unwrap();
            other.knows(name, true).await;
            let is_back = || redis.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).lines().count();
            eventually("it is subscribed", async || is_back() == 1).await;
        }
        redis.kill();
        eventually("it notices", async || !other.limiter.observations().is_subscribed).await;
        redis.restart();
        eventually("redis answers", async || one.ready().await.is_ok()).await;
        one.define(rolling("c", 60, 10)).await.unwrap();
        other.knows("c", true).await;
        other.is_subscribed().await;
    });
}

/// RDS-01: who may not subscribe decides by the present definitions all the same.
pub fn rds_01_requests_need_no_subscription(_: &Fixture) {
    let redis = TestRedis::start(Persistence::None);
    redis.command(&["ACL", "SETUSER", "mute", "on", ">s", "~*", "&*", "+@all", "-subscribe"]);
    run(async {
        let mute = redis.url().replace("redis://", "redis://mute:s@");
        let (one, other) = (limiter_on(&redis.url()), Arc::new(limiter_on(&mute)));
        let following = Arc::clone(&other);
        let task = tokio::spawn(async move { following.follow_changes(|| {}).await });
        for capacity in 1..=20 {
            one.define(rolling("tokens", 600, capacity)).await.unwrap();
            assert!(is_allowed(&other, &request(&[("tokens", 1)])).await);
            assert!(!is_allowed(&other, &request(&[("tokens", 1)])).await);
        }
        assert!(!task.is_finished() && !other.observations().is_subscribed);
        assert_eq!(other.problem(), None);
        task.abort();
    });
}
