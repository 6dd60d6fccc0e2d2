//! Changes: at one server, at several, by hand, and by whom they are not allowed.

use ratelimiter::clock::{Clock, MonotonicClock};
use testkit::{eventually, run};

use super::database::{Damage, Database};
use super::deployment::{Asked, MemoryServer, SharedServer, definition, expect_capacity};
use super::ledger::SharedLedger;

/// REG-01: within a second, which the output shows.
pub fn reg_01_a_change_at_one_server_reaches_the_others<D: Database>() {
    run(async {
        let (database, ledger) = (D::new().await, SharedLedger::new());
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
pub fn reg_01_concurrent_changes_at_two_servers_lose_nothing<D: Database>() {
    const CHANGES: u64 = 20;
    run(async {
        let (database, ledger) = (D::new().await, SharedLedger::new());
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
pub fn reg_01_ops_03_a_list_is_one_write_and_reaches_the_others<D: Database>() {
    const LIMITS: u64 = 2_000;
    run(async {
        let (database, ledger) = (D::new().await, SharedLedger::new());
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
pub fn reg_01_ops_05_unknown_fields_are_kept<D: Database>() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let (database, ledger) = (D::new().await, SharedLedger::new());
        // Makes the table of a database that has them.
        SharedServer::start(&database.url("a"), &ledger).await.stop().await;
        database.write_by_hand(NEWER).await;
        let shared = SharedServer::start(&database.url("a"), &ledger).await;
        shared.insist_on_put("k", 8).await;
        shared.stop().await;
        let memory = MemoryServer::start(&database.url("b"), folder.path());
        memory.wait_for_line("line 4: budget: kind: \"sliding\" is unknown to this version");
        assert_eq!(memory.capacity("k").await, Some(8));
        assert_eq!(memory.put("budget", 5).await.0, 409);
        memory.define("new", 1).await;
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

/// REG-01: as a limits file that somebody edits, or removes.
pub fn reg_01_a_registry_edited_by_hand_is_applied_and_one_with_errors_is_not<D: Database>() {
    run(async {
        let (database, ledger) = (D::new().await, SharedLedger::new());
        let server = SharedServer::start(&database.url("a"), &ledger).await;
        server.insist_on_put("k", 5).await;
        database.write_by_hand(&format!("[{}]", definition("k", 6))).await;
        expect_capacity(&server, "k", Some(6)).await;
        for damage in [Damage::Unreadable, Damage::NoText, Damage::Nothing] {
            database.damage(damage).await;
            eventually("a change is refused", async || server.put("l", 1).await.0 == 503).await;
            assert_eq!(server.capacity("k").await, Some(6), "{damage:?}");
        }
        database.write_by_hand(&format!("[{}]", definition("k", 7))).await;
        expect_capacity(&server, "k", Some(7)).await;
    });
}
