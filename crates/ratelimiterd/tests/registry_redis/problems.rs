//! A Redis that cannot be used, and the reason.

use testkit::redis::Persistence;
use testkit::{eventually, run};

use crate::redis::{CHANGE, RedisDatabase};
use crate::registry::database::Database;
use crate::registry::deployment::{
    Asked, MemoryServer, SharedServer, definition, expect_capacity, refused,
};
use crate::registry::ledger::SharedLedger;

/// Longer than a connection for texts is kept without use.
const IDLE_SECONDS: u64 = 3;

/// Waits until a change is refused for this reason; nothing has changed, and the server serves.
async fn expect_refused(server: &impl Asked, status: u16, reason: &str) {
    let mut body = String::new();
    eventually(&format!("the reason is {reason}"), async || {
        let answer = server.put("k", 9).await;
        assert!([status, 503].contains(&answer.0), "{answer:?}");
        body = answer.1;
        answer.0 == status && body.contains(reason)
    })
    .await;
    assert!(status == 409 || body.contains("nothing was changed"), "{body}");
    assert_eq!(server.capacity("k").await, Some(7));
    assert_eq!(server.get("/readyz").await.0, 200);
}

/// REG-01: and the password is not in the error.
pub fn reg_01_a_start_without_redis_is_refused_with_the_reason() {
    let error = refused("redis://app:s3cret@127.0.0.1:1/2");
    let expected = "ratelimiterd: redis://127.0.0.1:1/2: cannot be read: it cannot be reached: ";
    assert!(error.contains(expected) && error.contains("Connection refused"), "{error}");
    assert!(!error.contains("s3cret"), "{error}");
}

/// REG-01, RDS-06
pub fn reg_01_rds_06_a_wrong_password_is_reported() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let database = RedisDatabase::start(Persistence::None, &[]);
        let url = database.url_of_user("app").await;
        for wrong in [url.replace("s3cret", "wr0ng"), url.replace("app", "nobody")] {
            let error = refused(&wrong);
            let reason = "the user or password in registry.url is wrong, or missing";
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains("s3cret") && !error.contains("wr0ng"), "{error}");
        }
        let server = MemoryServer::start(&url, folder.path());
        server.define("k", 7).await;
        database.lock_out("app").await;
        expect_refused(&server, 503, "the user or password in registry.url is wrong").await;
        database.let_in("app").await;
        server.insist_on_put("k", 8).await;
    });
}

/// REG-01, RDS-06: it would answer reads, perhaps with outdated limits, and its locks keep nobody out.
pub fn reg_01_rds_06_a_replica_is_not_used_until_it_is_the_primary() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let ledger = SharedLedger::new();
        let [other, database] = [(); 2].map(|()| RedisDatabase::start(Persistence::None, &[]));
        let server = SharedServer::start(&database.url("a"), &ledger).await;
        server.insist_on_put("k", 7).await;
        let port = other.redis.addr().port().to_string();
        // The other one has other limits.
        let elsewhere = MemoryServer::start(&other.url("a"), folder.path());
        elsewhere.define("k", 3).await;
        elsewhere.stop();
        database.command(&["REPLICAOF", "127.0.0.1", &port]);
        expect_refused(&server, 503, "it is a read-only replica; registry.url names the primary")
            .await;
        eventually("it is a replica", async || database.document().await.contains(": 3")).await;
        assert!(!server.is_connected().await);
        assert_eq!(server.capacity("k").await, Some(7), "what a replica has is not loaded");
        let error = refused(&database.url("b"));
        assert!(error.contains("registry.url names the primary"), "{error}");
        database.command(&["REPLICAOF", "NO", "ONE"]);
        expect_capacity(&server, "k", Some(3)).await;
        server.insist_on_put("k", 8).await;
    });
}

/// REG-01, RDS-06
pub fn reg_01_rds_06_a_full_redis_is_served_and_its_room_is_noticed() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (database, ledger) = (RedisDatabase::new().await, SharedLedger::new());
        let fill = || database.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let give_room = || database.command(&["CONFIG", "SET", "maxmemory", "0"]);
        let memory = MemoryServer::start(&database.url("a"), folder.path());
        memory.define("k", 7).await;
        let version = database.version().await;
        fill();
        expect_refused(&memory, 503, "maxmemory is reached").await;
        assert!(memory.is_connected().await);
        memory.stop();
        let memory = MemoryServer::start(&database.url("a"), folder.path());
        expect_refused(&memory, 503, "maxmemory is reached").await;
        assert_eq!(database.version().await, version, "nothing was written");
        give_room();
        memory.insist_on_put("k", 8).await;
        memory.define("k", 7).await;
        memory.stop();
        let shared = SharedServer::start(&database.url("b"), &ledger).await;
        fill();
        expect_refused(&shared, 503, "maxmemory is reached").await;
        give_room();
        shared.insist_on_put("k", 8).await;
        let is_over = async || !database.is_staged().await && !database.exists(CHANGE);
        eventually("nothing is staged or locked", is_over).await;
    });
}

