//! Every outcome of the tables in `docs/reference/http-api.md`, over a socket.

use expect_test::expect;

use crate::harness::{KEY, TestServer};

/// RES-01
#[tokio::test]
async fn res_01_an_allowed_reserve_answers_with_its_timestamp() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 2).await;
    let answer = server.reserve(1, &[(KEY, 1)]).await;
    expect![[r#"200 {"allowed":true,"retry_after_ms":0,"reserved_at_unix_ms":1736660000000}"#]]
        .assert_eq(&format!("{} {}", answer.status, answer.body));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("retry-after"), None);
}

/// RES-04: repeating the lease answers like the first time and counts once.
#[tokio::test]
async fn res_04_the_same_lease_is_allowed_again_in_upper_or_lower_case() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 1).await;
    let first = server.reserve(0xabc, &[(KEY, 1)]).await;
    let lower = crate::harness::reserve_body(0xabc, &[(KEY, 1)])
        .replace(&crate::harness::lease(0xabc), &crate::harness::lease(0xabc).to_lowercase());
    let again = server.post("/v1/reserve", &lower).await;
    assert_eq!(again.body, first.body);
}

/// RES-08, HINT-02: the hint of a full rolling limit is exact, and the header rounds it up to seconds.
#[tokio::test]
async fn res_08_a_denial_names_its_keys_and_when_to_ask_again() {
    let server = TestServer::start().await;
    server.define_rolling("a", 1).await;
    server.define_rolling("b", 1).await;
    server.define_rolling("c", 9).await;
    server.reserve(1, &[("a", 1), ("b", 1)]).await;
    server.complete(1, &[]).await;
    server.clock.advance(std::time::Duration::from_millis(500));
    let answer = server.reserve(2, &[("c", 1), ("b", 1), ("a", 1)]).await;
    expect![[r#"200 {"allowed":false,"retry_after_ms":59500,"reserved_at_unix_ms":0,"denied_keys":["b","a"]}"#]]
        .assert_eq(&format!("{} {}", answer.status, answer.body));
    assert_eq!(answer.header("retry-after"), Some("60"));
}

/// DEF-07, HINT-04
#[tokio::test]
async fn def_07_a_reserve_on_a_decreasing_limit_is_denied() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 10).await;
    server.reserve(1, &[(KEY, 8)]).await;
    let answer = server.define_rolling(KEY, 5).await;
    expect![[r#"200 {"ok":true,"status":"decreasing"}"#]]
        .assert_eq(&format!("{} {}", answer.status, answer.body));
    let answer = server.reserve(2, &[(KEY, 1)]).await;
    expect![[r#"200 {"allowed":false,"error":"limit_decreasing:global:llm:openai:gpt-4o:rpm","reserved_at_unix_ms":0,"retry_after_ms":10000}"#]]
        .assert_eq(&answer.line());
}

/// PAUSE-01, HINT-04: idle or in use, for any amount; the same lease is allowed when the capacity returns.
#[tokio::test]
async fn pause_01_a_reserve_on_a_paused_limit_is_denied_and_can_be_repeated() {
    let server = TestServer::start().await;
    for lease in [1, 2] {
        let answer = server.define_rolling(KEY, 0).await;
        expect![[r#"200 {"ok":true,"status":"paused"}"#]]
            .assert_eq(&format!("{} {}", answer.status, answer.body));
        let answer = server.reserve(lease, &[(KEY, 11)]).await;
        expect![[r#"200 {"allowed":false,"error":"limit_paused:global:llm:openai:gpt-4o:rpm","reserved_at_unix_ms":0,"retry_after_ms":10000}"#]]
            .assert_eq(&answer.line());
        assert_eq!(answer.header("retry-after"), Some("10"));
        server.define_rolling(KEY, 100).await;
        assert!(server.reserve(lease, &[(KEY, 11)]).await.body.contains("\"allowed\":true"));
    }
    let metrics = server.get("/metrics").await.body;
    for line in [
        r#"ratelimiter_reserve_total{outcome="limit_paused"} 2"#,
        r#"ratelimiter_denied_total{key="global:llm:openai:gpt-4o:rpm"} 2"#,
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

/// RES-06
#[tokio::test]
async fn res_06_an_unknown_key_is_not_found() {
    let server = TestServer::start().await;
    let answer = server.reserve(1, &[(KEY, 1)]).await;
    expect![[r#"404 {"allowed":false,"error":"unknown_limit_key:global:llm:openai:gpt-4o:rpm","retry_after_ms":0}"#]]
        .assert_eq(&answer.line());
}

/// RES-06, RES-07
#[tokio::test]
async fn res_06_an_amount_over_the_capacity_is_unprocessable() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 9_223_372_036_854_775_807).await;
    let answer = server.reserve(1, &[(KEY, u64::MAX)]).await;
    expect![[r#"422 {"allowed":false,"error":"amount_exceeds_capacity:global:llm:openai:gpt-4o:rpm","retry_after_ms":0}"#]]
        .assert_eq(&answer.line());
}

/// RES-04, RES-09
#[tokio::test]
async fn res_04_res_09_a_used_lease_id_conflicts_and_an_ended_one_stays_ended() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 9).await;
    server.reserve(1, &[(KEY, 1)]).await;
    let answer = server.reserve(1, &[(KEY, 2)]).await;
    expect![[r#"409 {"allowed":false,"error":"lease_conflict","retry_after_ms":0}"#]]
        .assert_eq(&answer.line());
    server.complete(1, &[]).await;
    let answer = server.reserve(1, &[(KEY, 1)]).await;
    expect![[r#"409 {"allowed":false,"error":"lease_ended","retry_after_ms":0}"#]]
        .assert_eq(&answer.line());
}

/// COM-02, COM-05
#[tokio::test]
async fn com_02_com_05_a_complete_reconciles_and_an_unknown_lease_is_ok() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 100).await;
    server.reserve(1, &[(KEY, 100)]).await;
    let answer = server.complete(1, &[(KEY, 10)]).await;
    expect![[r#"200 {"ok":true}"#]].assert_eq(&format!("{} {}", answer.status, answer.body));
    assert_eq!(server.reserve(2, &[(KEY, 90)]).await.json()["allowed"], true);
    for lease in [1, 77] {
        assert_eq!(server.complete(lease, &[]).await.line(), r#"200 {"ok":true}"#);
    }
}

/// COM-06
#[tokio::test]
async fn com_06_an_actual_that_the_lease_does_not_hold_is_refused() {
    let server = TestServer::start().await;
    server.define_rolling("a", 9).await;
    server.define_concurrency("slots", 9).await;
    server.reserve(1, &[("a", 1), ("slots", 1)]).await;
    for key in ["other", "slots"] {
        let answer = server.complete(1, &[("a", 0), (key, 1)]).await;
        assert_eq!(answer.line(), format!(r#"400 {{"error":"invalid_actual:{key}","ok":false}}"#));
    }
    let answer = server.complete(1, &[("a", 0), ("a", 0)]).await;
    assert_eq!(answer.line(), r#"400 {"error":"duplicate_key:a","ok":false}"#);
    let used = &server.get("/v1/admin/limits/a").await.json()["limit"]["used"];
    assert_eq!(*used, 1, "nothing was applied");
}
