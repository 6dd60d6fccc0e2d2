//! Locks in Redis, which can end while their holder believes that it has them.

use testkit::{eventually, run};

use crate::redis::{CHANGE, OWNERS, RedisDatabase, WAITING};
use crate::registry::database::Database;
use crate::registry::deployment::{
    Asked, MemoryServer, SharedServer, expect_capacity, refused, serving,
};
use crate::registry::ledger::{Answers, SharedLedger};

/// REG-01: as after a long pause in which another server began a change.
pub fn reg_01_a_lock_that_another_server_took_keeps_a_change_out() {
    run(async {
        let (database, ledger) = (RedisDatabase::new().await, SharedLedger::new());
        let server = SharedServer::start(&database.url("a"), &ledger).await;
        server.insist_on_put("k", 7).await;
        let (before, version) = (database.document().await, database.version().await);
        ledger.set(Answers::Later);
        let change = async {
            let (status, body) = server.put("k", 9).await;
            assert_eq!(status, 503, "{body}");
        };
        let takeover = async {
            eventually("the change is staged", async || database.is_staged().await).await;
            database.command(&["SET", CHANGE, "another server"]);
            ledger.set(Answers::AtOnce);
        };
        futures::future::join(change, takeover).await;
        assert_eq!(database.command(&["GET", CHANGE]), "another server");
        assert_eq!((database.document().await, database.version().await), (before, version));
        let (status, body) = server.put("k", 9).await;
        assert_eq!(status, 503, "{body}");
        database.command(&["DEL", CHANGE]);
        server.insist_on_put("k", 8).await;
        expect_capacity(&server, "k", Some(8)).await;
        eventually("nothing is staged", async || !database.is_staged().await).await;
    });
}

/// REG-01, OPS-06: it notices when it writes, if not before.
pub fn reg_01_ops_06_an_owner_whose_lock_was_taken_changes_nothing() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let database = RedisDatabase::new().await;
        let owner = MemoryServer::start(&database.url("a"), folder.path());
        owner.define("k", 7).await;
        let version = database.version().await;
        // Both at once, so that it finds another owner in its place.
        let other = "return {redis.call('DEL', KEYS[1], KEYS[2]), \
             redis.call('HSET', KEYS[2], 'other', 'x PID 1 on 10.0.0.1:80'), \
             redis.call('SET', '{ratelimiter}:document:owner:other', 'token')}";
        let own_key = database.owner_key();
        database.command(&["EVAL", other, "2", &own_key, OWNERS]);
        let mut body = String::new();
        eventually("it knows the other", async || {
            let (status, answer) = owner.put("k", 9).await;
            assert!(status == 409 || status == 503, "{status} {answer}");
            body = answer;
            status == 409
        })
        .await;
        assert!(body.contains("in use by the server with PID 1 on 10.0.0.1:80"), "{body}");
        assert_eq!(owner.capacity("k").await, Some(7));
        assert_eq!(database.version().await, version, "nothing was written");
        assert!(!database.is_staged().await);
        database.command(&["DEL", "{ratelimiter}:document:owner:other"]);
        owner.insist_on_put("k", 8).await;
    });
}

/// REG-01: a server that makes one change after another does not keep out those that found the registry locked.
pub fn reg_01_servers_take_turns() {
    run(async {
        let (database, ledger) = (RedisDatabase::new().await, SharedLedger::new());
        let server = SharedServer::start(&database.url("a"), &ledger).await;
        database.command(&["SET", WAITING, "another server"]);
        let (status, body) = server.put("k", 7).await;
        assert_eq!(status, 503, "{body}");
        assert!(body.contains("another server is changing the limits"), "{body}");
        database.command(&["DEL", WAITING]);
        database.command(&["SET", CHANGE, "another server"]);
        let release = async {
            eventually("it is next", async || database.exists(WAITING)).await;
            database.command(&["DEL", CHANGE]);
        };
        futures::future::join(server.insist_on_put("k", 7), release).await;
        expect_capacity(&server, "k", Some(7)).await;
    });
}

/// REG-01, OPS-06: the next one need not wait for its TTL.
pub fn reg_01_ops_06_a_server_that_stops_releases_its_lock() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (database, ledger) = (RedisDatabase::new().await, SharedLedger::new());
        let memory = MemoryServer::start(&database.url("a"), folder.path());
        memory.define("k", 7).await;
        let (key, expired) = (database.owner_key(), database.expired_keys());
        memory.stop();
        let is_over = async || !database.exists(&key) && !database.exists(OWNERS);
        eventually("it is released", is_over).await;
        assert_eq!(database.expired_keys(), expired, "not by its TTL");
        let shared = SharedServer::start(&database.url("b"), &ledger).await;
        shared.insist_on_put("k", 8).await;
        let expired = database.expired_keys();
        shared.stop().await;
        eventually("it is released", async || !database.exists(OWNERS)).await;
        assert_eq!(database.expired_keys(), expired, "not by its TTL");
    });
}

/// REG-01, OPS-06: the next one waits for that.
pub fn reg_01_ops_06_the_lock_of_a_server_that_was_killed_ends_by_itself() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let database = RedisDatabase::new().await;
        let mut impatient = serving(&database.url("a"));
        impatient.env("RATELIMITER_REDIS__REQUEST_TIMEOUT_MS", "2500");
        MemoryServer::start_as(impatient, folder.path()).kill();
        let next = MemoryServer::start(&database.url("b"), folder.path());
        next.define("k", 7).await;
    });
}

/// REG-01, OPS-06: the lock of a server that was killed is not extended, and its end is waited for.
pub fn reg_01_ops_06_a_start_is_refused_once_the_owner_extends_its_lock() {
    run(async {
        let database = RedisDatabase::new().await;
        let owner = "{ratelimiter}:document:owner:other";
        database.command(&["HSET", OWNERS, "other", "x PID 1 on 10.0.0.1:80"]);
        database.command(&["SET", owner, "token", "PX", "600000"]);
        let url = database.url("a");
        let start = tokio::task::spawn_blocking(move || refused(&url));
        eventually("it waits", async || database.script_calls() > 10).await;
        database.command(&["PEXPIRE", owner, "700000"]);
        let error = start.await.unwrap();
        assert!(error.contains("is in use by the server with PID 1 on 10.0.0.1:80"), "{error}");
        let calls = database.script_calls();
        assert!(calls < 1_000, "it did not give up because of the number of attempts: {calls}");
    });
}