/// REG-01, RDS-06
pub fn reg_01_rds_06_a_user_who_may_only_read_serves_and_reports_why_it_cannot_change() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (database, ledger) = (RedisDatabase::new().await, SharedLedger::new());
        let owner = MemoryServer::start(&database.url("a"), folder.path());
        owner.define("k", 7).await;
        owner.stop();
        let url = database.url_of_user("reader").await;
        database.command(&["ACL", "SETUSER", "reader", "-@write"]);
        let reader = MemoryServer::start(&url, folder.path());
        reader.wait_for_line("the registry cannot be locked; it is read-only here");
        expect_refused(&reader, 409, "the user may not do this").await;
        let shared = SharedServer::start(&url, &ledger).await;
        expect_capacity(&shared, "k", Some(7)).await;
        expect_refused(&shared, 409, "the user may not do this").await;
    });
}

/// REG-01, RDS-06
pub fn reg_01_rds_06_a_lost_script_cache_is_not_noticed() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let database = RedisDatabase::new().await;
        let server = MemoryServer::start(&database.url("a"), folder.path());
        for capacity in 1..=3 {
            database.command(&["SCRIPT", "FLUSH", "SYNC"]);
            server.define("k", capacity).await;
            assert!(server.is_connected().await);
        }
        let log = server.stop();
        assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    });
}

/// REG-01: as docs/operations/redis.md says. A memory server loads it when it starts, and does not overwrite it before.
pub fn reg_01_a_document_written_by_hand_is_not_overwritten() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let database = RedisDatabase::new().await;
        let url = database.url_of_user("app").await;
        let server = MemoryServer::start(&url, folder.path());
        server.define("k", 7).await;
        database.lock_out("app").await;
        eventually("the loss is noticed", async || !server.is_connected().await).await;
        database.write_by_hand(&format!("[{}]", definition("k", 9))).await;
        database.let_in("app").await;
        eventually("it is not overwritten", async || {
            let (status, body) = server.put("k", 8).await;
            assert!(status == 409 || status == 503, "{status} {body}");
            body.contains("restart this server")
        })
        .await;
        server.stop();
        let server = MemoryServer::start(&url, folder.path());
        assert_eq!(server.capacity("k").await, Some(9));
    });
}

/// REG-01: Redis or a load balancer closes connections that are idle, as that for the texts is between changes.
pub fn reg_01_a_change_after_an_idle_spell_succeeds() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (database, ledger) = (RedisDatabase::new().await, SharedLedger::new());
        let memory = MemoryServer::start(&database.url("a"), folder.path());
        expect_change_after_idle_spell(&database, &memory).await;
        memory.stop();
        let shared = SharedServer::start(&database.url("a"), &ledger).await;
        expect_change_after_idle_spell(&database, &shared).await;
    });
}

async fn expect_change_after_idle_spell(database: &RedisDatabase, server: &impl Asked) {
    server.insist_on_put("k", 7).await;
    let idle_at = database.idle_clients()[0].0 + IDLE_SECONDS;
    eventually("one connection is idle", async || {
        let clients = database.idle_clients();
        clients[0].0 >= idle_at && clients[1].0 < idle_at
    })
    .await;
    database.command(&["CLIENT", "KILL", "ID", &database.idle_clients()[0].1]);
    let (status, body) = server.put("k", 8).await;
    assert_eq!(status, 200, "{body}");
}

/// REG-01: a Redis without a file has no document after a restart, which is nobody's change.
pub fn reg_01_a_memory_server_writes_again_what_redis_has_forgotten() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let mut database = RedisDatabase::new().await;
        let server = MemoryServer::start(&database.url("a"), folder.path());
        server.define("k", 7).await;
        database.crash();
        eventually("the loss is noticed", async || !server.is_connected().await).await;
        database.start_again();
        let is_back = async || database.document().await.contains("\"capacity\": 7");
        eventually("it is written again", is_back).await;
        assert_eq!(server.capacity("k").await, Some(7));
    });
}
