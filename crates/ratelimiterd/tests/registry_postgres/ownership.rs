//! OPS-06: a registry belongs to one memory server, or to the servers of one shared backend.

use testkit::{eventually, run};

use crate::database::TestDatabase;
use crate::deployment::{Asked, MemoryServer, SharedServer, refused};
use crate::ledger::SharedLedger;

/// REG-01, OPS-06
pub fn reg_01_ops_06_a_second_memory_server_is_refused_until_the_first_is_gone() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let database = TestDatabase::new().await;
        let first = MemoryServer::start(&database.url("a"), folder.path());
        let error = refused(&database.url("b"));
        let by = first.description();
        assert!(error.contains(&format!(" is in use by {by}; stop that, ")), "{error}");
        assert!(error.contains("one of its own (registry.url)"), "{error}");
        assert_eq!(first.put("k", 7).await.0, 200, "the first one goes on");
        first.kill();
        let second = MemoryServer::start(&database.url("b"), folder.path());
        assert_eq!(second.put("l", 7).await.0, 200);
        assert_eq!(second.capacity("k").await, Some(7));
    });
}

/// REG-01, OPS-06
pub fn reg_01_ops_06_servers_on_a_shared_backend_keep_a_memory_server_out() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (database, ledger) = (TestDatabase::new().await, SharedLedger::new());
        let first = SharedServer::start(&database.url("a"), &ledger).await;
        let second = SharedServer::start(&database.url("b"), &ledger).await;
        let error = refused(&database.url("c"));
        assert!(error.contains("is in use by servers with server.backend: tigerbeetle"), "{error}");
        first.stop().await;
        second.stop().await;
        let memory = MemoryServer::start(&database.url("c"), folder.path());
        assert_eq!(memory.put("k", 7).await.0, 200);
    });
}

/// REG-01, OPS-06
pub fn reg_01_ops_06_an_owner_keeps_its_registry_through_an_outage() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (mut cluster, database) = TestDatabase::on_own_server().await;
        let owner = MemoryServer::start(&database.url("a"), folder.path());
        cluster.crash();
        eventually("the loss is noticed", async || !owner.is_connected().await).await;
        cluster.start_again();
        owner.insist_on_put("k", 7).await;
        let error = refused(&database.url("b"));
        assert!(error.contains(&owner.description()), "{error}");
    });
}

/// REG-01, OPS-06: it cannot connect while another server takes the registry, changes it, and is gone again.
pub fn reg_01_ops_06_an_owner_that_was_replaced_overwrites_nothing() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (_cluster, database) = TestDatabase::on_own_server().await;
        let (url, role) = database.create_writer("owner").await;
        let owner = MemoryServer::start(&url, folder.path());
        assert_eq!(owner.put("ours", 7).await.0, 200);
        database.execute(&format!("ALTER ROLE {role} NOLOGIN")).await;
        database.terminate(&role).await;
        eventually("the loss is noticed", async || !owner.is_connected().await).await;
        let other = MemoryServer::start(&database.url("other"), folder.path());
        assert_eq!(other.put("theirs", 8).await.0, 200);
        database.execute(&format!("ALTER ROLE {role} LOGIN")).await;
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
        eventually("the other is gone", async || {
            refusal().await.is_some_and(|body| body.contains("restart this server"))
        })
        .await;
        let document = database.document().await;
        assert!(document.contains("theirs") && document.contains("\"capacity\": 7"), "{document}");
    });
}
