//! A cluster, of which one node has all keys (`RDS-04`).

use std::sync::Arc;

use ratelimiter::{Backend, Limiter};
use ratelimiter_redis::{RedisConfig, RedisLimiter, RedisOptions, RedisSettings};
use testkit::eventually;
use testkit::redis::{Fixture, TestCluster, TestRedis};

use crate::calls::*;
use crate::changes::Follower;
use crate::document;
use crate::rules::every_operation;

/// A key of every installation with the default prefix.
const KEY: &str = "{ratelimiter}:meta";

async fn reason(limiter: &RedisLimiter) -> (&'static str, String) {
    let problem = limiter.ready().await.expect_err("it is not ready");
    (problem.kind, problem.reason)
}

/// RDS-04, REG-01: the URL names any of its nodes.
pub fn rds_04_all_nodes_of_a_cluster_lead_to_the_keys(_: &Fixture) {
    run(async {
        let mut cluster = TestCluster::start(3).await;
        for (index, node) in cluster.nodes.iter().enumerate() {
            let url = TestCluster::url([node]);
            // Each installation has a slot of its own.
            let prefix = format!("installation-{index}");
            let settings = RedisSettings { prefix: prefix.clone(), ..RedisSettings::new(&url) };
            let config = RedisConfig::new(&settings).unwrap();
            every_operation(&RedisLimiter::new(config, RedisOptions::default())).await;
            document::every_operation(&document::document_at(&url, &prefix)).await;
        }
        // A node that is away, and has none of the keys, does not matter before the cluster gives it up.
        let other = cluster.nodes.iter().position(is_elsewhere).unwrap();
        cluster.nodes[other].kill();
        limiter_on(&TestCluster::url(&cluster.nodes)).ready().await.unwrap();
    });
}

fn is_elsewhere(node: &TestRedis) -> bool {
    node.command(&["EXISTS", KEY]).starts_with("-MOVED")
}

/// RDS-04, RDS-05: the node with the keys is killed, and its replica takes over.
pub fn rds_04_a_failover_in_a_cluster_is_followed(_: &Fixture) {
    run(async {
        let mut cluster = TestCluster::start(3).await;
        let owner = cluster.owner_of(KEY);
        let limiter = limiter_on(&TestCluster::url(&cluster.nodes));
        cluster.add_replica(owner).await;
        limiter.define(rolling("tokens", 600, 100)).await.unwrap();
        let first = request(&[("tokens", 4)]);
        assert!(is_allowed(&limiter, &first).await);
        let (nodes, replica) = cluster.nodes.split_at_mut(3);
        replica[0].catch_up(&nodes[owner]).await;

        nodes[owner].kill();
        let (kind, _) = reason(&limiter).await;
        assert_eq!(kind, "away");
        assert_eq!(replica[0].command(&["CLUSTER", "FAILOVER", "TAKEOVER"]), "OK");
        eventually("the limiter goes on", async || limiter.ready().await.is_ok()).await;
        assert!(is_allowed(&limiter, &first).await, "a repeated lease counts once");
        assert!(is_allowed(&limiter, &request(&[("tokens", 1)])).await);
        assert_eq!(used(&limiter, "tokens").await, 5);
    });
}

/// RDS-01, RDS-04: the node where changes were announced leaves the cluster, and goes on answering.
pub fn rds_01_rds_04_changes_are_followed_when_a_node_has_left(_: &Fixture) {
    run(async {
        let cluster = TestCluster::start(2).await;
        let url = TestCluster::url(&cluster.nodes);
        let (limiter, other) = (limiter_on(&url), Arc::new(limiter_on(&url)));
        limiter.define(rolling("tokens", 60, 1)).await.unwrap();
        let follower = Follower::start(Arc::clone(&other)).await;
        let moving = cluster.begin_move(KEY);
        while moving.move_keys(100) {}
        let (gone, left) = moving.finish();
        left.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
        assert_eq!(left.command(&["CLUSTER", "FORGET", &gone.node_id()]), "OK");
        assert_eq!(gone.command(&["CLUSTER", "RESET", "SOFT"]), "OK");
        eventually("it goes on", async || limiter.ready().await.is_ok()).await;
        // Looked up, now and then, since nobody announces it there.
        limiter.define(rolling("tokens", 60, 2)).await.unwrap();
        eventually("it has left, too", async || gone.command(&["PUBSUB", "CHANNELS"]).is_empty())
            .await;
        let is_there = async || !left.command(&["PUBSUB", "CHANNELS"]).is_empty();
        eventually("it listens at the other one", is_there).await;
        let before = other.observations().changes;
        limiter.define(rolling("tokens", 60, 3)).await.unwrap();
        eventually("it hears of the change", async || other.observations().changes > before).await;
        drop(follower);
    });
}

