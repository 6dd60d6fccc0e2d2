//! Locks: of other servers, of somebody at the database, and those that cannot be released.

use sqlx::Connection;
use testkit::{eventually, run};

use crate::postgres::PostgresDatabase;
use crate::registry::database::Database;
use crate::registry::deployment::{Asked, SharedServer, expect_capacity};
use crate::registry::ledger::SharedLedger;

/// REG-01: a server waits in the database's queue. If it only tried now and then, one that makes one change after another
/// would keep it out.
pub fn reg_01_servers_take_turns() {
    run(async {
        let (database, ledger) = (PostgresDatabase::new().await, SharedLedger::new());
        let server = SharedServer::start(&database.url("a"), &ledger).await;
        let schema = database.schema();
        let lock = format!(
            "SELECT pg_advisory_xact_lock(hashtextextended('ratelimiter_registry change {schema}', 0))"
        );
        let change_of_another = database.begin(&lock).await;
        let release = async {
            let is_waiting = format!(
                "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid) \
                 WHERE locktype = 'advisory' AND NOT granted AND application_name = '{}')",
                database.role("a")
            );
            eventually("it waits", async || database.is_true(&is_waiting).await).await;
            change_of_another.close().await.unwrap();
        };
        futures::future::join(server.insist_on_put("k", 7), release).await;
        expect_capacity(&server, "k", Some(7)).await;
    });
}

/// REG-01
pub fn reg_01_somebody_who_locks_the_row_delays_changes_and_nothing_else() {
    run(async {
        let (database, ledger) = (PostgresDatabase::new().await, SharedLedger::new());
        let server = SharedServer::start(&database.url("a"), &ledger).await;
        let other = SharedServer::start(&database.url("b"), &ledger).await;
        server.insist_on_put("k", 7).await;
        let row = database.begin("SELECT FROM ratelimiter_registry FOR UPDATE").await;
        let (status, body) = server.put("k", 8).await;
        assert_eq!(status, 503, "{body}");
        assert!(body.contains("lock timeout") && body.contains("nothing was changed"), "{body}");
        assert!(server.is_connected().await && other.is_connected().await);
        assert_eq!(server.capacity("k").await, Some(7));
        row.close().await.unwrap();
        other.insist_on_put("k", 9).await;
        expect_capacity(&server, "k", Some(9)).await;
    });
}

/// REG-01: the connection that has it is ended.
pub fn reg_01_a_lock_that_cannot_be_released_does_not_keep_the_others_out() {
    run(async {
        let (database, ledger) = (PostgresDatabase::on_own_server().await, SharedLedger::new());
        let url = database.url_of_user("app").await;
        database.execute("REVOKE EXECUTE ON FUNCTION pg_advisory_unlock(bigint) FROM PUBLIC").await;
        let server = SharedServer::start(&url, &ledger).await;
        let other = SharedServer::start(&database.url("other"), &ledger).await;
        server.insist_on_put("k", 7).await;
        other.insist_on_put("k", 8).await;
        expect_capacity(&server, "k", Some(8)).await;
    });
}
