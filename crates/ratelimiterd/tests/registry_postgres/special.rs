//! What only PostgreSQL has: a table, roles and schemas.

use testkit::run;

use crate::postgres::PostgresDatabase;
use crate::registry::database::Database;
use crate::registry::deployment::{Asked, MemoryServer, SharedServer, expect_capacity, refused};
use crate::registry::ledger::SharedLedger;

/// REG-01, OPS-05
pub fn reg_01_the_table_of_a_newer_version_is_used_and_kept() {
    run(async {
        let (database, ledger) = (PostgresDatabase::new().await, SharedLedger::new());
        let first = SharedServer::start(&database.url("a"), &ledger).await;
        first.insist_on_put("k", 7).await;
        database
            .execute(
                "ALTER TABLE ratelimiter_registry ADD COLUMN region text NOT NULL DEFAULT 'eu'",
            )
            .await;
        first.insist_on_put("k", 8).await;
        database.execute("UPDATE ratelimiter_registry SET region = 'us'").await;
        let second = SharedServer::start(&database.url("b"), &ledger).await;
        second.insist_on_put("k", 9).await;
        expect_capacity(&first, "k", Some(9)).await;
        assert_eq!(database.text("region").await.unwrap(), "us");
    });
}

/// REG-01
pub fn reg_01_a_role_that_may_only_read_serves_and_reports_why_it_cannot_change() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let database = PostgresDatabase::on_own_server().await;
        let owner = MemoryServer::start(&database.url("owner"), folder.path());
        owner.define("k", 7).await;
        owner.kill();
        let schema = database.schema();
        let usage = format!("USAGE ON SCHEMA {schema}");
        let select = format!("SELECT ON {schema}.ratelimiter_registry");
        let url = database.url_as("reader", &[&usage, &select]).await;
        let reader = MemoryServer::start(&url, folder.path());
        reader.wait_for_line("the registry cannot be locked; it is read-only here");
        assert_eq!(reader.capacity("k").await, Some(7));
        let (status, body) = reader.put("k", 8).await;
        assert_eq!(status, 409, "{body}");
        assert!(body.contains("limits_read_only") && body.contains("permission denied"), "{body}");
        reader.kill();
        let ledger = SharedLedger::new();
        let shared = SharedServer::start(&url, &ledger).await;
        expect_capacity(&shared, "k", Some(7)).await;
        let (status, body) = shared.put("k", 8).await;
        assert_eq!(status, 409, "{body}");
        assert!(body.contains("permission denied"), "{body}");
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

/// REG-01: each has its own definitions and its own owner.
pub fn reg_01_registries_in_two_schemas_are_separate() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let databases = [PostgresDatabase::new().await, PostgresDatabase::new().await];
        let servers = databases
            .each_ref()
            .map(|database| MemoryServer::start(&database.url("a"), folder.path()));
        servers[0].define("k", 7).await;
        servers[1].define("k", 8).await;
        assert_eq!(servers[0].capacity("k").await, Some(7));
        assert!(databases[0].document().await.contains("\"capacity\": 7"));
    });
}
