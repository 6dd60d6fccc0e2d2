//! OPS-06: a registry belongs to one memory server, or to the servers of one shared backend.

use testkit::{eventually, run};

use super::database::Database;
use super::deployment::{Asked, MemoryServer, SharedServer, refused};
use super::ledger::SharedLedger;

/// REG-01, OPS-06
pub fn reg_01_ops_06_a_second_memory_server_is_refused_until_the_first_is_gone<D: Database>() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let database = D::new().await;
        let first = MemoryServer::start(&database.url("a"), folder.path());
        let error = refused(&database.url("b"));
        let by = first.description();
        assert!(error.contains(&format!(" is in use by {by}; stop that, ")), "{error}");
        assert!(error.contains("one of its own (registry.url"), "{error}");
        first.define("k", 7).await;
        first.kill();
        database.end_ownership().await;
        let second = MemoryServer::start(&database.url("b"), folder.path());
        second.define("l", 7).await;
        assert_eq!(second.capacity("k").await, Some(7));
    });
}

/// REG-01, OPS-06
pub fn reg_01_ops_06_servers_on_a_shared_backend_keep_a_memory_server_out<D: Database>() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (database, ledger) = (D::new().await, SharedLedger::new());
        let first = SharedServer::start(&database.url("a"), &ledger).await;
        let second = SharedServer::start(&database.url("b"), &ledger).await;
        let error = refused(&database.url("c"));
        assert!(error.contains("is in use by servers with server.backend: tigerbeetle"), "{error}");
        first.stop().await;
        second.stop().await;
        let memory = MemoryServer::start(&database.url("c"), folder.path());
        memory.define("k", 7).await;
    });
}

/// REG-01, OPS-06
pub fn reg_01_ops_06_an_owner_keeps_its_registry_through_an_outage<D: Database>() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let mut database = D::on_own_server().await;
        let owner = MemoryServer::start(&database.url("a"), folder.path());
        database.crash();
        eventually("the loss is noticed", async || !owner.is_connected().await).await;
        database.start_again();
        owner.insist_on_put("k", 7).await;
        let error = refused(&database.url("b"));
        assert!(error.contains(&owner.description()), "{error}");
    });
}

/// REG-01, OPS-06: it cannot connect while another server takes the registry, changes it, and is gone again.
pub fn reg_01_ops_06_an_owner_that_was_replaced_overwrites_nothing<D: Database>() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let database = D::on_own_server().await;
        let url = database.url_of_user("owner").await;
        let owner = MemoryServer::start(&url, folder.path());
        owner.define("ours", 7).await;
        database.lock_out("owner").await;
        eventually("the loss is noticed", async || !owner.is_connected().await).await;
        database.end_ownership().await;
        let other = MemoryServer::start(&database.url("other"), folder.path());
        other.define("theirs", 8).await;
        database.let_in("owner").await;
        let refusal = async || {
            let (status, body) = owner.put("ours", 9).await;
            assert!(status == 409 || status == 503, "{status} {body}");
            (status == 409).then_some(body)
        };
        let mut body = None;
        eventually("it is back", async || {
            body = refusal().await;
            body.is_some()
        })
        .await;
        let body = body.unwrap();
        assert!(body.contains(&format!("it is in use by {}", other.description())), "{body}");
        other.kill();
        database.end_ownership().await;
        eventually("the other is gone", async || {
            refusal().await.is_some_and(|body| body.contains("restart this server"))
        })
        .await;
        let document = database.document().await;
        assert!(document.contains("theirs") && document.contains("\"capacity\": 7"), "{document}");
    });
}

/// REG-01: as a failover to a standby that was behind, or a restored backup.
pub fn reg_01_a_memory_server_writes_again_what_the_database_has_lost<D: Database>() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let database = D::on_own_server().await;
        let url = database.url_of_user("app").await;
        let server = MemoryServer::start(&url, folder.path());
        server.define("k", 7).await;
        database.back_up().await;
        server.define("k", 8).await;
        database.lock_out("app").await;
        eventually("the loss is noticed", async || !server.is_connected().await).await;
        database.restore().await;
        database.let_in("app").await;
        let is_back = async || database.document().await.contains("\"capacity\": 8");
        eventually("it is written again", is_back).await;
    });
}
