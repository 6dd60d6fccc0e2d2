//! Starts: several at once, again, from a file, without the database.

use testkit::run;

use super::database::Database;
use super::deployment::{
    Asked, MemoryServer, SharedServer, definition, expect_capacity, program, stderr, stdout,
};
use super::ledger::SharedLedger;

/// REG-01: the first ones also create the table of a database that has them.
pub fn reg_01_servers_that_start_at_once_lose_nothing<D: Database>() {
    const SERVERS: u64 = 6;
    run(async {
        let (database, ledger) = (D::new().await, SharedLedger::new());
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
pub fn reg_01_definitions_outlive_their_server<D: Database>() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (database, ledger) = (D::new().await, SharedLedger::new());
        let first = MemoryServer::start(&database.url("a"), folder.path());
        first.define("k", 7).await;
        first.define("l", 8).await;
        assert_eq!(first.delete("l").await.0, 200);
        first.kill();
        database.end_ownership().await;
        let second = MemoryServer::start(&database.url("b"), folder.path());
        assert_eq!((second.capacity("k").await, second.capacity("l").await), (Some(7), None));
        second.kill();
        database.end_ownership().await;
        let third = SharedServer::start(&database.url("c"), &ledger).await;
        expect_capacity(&third, "k", Some(7)).await;
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "no file is written");
    });
}

/// REG-01: as docs/operations says.
pub fn reg_01_a_limits_file_moves_into_the_database<D: Database>() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("limits.json");
        let limits = [definition("k", 7), definition("tenant:*:rpm", 8)].join(",");
        std::fs::write(&file, format!(r#"{{"version":2,"limits":[{limits}]}}"#)).unwrap();
        let database = D::new().await;
        let server = MemoryServer::start(&database.url("a"), folder.path());
        let mut apply = program();
        apply.args(["limits", "apply"]).arg(&file).args(["--url", &server.url()]);
        let applied = tokio::task::spawn_blocking(move || apply.output().unwrap()).await.unwrap();
        assert!(applied.status.success(), "{}", stderr(&applied));
        server.kill();
        database.end_ownership().await;
        let server = MemoryServer::start(&database.url("b"), folder.path());
        assert_eq!(server.capacity("k").await, Some(7));
        assert_eq!(server.capacity("tenant:*:rpm").await, Some(8));
    });
}

/// REG-01
pub fn reg_01_check_reads_the_registry_and_changes_nothing<D: Database>() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let database = D::new().await;
        let check = || {
            let mut check = program();
            check.arg("check").env("RATELIMITER_REGISTRY__URL", database.url("check"));
            check.output().unwrap()
        };
        let checked = check();
        assert!(stdout(&checked).contains(": ok, 0 limits"), "{}", stdout(&checked));
        assert!(database.is_untouched().await);
        let server = MemoryServer::start(&database.url("a"), folder.path());
        server.define("k", 7).await;
        let checked = check();
        assert!(stdout(&checked).contains(": ok, 1 limits"), "{}", stdout(&checked));
        server.kill();
        database.write_by_hand("[{}]").await;
        let checked = check();
        assert_eq!(checked.status.code(), Some(1));
        assert!(stdout(&checked).contains("key: missing field `key`"), "{}", stdout(&checked));
    });
}
