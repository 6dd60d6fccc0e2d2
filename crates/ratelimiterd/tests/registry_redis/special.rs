//! What only a registry in Redis has: a prefix, TTLs, and another backend that may use the same Redis.

use std::process::Command;

use testkit::redis::Persistence;
use testkit::{eventually, run};

use crate::redis::{DOCUMENT, RedisDatabase};
use crate::registry::database::Database;
use crate::registry::deployment::{Asked, MemoryServer, SharedServer, program, serving};
use crate::registry::ledger::{Answers, SharedLedger};

fn with_prefix(mut command: Command, prefix: &str) -> Command {
    command.env("RATELIMITER_REDIS__PREFIX", prefix);
    command
}

/// REG-01, RDS-04: each has its own definitions and its own owner.
pub fn reg_01_rds_04_registries_with_two_prefixes_are_separate() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let database = RedisDatabase::new().await;
        let servers = ["one", "two"].map(|prefix| {
            MemoryServer::start_as(with_prefix(serving(&database.url("a")), prefix), folder.path())
        });
        servers[0].define("k", 7).await;
        servers[1].define("k", 8).await;
        assert_eq!(servers[0].capacity("k").await, Some(7));
        let text = database.command(&["HGET", "{one}:document", "text"]);
        assert!(text.contains("\"capacity\": 7"), "{text}");
    });
}

/// REG-01, RDS-04
pub fn reg_01_rds_04_a_registry_and_the_redis_backend_with_one_prefix_do_not_meet() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let database = RedisDatabase::new().await;
        let stored = MemoryServer::start(&database.url("a"), folder.path());
        let mut command = program();
        command.args(["--listen", "127.0.0.1:0", "--backend", "redis"]);
        command.env("RATELIMITER_REDIS__URL", database.url("b"));
        let kept = MemoryServer::start_as(command, folder.path());
        eventually("it is ready", async || kept.get("/readyz").await.0 == 200).await;
        stored.define("k", 7).await;
        kept.define("k", 8).await;
        assert!(kept.reserve(1, "k").await.1.contains("\"allowed\":true"));
        stored.define("l", 1).await;
        assert_eq!((stored.capacity("k").await, kept.capacity("k").await), (Some(7), Some(8)));
        assert_eq!((stored.capacity("l").await, kept.capacity("l").await), (Some(1), None));
        stored.stop();
        kept.stop();
        let stored = MemoryServer::start(&database.url("a"), folder.path());
        assert_eq!(stored.capacity("k").await, Some(7));
    });
}

/// REG-01, RDS-03: also in a change.
pub fn reg_01_rds_03_only_the_document_has_no_ttl() {
    run(async {
        let (database, ledger) = (RedisDatabase::new().await, SharedLedger::new());
        let server = SharedServer::start(&database.url("a"), &ledger).await;
        server.insist_on_put("k", 7).await;
        ledger.set(Answers::Later);
        let look = async {
            eventually("the change is staged", async || database.is_staged().await).await;
            let keys = database.command(&["KEYS", "*"]);
            let lasting = keys.lines().filter(|key| database.command(&["PTTL", key]) == "-1");
            let mut lasting: Vec<_> = lasting.map(str::to_owned).collect();
            lasting.sort_unstable();
            ledger.set(Answers::AtOnce);
            (keys.clone(), lasting)
        };
        let ((status, body), (keys, lasting)) =
            futures::future::join(server.put("k", 8), look).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(lasting, [DOCUMENT.to_owned(), format!("{DOCUMENT}:staged")], "of {keys}");
        assert_eq!(database.command(&["PTTL", DOCUMENT]), "-1");
    });
}

/// REG-01, RDS-08
pub fn reg_01_rds_08_a_password_is_in_no_log_at_any_level() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let mut database = RedisDatabase::start(Persistence::None, &["--requirepass", "s3cret"]);
        let addr = database.redis.addr();
        let mut command = serving(&format!("redis://default:s3cret@{addr}/2"));
        command.env("RATELIMITER_LOG__LEVEL", "trace");
        let server = MemoryServer::start_as(command, folder.path());
        server.define("k", 7).await;
        database.crash();
        eventually("the loss is noticed", async || !server.is_connected().await).await;
        let (status, body) = server.put("k", 8).await;
        assert_eq!(status, 503, "{body}");
        let (_, metrics) = server.get("/metrics").await;
        let log = server.stop();
        assert!(log.contains(&format!("registry=redis://{addr}/2")), "{log}");
        for text in [log, body, metrics] {
            assert!(!text.contains("s3cret"), "{text}");
        }
    });
}
