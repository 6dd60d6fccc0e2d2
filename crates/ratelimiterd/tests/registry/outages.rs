//! The database is away, and comes back; connections and answers are lost in the middle of a change.

use testkit::{eventually, run};

use super::database::Database;
use super::deployment::{Asked, MemoryServer, SharedServer, definition, expect_capacity};
use super::ledger::{Answers, SharedLedger};

/// A change is refused with the reason, and everything else works.
async fn expect_served_without_database<D: Database>(server: &impl Asked, lease: u128) {
    eventually("the loss is noticed", async || !server.is_connected().await).await;
    let (status, body) = server.put("k", 9).await;
    assert_eq!(status, 503, "{body}");
    assert!(body.contains(D::SCHEME) && body.contains("nothing was changed"), "{body}");
    assert_eq!(server.delete("k").await.0, 503);
    assert_eq!(server.capacity("k").await, Some(7));
    assert!(server.reserve(lease, "k").await.1.contains("\"allowed\":true"));
    assert_eq!(server.get("/readyz").await.0, 200);
}

/// A database that is stopped, in one way or another, and started again.
pub async fn outage<D: Database>(stop: impl FnOnce(&mut D)) {
    let (mut database, ledger) = (D::on_own_server().await, SharedLedger::new());
    let first = SharedServer::start(&database.url("a"), &ledger).await;
    let second = SharedServer::start(&database.url("b"), &ledger).await;
    first.insist_on_put("k", 7).await;
    expect_capacity(&second, "k", Some(7)).await;
    stop(&mut database);
    expect_served_without_database::<D>(&first, 1).await;
    expect_served_without_database::<D>(&second, 2).await;
    database.start_again();
    first.insist_on_put("k", 8).await;
    expect_capacity(&second, "k", Some(8)).await;
    second.insist_on_put("l", 1).await;
    expect_capacity(&first, "l", Some(1)).await;
    assert!(first.is_connected().await && second.is_connected().await);
}

/// REG-01
pub fn reg_01_servers_on_a_shared_backend_serve_through_a_crash<D: Database>() {
    run(outage(D::crash));
}

/// REG-01
pub fn reg_01_a_memory_server_serves_through_an_outage<D: Database>() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let mut database = D::on_own_server().await;
        let server = MemoryServer::start(&database.url("a"), folder.path());
        server.define("k", 7).await;
        database.crash();
        expect_served_without_database::<D>(&server, 1).await;
        server.wait_for_line("connection to the registry lost; serving the limits that are known");
        database.start_again();
        server.wait_for_line("connected to the registry again");
        server.insist_on_put("k", 8).await;
        assert!(database.document().await.contains("\"capacity\": 8"));
    });
}

/// REG-01: a server that has lost its lock must not write its change.
pub fn reg_01_a_change_whose_lock_is_lost_does_not_take_effect<D: Database>() {
    run(async {
        let (database, ledger) = (D::new().await, SharedLedger::new());
        let first = SharedServer::start(&database.url("first"), &ledger).await;
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
            database.take_lock_from("first").await;
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
pub fn reg_01_tb_08_a_change_without_an_answer_is_reverted_by_the_others<D: Database>() {
    run(async {
        let (database, ledger) = (D::new().await, SharedLedger::new());
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

/// REG-01, TB-08: as after `kill -9` between the two steps of a change. All tasks of the server end where they are.
pub fn reg_01_tb_08_a_change_of_a_server_that_died_is_reverted_by_the_others<D: Database>() {
    let doomed = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    run(async {
        let (database, ledger) = (D::new().await, SharedLedger::new());
        let first = SharedServer::bind_impatient(database.url("first"), ledger.clone());
        let first = doomed.spawn(first).await.unwrap();
        first.wait_until_ready().await;
        let second = SharedServer::start(&database.url("second"), &ledger).await;
        first.insist_on_put("k", 7).await;
        expect_capacity(&second, "k", Some(7)).await;
        ledger.set(Answers::Later);
        let addr = first.addr();
        let change = move || testkit::ask(addr, "PUT", "/v1/admin/limits", &definition("k", 9));
        let change = tokio::task::spawn_blocking(change);
        eventually("the change is staged", async || database.is_staged().await).await;
        doomed.shutdown_background();
        assert_eq!(change.await.unwrap(), None, "nobody answers");
        ledger.set(Answers::AtOnce);
        eventually("nothing is staged", async || !database.is_staged().await).await;
        assert_eq!(second.capacity("k").await, Some(7));
        assert!(database.document().await.contains("\"capacity\": 7"));
        second.insist_on_put("k", 8).await;
    });
}
