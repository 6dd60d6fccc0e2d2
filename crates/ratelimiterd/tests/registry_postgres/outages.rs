//! The database is away, and comes back; connections and answers are lost in the middle of a change.

use testkit::postgres::TestCluster;
use testkit::{eventually, run};

use crate::database::TestDatabase;
use crate::deployment::{Asked, MemoryServer, SharedServer, definition, expect_capacity};
use crate::ledger::{Answers, SharedLedger};

/// A change is refused with the reason, and everything else works.
async fn expect_served_without_database(server: &impl Asked, lease: u128) {
    eventually("the loss is noticed", async || !server.is_connected().await).await;
    let (status, body) = server.put("k", 9).await;
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("postgresql://") && body.contains("nothing was changed"), "{body}");
    assert_eq!(server.delete("k").await.0, 503);
    assert_eq!(server.capacity("k").await, Some(7));
    assert!(server.reserve(lease, "k").await.1.contains("\"allowed\":true"));
    assert_eq!(server.get("/readyz").await.0, 200);
}

async fn outage(stop: impl FnOnce(&mut TestCluster)) {
    let ((mut cluster, database), ledger) =
        (TestDatabase::on_own_server().await, SharedLedger::new());
    let first = SharedServer::start(&database.url("a"), &ledger).await;
    let second = SharedServer::start(&database.url("b"), &ledger).await;
    first.insist_on_put("k", 7).await;
    expect_capacity(&second, "k", Some(7)).await;
    stop(&mut cluster);
    expect_served_without_database(&first, 1).await;
    expect_served_without_database(&second, 2).await;
    cluster.start_again();
    first.insist_on_put("k", 8).await;
    expect_capacity(&second, "k", Some(8)).await;
    second.insist_on_put("l", 1).await;
    expect_capacity(&first, "l", Some(1)).await;
    assert!(first.is_connected().await && second.is_connected().await);
}

/// REG-01
pub fn reg_01_servers_on_a_shared_backend_serve_through_an_outage() {
    run(outage(TestCluster::stop));
}

/// REG-01
pub fn reg_01_servers_on_a_shared_backend_serve_through_a_crash() {
    run(outage(TestCluster::crash));
}

/// REG-01
pub fn reg_01_a_memory_server_serves_through_an_outage() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (mut cluster, database) = TestDatabase::on_own_server().await;
        let server = MemoryServer::start(&database.url("a"), folder.path());
        assert_eq!(server.put("k", 7).await.0, 200);
        cluster.stop();
        expect_served_without_database(&server, 1).await;
        server.wait_for_line("connection to the registry lost; serving the limits that are known");
        cluster.start_again();
        server.wait_for_line("connected to the registry again");
        server.insist_on_put("k", 8).await;
        assert!(database.document().await.contains("\"capacity\": 8"));
    });
}

/// REG-01: a server that has lost its connection has lost its lock, so its change must not be written.
pub fn reg_01_a_change_whose_connection_is_lost_does_not_take_effect() {
    run(async {
        let (database, ledger) = (TestDatabase::new().await, SharedLedger::new());
        let first_url = database.url(&database.role("first"));
        let first = SharedServer::start(&first_url, &ledger).await;
        let second = SharedServer::start(&database.url("second"), &ledger).await;
        first.insist_on_put("k", 7).await;
        expect_capacity(&second, "k", Some(7)).await;
        let before = database.version().await;
        ledger.set(Answers::Later);
        let change = async {
            let (status, body) = first.put("k", 9).await;
            assert_eq!(status, 503, "{body}");
        };
        let interruption = async {
            eventually("the change is staged", async || database.is_staged().await).await;
            database.terminate(&database.role("first")).await;
            ledger.set(Answers::AtOnce);
        };
        futures::future::join(change, interruption).await;
        eventually("nothing is staged", async || !database.is_staged().await).await;
        for server in [&first, &second] {
            expect_capacity(server, "k", Some(7)).await;
        }
        assert!(database.document().await.contains("\"capacity\": 7"));
        eprintln!("version {before} before, {} after", database.version().await);
        first.insist_on_put("k", 8).await;
        expect_capacity(&second, "k", Some(8)).await;
    });
}

/// REG-01, TB-08: what a server has staged, the others find.
pub fn reg_01_tb_08_a_change_without_an_answer_is_reverted_by_the_others() {
    run(async {
        let (database, ledger) = (TestDatabase::new().await, SharedLedger::new());
        let first = SharedServer::start(&database.url("first"), &ledger).await;
        let second = SharedServer::start(&database.url("second"), &ledger).await;
        let keys = ["k", "tenant:*:rpm"];
        for key in keys {
            first.insist_on_put(key, 7).await;
            expect_capacity(&second, key, Some(7)).await;
        }
        ledger.set(Answers::Never);
        let changes = keys.map(|key| definition(key, 9)).join(",");
        let body = format!(r#"{{"limits":[{changes}]}}"#);
        let (status, body) = first.ask("PUT", "/v1/admin/limits", body).await;
        assert_eq!(status, 503, "{body}");
        assert!(database.is_staged().await);
        first.stop().await;
        ledger.set(Answers::AtOnce);
        eventually("nothing is staged", async || !database.is_staged().await).await;
        for key in keys {
            assert_eq!(second.capacity(key).await, Some(7));
            second.insist_on_put(key, 8).await;
        }
    });
}
