//! Shadow mode over the socket.

use expect_test::expect;

use crate::harness::{KEY, TestServer};

async fn define(server: &TestServer, capacity: u64, mode: &str) -> String {
    let body = format!(
        r#"{{"key":"{KEY}","kind":"rolling","capacity":{capacity},"window_seconds":60,"mode":"{mode}"}}"#
    );
    server.put(&body).await.line()
}

async fn shadow_denials(server: &TestServer) -> String {
    let metrics = server.get("/metrics").await.body;
    let lines = metrics.lines().filter(|line| line.starts_with("ratelimiter_shadow_denied_total"));
    lines.collect::<Vec<_>>().join("\n")
}

/// SHD-01: no room, a pause and more than the capacity are named and counted, and nothing is denied.
#[tokio::test]
async fn shd_01_a_limit_in_shadow_mode_is_named_and_counted_and_never_denies() {
    let server = TestServer::start().await;
    server.define_concurrency("slots", 9).await;
    assert_eq!(define(&server, 2, "shadow").await, r#"200 {"ok":true,"status":"active"}"#);
    let within = server.reserve(1, &[("slots", 1), (KEY, 2)]).await;
    expect![[r#"200 {"allowed":true,"reserved_at_unix_ms":1736660000000,"retry_after_ms":0}"#]]
        .assert_eq(&within.line());
    assert_eq!(shadow_denials(&server).await, "");
    let over = server.reserve(2, &[("slots", 1), (KEY, 3)]).await;
    expect![[r#"200 {"allowed":true,"reserved_at_unix_ms":1736660000000,"retry_after_ms":0,"shadow_denied_keys":["global:llm:openai:gpt-4o:rpm"]}"#]].assert_eq(&over.line());
    let again = server.reserve(2, &[("slots", 1), (KEY, 3)]).await;
    expect![[r#"200 {"allowed":true,"reserved_at_unix_ms":1736660000000,"retry_after_ms":0}"#]]
        .assert_eq(&again.line());
    assert_eq!(define(&server, 0, "shadow").await, r#"200 {"ok":true,"status":"paused"}"#);
    let paused = server.reserve(3, &[(KEY, 1)]).await.json();
    assert_eq!((&paused["allowed"], &paused["shadow_denied_keys"][0]), (&true.into(), &KEY.into()));
    expect![[r#"ratelimiter_shadow_denied_total{key="global:llm:openai:gpt-4o:rpm"} 2"#]]
        .assert_eq(&shadow_denials(&server).await);
    let state = server.get(&format!("/v1/admin/limits/{KEY}")).await.json();
    assert_eq!((&state["limit"]["used"], &state["limit"]["mode"]), (&6.into(), &"shadow".into()));
    let metrics = server.get("/metrics").await.body;
    assert!(!metrics.contains("ratelimiter_denied_total{"), "{metrics}");
}

/// SHD-01: a request that another limit denies reserves nothing, and names no limit in shadow mode.
#[tokio::test]
async fn shd_01_a_denied_reserve_names_no_limit_in_shadow_mode() {
    let server = TestServer::start().await;
    server.define_rolling("full", 1).await;
    define(&server, 1, "shadow").await;
    server.reserve(1, &[("full", 1)]).await;
    let denied = server.reserve(2, &[("full", 1), (KEY, 2)]).await.json();
    assert_eq!(denied["denied_keys"], serde_json::json!(["full"]));
    assert_eq!(denied.get("shadow_denied_keys"), None);
    assert_eq!(shadow_denials(&server).await, "");
}

/// SHD-02, DEF-07
#[tokio::test]
async fn shd_02_enforcing_while_over_the_capacity_is_a_decrease() {
    let server = TestServer::start().await;
    define(&server, 2, "shadow").await;
    server.reserve(1, &[(KEY, 5)]).await;
    assert_eq!(define(&server, 2, "enforce").await, r#"200 {"ok":true,"status":"decreasing"}"#);
    let answer = server.get(&format!("/v1/admin/limits/{KEY}")).await;
    expect![[r#"{"limit":{"key":"global:llm:openai:gpt-4o:rpm","kind":"rolling","capacity":9223372036854775807,"window_seconds":60,"timeout_seconds":0,"unit":"","description":"","overage":"debt","status":"decreasing","pending_decrease_to":2,"used":5,"available":9223372036854775802,"debt":0,"uncovered":0}}"#]].assert_eq(&answer.body);
    assert_eq!(server.reserve(2, &[(KEY, 1)]).await.error(), format!("limit_decreasing:{KEY}"));
    server.complete(1, &[(KEY, 1)]).await;
    assert_eq!(server.reserve(3, &[(KEY, 1)]).await.json()["allowed"], true);
    let denied = server.reserve(4, &[(KEY, 1)]).await.json();
    assert_eq!(denied["denied_keys"], serde_json::json!([KEY]));
}

/// RES-07: in shadow mode too, no more than 2^63-1 units are counted.
#[tokio::test]
async fn res_07_a_limit_in_shadow_mode_counts_up_to_2_to_the_63_minus_1() {
    let server = TestServer::start().await;
    define(&server, 1, "shadow").await;
    let answer = server.reserve(1, &[(KEY, 1 << 63)]).await;
    assert_eq!((answer.status, answer.error()), (422, format!("amount_exceeds_capacity:{KEY}")));
    assert_eq!(server.reserve(2, &[(KEY, (1 << 63) - 1)]).await.json()["allowed"], true);
    let denied = server.reserve(3, &[(KEY, 1)]).await.json();
    assert_eq!((&denied["allowed"], &denied["denied_keys"][0]), (&false.into(), &KEY.into()));
}

/// SHD-01, HTTP-14
#[tokio::test]
async fn shd_01_shadow_denials_are_counted_for_a_bounded_number_of_keys() {
    let server = TestServer::start_with(|config| config.metrics.keys_max = 1).await;
    for (lease, key) in [(1, "a"), (2, "b"), (3, "c"), (4, "a")] {
        let body = format!(
            r#"{{"key":"{key}","kind":"concurrency","capacity":0,"timeout_seconds":60,"mode":"shadow"}}"#
        );
        server.put(&body).await;
        server.reserve(lease, &[(key, 1)]).await;
    }
    expect![[r#"
        ratelimiter_shadow_denied_total{key="a"} 2
        ratelimiter_shadow_denied_total{key=""} 2"#]]
    .assert_eq(&shadow_denials(&server).await);
}