/// RDS-04, RES-01: nothing is admitted while some of the keys are here and others there.
pub fn rds_04_a_slot_that_moves_admits_nothing_in_between(_: &Fixture) {
    run(async {
        let cluster = TestCluster::start(2).await;
        let limiter = limiter_on(&TestCluster::url(&cluster.nodes));
        limiter.define_all(vec![slots("slots", 600, 3), rolling("tokens", 600, 3)]).await.unwrap();
        let both = || request(&[("slots", 1), ("tokens", 1)]);
        let held = [both(), both()];
        for one in &held {
            assert!(is_allowed(&limiter, one).await);
        }
        let moving = cluster.begin_move(KEY);
        loop {
            let (kind, text) = reason(&limiter).await;
            assert!(kind == "cluster" && text.contains("is being moved"), "{kind}: {text}");
            limiter.reserve(&both()).await.unwrap_err();
            limiter.complete(&complete(&held[0], &[])).await.unwrap_err();
            if !moving.move_keys(2) {
                break;
            }
        }
        let _nodes = moving.finish();
        eventually("it goes on", async || limiter.ready().await.is_ok()).await;
        assert_eq!(used(&limiter, "slots").await, 2);
        assert!(is_allowed(&limiter, &both()).await);
        assert!(!is_allowed(&limiter, &both()).await, "over-admission");
        limiter.complete(&complete(&held[0], &[])).await.unwrap();
        assert_eq!((used(&limiter, "slots").await, used(&limiter, "tokens").await), (2, 3));
    });
}

/// RDS-04, RDS-06
pub fn rds_04_why_a_cluster_leads_nowhere_is_told(servers: &Fixture) {
    run(async {
        let cluster = TestCluster::start(2).await;
        let elsewhere = cluster.nodes.iter().find(|node| is_elsewhere(node)).unwrap();
        let no_cluster = TestCluster::url([servers.shared()]);
        let tell = async |url: &str, expected: &str, part: &str| {
            let (kind, text) = reason(&limiter_on(url)).await;
            assert!(kind == expected && text.contains(part), "{part}: {kind}: {text}");
        };
        let url = TestCluster::url(&cluster.nodes);
        tell(&elsewhere.url(), "cluster", "redis.url begins with redis+cluster://").await;
        tell(&no_cluster, "cluster", "is not known to be a node of a cluster").await;
        tell("redis+cluster://127.0.0.1:1", "away", "it cannot be reached").await;
        limiter_on(&url).ready().await.unwrap();
        for node in &cluster.nodes {
            let user = ["ACL", "SETUSER", "me", "on", ">s3cret", "~*", "&*", "+@all", "-info"];
            assert_eq!(node.command(&user), "OK");
        }
        tell(&url.replace("://", "://me:s3cret@"), "cluster", "the right to INFO").await;
        let slot = elsewhere.command(&["CLUSTER", "KEYSLOT", KEY]);
        for node in &cluster.nodes {
            assert_eq!(node.command(&["CLUSTER", "DELSLOTS", &slot]), "OK");
        }
        tell(&url, "cluster", "does not serve the slot").await;
        // One that hangs does not hide what the other says.
        elsewhere.pause();
        tell(&url, "cluster", "does not serve the slot").await;
        elsewhere.resume();
        for node in &cluster.nodes {
            node.command(&["CONFIG", "SET", "requirepass", "s3cret"]);
        }
        tell(&url, "auth", "the user or password").await;
        tell(&url.replace("://", "://:s3cret@"), "cluster", "does not serve the slot").await;
    });
}
