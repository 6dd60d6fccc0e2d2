//! Starts: several at once, again, from a file, without the database.

use testkit::run;

use crate::database::TestDatabase;
use crate::deployment::{
    Asked, MemoryServer, SharedServer, definition, expect_capacity, program, refused, stderr,
    stdout,
};
use crate::ledger::SharedLedger;

/// REG-01: the first ones create the table.
pub fn reg_01_servers_that_start_at_once_lose_nothing() {
    const SERVERS: u64 = 6;
    run(async {
        let (database, ledger) = (TestDatabase::new().await, SharedLedger::new());
        let (database, ledger) = (&database, &ledger);
        let starts = (0..SERVERS).map(|number| async move {
            let server = SharedServer::start(&database.url("server"), ledger).await;
            server.insist_on_put(&format!("k{number}"), number + 1).await;
            server
        });
        let servers = futures::future::join_all(starts).await;
        for server in &servers {
            for number in 0..SERVERS {
                expect_capacity(server, &format!("k{number}"), Some(number + 1)).await;
            }
        }
    });
}

/// REG-01
pub fn reg_01_definitions_outlive_their_server() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (database, ledger) = (TestDatabase::new().await, SharedLedger::new());
        let first = MemoryServer::start(&database.url("a"), folder.path());
        assert_eq!(first.put("k", 7).await.0, 200);
        assert_eq!(first.put("l", 8).await.0, 200);
        assert_eq!(first.delete("l").await.0, 200);
        first.kill();
        let second = MemoryServer::start(&database.url("b"), folder.path());
        assert_eq!((second.capacity("k").await, second.capacity("l").await), (Some(7), None));
        second.kill();
        let third = SharedServer::start(&database.url("c"), &ledger).await;
        expect_capacity(&third, "k", Some(7)).await;
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "no file is written");
    });
}

/// REG-01: as docs/operations says.
pub fn reg_01_a_limits_file_moves_into_the_database() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("limits.json");
        let limits = [definition("k", 7), definition("tenant:*:rpm", 8)].join(",");
        std::fs::write(&file, format!(r#"{{"version":2,"limits":[{limits}]}}"#)).unwrap();
        let database = TestDatabase::new().await;
        let server = MemoryServer::start(&database.url("a"), folder.path());
        let mut apply = program();
        apply.args(["limits", "apply"]).arg(&file).args(["--url", &server.url()]);
        let applied = tokio::task::spawn_blocking(move || apply.output().unwrap()).await.unwrap();
        assert!(applied.status.success(), "{}", stderr(&applied));
        server.kill();
        let server = MemoryServer::start(&database.url("b"), folder.path());
        assert_eq!(server.capacity("k").await, Some(7));
        assert_eq!(server.capacity("tenant:*:rpm").await, Some(8));
    });
}

/// REG-01: and the password is not in the error.
pub fn reg_01_a_start_without_the_database_is_refused_with_the_reason() {
    let error = refused("postgresql://app:s3cret@127.0.0.1:1/limits");
    assert!(
        error.starts_with("ratelimiterd: postgresql://app@127.0.0.1:1/limits: cannot be read: ")
            && error.contains("Connection refused"),
        "{error}"
    );
    assert!(!error.contains("s3cret"), "{error}");
}

/// REG-01
pub fn reg_01_check_reads_the_registry_and_changes_nothing() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let database = TestDatabase::new().await;
        let check = || {
            let mut check = program();
            check.arg("check").env("RATELIMITER_REGISTRY__URL", database.url("check"));
            check.output().unwrap()
        };
        let checked = check();
        assert!(stdout(&checked).contains(": ok, 0 limits"), "{}", stdout(&checked));
        assert!(!database.has_table().await);
        let server = MemoryServer::start(&database.url("a"), folder.path());
        assert_eq!(server.put("k", 7).await.0, 200);
        let checked = check();
        assert!(stdout(&checked).contains(": ok, 1 limits"), "{}", stdout(&checked));
        server.kill();
        database.execute("UPDATE ratelimiter_registry SET document = '[{}]'").await;
        let checked = check();
        assert_eq!(checked.status.code(), Some(1));
        assert!(stdout(&checked).contains("key: missing field `key`"), "{}", stdout(&checked));
    });
}

/// REG-01: each has its own definitions and its own owner.
pub fn reg_01_registries_in_two_schemas_are_separate() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let databases = [TestDatabase::new().await, TestDatabase::new().await];
        let servers = databases
            .each_ref()
            .map(|database| MemoryServer::start(&database.url("a"), folder.path()));
        assert_eq!(servers[0].put("k", 7).await.0, 200);
        assert_eq!(servers[1].put("k", 8).await.0, 200);
        assert_eq!(servers[0].capacity("k").await, Some(7));
        assert!(databases[0].document().await.contains("\"capacity\": 7"));
    });
}
