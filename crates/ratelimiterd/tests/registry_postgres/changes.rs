//! Changes: at one server, at several, by hand, and by whom they are not allowed.

use ratelimiter::clock::{Clock, MonotonicClock};
use testkit::{eventually, run};

use crate::database::TestDatabase;
use crate::deployment::{Asked, MemoryServer, SharedServer, definition, expect_capacity};
use crate::ledger::SharedLedger;

/// REG-01: within a second, which the output shows.
pub fn reg_01_a_change_at_one_server_reaches_the_others() {
    run(async {
        let (database, ledger) = (TestDatabase::new().await, SharedLedger::new());
        let mut servers = Vec::new();
        for name in ["a", "b", "c"] {
            servers.push(SharedServer::start(&database.url(name), &ledger).await);
        }
        let clock = MonotonicClock::new();
        for (turn, units) in [10, 20, 5, 0, 7].into_iter().enumerate() {
            servers[turn % 3].insist_on_put("rate", units).await;
            let answered_at = clock.now();
            for server in &servers {
                expect_capacity(server, "rate", Some(units)).await;
            }
            let took = clock.now().since(answered_at);
            eprintln!("{units} units were everywhere {took:?} after the answer");
        }
        assert!(servers[1].reserve(1, "rate").await.1.contains("\"allowed\":true"));
        eventually("it is deleted", async || servers[2].delete("rate").await.0 == 200).await;
        for server in &servers {
            expect_capacity(server, "rate", None).await;
        }
        let document = database.document().await;
        assert!(document.contains("\"version\": 2"), "{document}");
    });
}

/// REG-01
pub fn reg_01_concurrent_changes_at_two_servers_lose_nothing() {
    const CHANGES: u64 = 20;
    run(async {
        let (database, ledger) = (TestDatabase::new().await, SharedLedger::new());
        let servers = [
            SharedServer::start(&database.url("a"), &ledger).await,
            SharedServer::start(&database.url("b"), &ledger).await,
        ];
        let puts = servers.iter().zip(["a", "b"]).map(|(server, name)| async move {
            for number in 0..CHANGES {
                server.insist_on_put(&format!("{name}{number}"), number + 1).await;
                server.insist_on_put("both", number + 1).await;
            }
        });
        futures::future::join_all(puts).await;
        for server in &servers {
            for name in ["a", "b"] {
                for number in 0..CHANGES {
                    expect_capacity(server, &format!("{name}{number}"), Some(number + 1)).await;
                }
            }
        }
        let agree = async || servers[0].capacity("both").await == servers[1].capacity("both").await;
        eventually("the last change of both holds", agree).await;
        let document: serde_json::Value = serde_json::from_str(&database.document().await).unwrap();
        assert_eq!(document["limits"].as_array().unwrap().len() as u64, 2 * CHANGES + 1);
    });
}

/// REG-01, OPS-03
pub fn reg_01_ops_03_a_list_is_one_write_and_reaches_the_others() {
    const LIMITS: u64 = 2_000;
    run(async {
        let (database, ledger) = (TestDatabase::new().await, SharedLedger::new());
        let first = SharedServer::start(&database.url("a"), &ledger).await;
        let second = SharedServer::start(&database.url("b"), &ledger).await;
        let before = database.version().await;
        let limits: Vec<_> =
            (0..LIMITS).map(|number| definition(&format!("k{number}"), 7)).collect();
        let body = format!(r#"{{"limits":[{}]}}"#, limits.join(","));
        let (status, answer) = first.ask("PUT", "/v1/admin/limits", body).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(database.version().await, before + 1);
        expect_capacity(&second, &format!("k{}", LIMITS - 1), Some(7)).await;
        expect_capacity(&second, "k0", Some(7)).await;
    });
}

const NEWER: &str = r#"{
  "version": 3,
  "limits": [
    {"key": "budget", "kind": "sliding", "steps": 7, "capacity": 9},
    {"key": "k", "kind": "rolling", "capacity": 7, "window_seconds": 60, "owner": "search"}
  ]
}
"#;

/// REG-01, OPS-05
pub fn reg_01_ops_05_unknown_fields_are_kept() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (database, ledger) = (TestDatabase::new().await, SharedLedger::new());
        // Makes the table.
        SharedServer::start(&database.url("a"), &ledger).await.stop().await;
        write_by_hand(&database, NEWER).await;
        let shared = SharedServer::start(&database.url("a"), &ledger).await;
        shared.insist_on_put("k", 8).await;
        shared.stop().await;
        let memory = MemoryServer::start(&database.url("b"), folder.path());
        memory.wait_for_line("line 4: budget: kind: \"sliding\" is unknown to this version");
        assert_eq!(memory.capacity("k").await, Some(8));
        assert_eq!(memory.put("budget", 5).await.0, 409);
        assert_eq!(memory.put("new", 1).await.0, 200);
        let text = database.document().await;
        for kept in [
            "\"version\": 3",
            r#"{"key": "budget", "kind": "sliding", "steps": 7, "capacity": 9}"#,
            "\"owner\": \"search\"",
            "\"capacity\": 8",
            "\"key\": \"new\"",
        ] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
    });
}

/// REG-01, OPS-05
pub fn reg_01_the_table_of_a_newer_version_is_used_and_kept() {
    run(async {
        let (database, ledger) = (TestDatabase::new().await, SharedLedger::new());
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

/// REG-01: as a limits file that somebody edits, or removes.
pub fn reg_01_a_registry_edited_by_hand_is_applied_and_one_with_errors_is_not() {
    run(async {
        let (database, ledger) = (TestDatabase::new().await, SharedLedger::new());
        let server = SharedServer::start(&database.url("a"), &ledger).await;
        server.insist_on_put("k", 5).await;
        write_by_hand(&database, &format!("[{}]", definition("k", 6))).await;
        expect_capacity(&server, "k", Some(6)).await;
        for wrong in [
            "UPDATE ratelimiter_registry SET document = '[ {', version = version + 1",
            "UPDATE ratelimiter_registry SET document = NULL, version = version + 1",
            "DELETE FROM ratelimiter_registry",
        ] {
            database.execute(wrong).await;
            eventually("a change is refused", async || server.put("l", 1).await.0 == 503).await;
            assert_eq!(server.capacity("k").await, Some(6), "{wrong}");
        }
        let restored = format!(
            "INSERT INTO ratelimiter_registry (id, version, document) VALUES (1, 1, '[{}]')",
            definition("k", 7)
        );
        database.execute(&restored).await;
        expect_capacity(&server, "k", Some(7)).await;
    });
}

async fn write_by_hand(database: &TestDatabase, document: &str) {
    let update =
        format!("UPDATE ratelimiter_registry SET document = '{document}', version = version + 1");
    database.execute(&update).await;
}

/// REG-01
pub fn reg_01_a_role_that_may_only_read_serves_and_reports_why_it_cannot_change() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (_cluster, database) = TestDatabase::on_own_server().await;
        let owner = MemoryServer::start(&database.url("owner"), folder.path());
        assert_eq!(owner.put("k", 7).await.0, 200);
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
