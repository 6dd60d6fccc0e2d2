//! The database fails over, or is a standby or read-only for a while.

use std::fs;

use testkit::postgres::TestCluster;
use testkit::{eventually, run};

use crate::postgres::PostgresDatabase;
use crate::registry::database::Database;
use crate::registry::deployment::{Asked, MemoryServer, SharedServer, expect_capacity, refused};
use crate::registry::ledger::SharedLedger;
use crate::registry::outages::outage;

/// Starts the server of the database again, as a standby.
fn demote(cluster: &mut TestCluster) {
    cluster.stop();
    fs::write(cluster.folder().join("data/standby.signal"), "").unwrap();
    cluster.start_again();
}

async fn expect_refused(server: &impl Asked, reason: &str) {
    eventually(&format!("the reason is {reason}"), async || {
        let (status, body) = server.put("k", 9).await;
        assert_eq!(status, 503, "{body}");
        body.contains(reason) && body.contains("nothing was changed")
    })
    .await;
    assert_eq!(server.capacity("k").await, Some(7));
    assert_eq!(server.get("/readyz").await.0, 200);
}

/// REG-01: the locks of a standby keep nobody out, so a server does not use it.
pub fn reg_01_servers_wait_for_the_primary_and_use_it_once_it_is_there() {
    run(async {
        let (mut database, ledger) = (PostgresDatabase::on_own_server().await, SharedLedger::new());
        let first = SharedServer::start(&database.url("a"), &ledger).await;
        let second = SharedServer::start(&database.url("b"), &ledger).await;
        first.insist_on_put("k", 7).await;
        expect_capacity(&second, "k", Some(7)).await;
        demote(database.cluster());
        for server in [&first, &second] {
            expect_refused(server, "it is a standby").await;
            assert!(!server.is_connected().await);
        }
        database.execute("SELECT pg_promote()").await;
        first.insist_on_put("k", 8).await;
        expect_capacity(&second, "k", Some(8)).await;
    });
}

/// REG-01
pub fn reg_01_a_start_on_a_standby_is_refused() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let mut database = PostgresDatabase::on_own_server().await;
        MemoryServer::start(&database.url("a"), folder.path()).kill();
        demote(database.cluster());
        let error = refused(&database.url("b"));
        assert!(error.contains("registry.url must name the primary"), "{error}");
        database.execute("SELECT pg_promote()").await;
        let server = MemoryServer::start(&database.url("c"), folder.path());
        server.define("k", 7).await;
    });
}

/// REG-01: as when its disk is full, or for maintenance. A session is read-only from its start.
pub fn reg_01_a_read_only_database_is_served_and_its_return_is_noticed() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let database = PostgresDatabase::on_own_server().await;
        let (url, role) = (database.url_of_user("app").await, database.role("app"));
        let server = MemoryServer::start(&url, folder.path());
        server.define("k", 7).await;
        let read_only = format!("ALTER ROLE {role} SET default_transaction_read_only = on");
        database.execute(&read_only).await;
        database.terminate("app").await;
        expect_refused(&server, "read-only transaction").await;
        let writable = format!("ALTER ROLE {role} RESET default_transaction_read_only");
        database.execute(&writable).await;
        server.insist_on_put("k", 8).await;
        let log = server.stop();
        let losses = log.matches("connection to the registry lost").count();
        assert_eq!(losses, 1, "{log}");
        database.execute(&read_only).await;
        let server = MemoryServer::start(&url, folder.path());
        server.wait_for_line("the registry cannot be locked; it is read-only here");
        assert_eq!(server.capacity("k").await, Some(8));
        let (status, body) = server.put("k", 9).await;
        assert_eq!(status, 503, "{body}");
        database.execute(&writable).await;
        server.insist_on_put("k", 9).await;
    });
}

/// REG-01: `synchronous_commit = off` is a default that some databases have.
pub fn reg_01_a_confirmed_change_outlives_a_crash_whatever_the_default_is() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let mut database = PostgresDatabase::on_own_server().await;
        // Without a commit that waits, the log is written after ten seconds.
        database.execute("ALTER SYSTEM SET wal_writer_delay = '10s'").await;
        database.execute("ALTER SYSTEM SET synchronous_commit = off").await;
        database.cluster().stop();
        database.start_again();
        let server = MemoryServer::start(&database.url("a"), folder.path());
        server.define("k", 7).await;
        server.kill();
        database.crash();
        database.start_again();
        assert!(database.document().await.contains("\"capacity\": 7"));
    });
}

/// REG-01
pub fn reg_01_servers_on_a_shared_backend_serve_through_an_outage() {
    run(outage(|database: &mut PostgresDatabase| database.cluster().stop()));
}
