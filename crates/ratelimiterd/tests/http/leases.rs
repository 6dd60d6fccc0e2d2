//! Leases and debts over the socket.

use std::time::Duration;

use expect_test::expect;

use crate::harness::{TestServer, complete_body, lease, reserve_body};

const LEASES: &str = "/v1/admin/leases";

async fn release(server: &TestServer, number: u128) -> String {
    server.request("DELETE", &format!("{LEASES}/{}", lease(number)), "", "").await.line()
}

async fn forgive(server: &TestServer, key: &str) -> String {
    server.post("/v1/admin/forgive", &format!(r#"{{"key":"{key}"}}"#)).await.line()
}

/// The numbers of the listed leases.
async fn listed(server: &TestServer, query: &str) -> Vec<u128> {
    let json = server.get(&format!("{LEASES}?{query}")).await.json();
    let number = |lease: &serde_json::Value| {
        let id: ratelimiter::LeaseId = lease["lease_id"].as_str().unwrap().parse().unwrap();
        id.as_u128()
    };
    json["leases"].as_array().unwrap().iter().map(number).collect()
}

/// OPS-01
#[tokio::test]
async fn ops_01_open_leases_are_listed_with_all_that_is_known() {
    let server = TestServer::start().await;
    assert_eq!(server.get(LEASES).await.line(), r#"200 {"leases":[]}"#);
    server.define_rolling("tokens", 100).await;
    server.define_concurrency("slots", 5).await;
    let named = reserve_body(2, &[("tokens", 7), ("slots", 1)]);
    let named = named.replacen('{', r#"{"job_id":"nightly","#, 1);
    assert_eq!(server.post("/v1/reserve", &named).await.status, 200);
    server.clock.advance(Duration::from_millis(2_500));
    server.reserve(1, &[("tokens", 3)]).await;
    let body = server.get(LEASES).await.body;
    let json: serde_json::Value = serde_json::from_str(&body).unwrap();
    let reserved_at = json["leases"][0]["reserved_at_unix_ms"].as_u64().unwrap();
    let shown = body.replace(&(reserved_at + 60_000).to_string(), "T+60000");
    let shown = shown.replace(&(reserved_at + 62_500).to_string(), "T+62500");
    let shown = shown.replace(&(reserved_at + 2_500).to_string(), "T+2500");
    let shown = shown.replace(&reserved_at.to_string(), "T");
    expect![[r#"{"leases":[{"lease_id":"00000000000000000000000002","job_id":"nightly","reserved_at_unix_ms":T,"age_seconds":2,"amounts":[{"key":"slots","amount":1,"lapses_at_unix_ms":T+60000},{"key":"tokens","amount":7,"lapses_at_unix_ms":T+60000}]},{"lease_id":"00000000000000000000000001","job_id":null,"reserved_at_unix_ms":T+2500,"age_seconds":0,"amounts":[{"key":"tokens","amount":3,"lapses_at_unix_ms":T+62500}]}]}"#]].assert_eq(&shown);
}

/// OPS-01
#[tokio::test]
async fn ops_01_a_list_is_filtered_and_paged() {
    let server = TestServer::start().await;
    server.define_rolling("a/b", 100).await;
    server.define_rolling("c", 100).await;
    for (number, key) in [(5, "a/b"), (4, "c"), (3, "a/b"), (2, "c"), (1, "a/b")] {
        server.reserve(number, &[(key, 1)]).await;
        server.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(listed(&server, "").await, [5, 4, 3, 2, 1]);
    assert_eq!(listed(&server, "key=a%2Fb").await, [5, 3, 1]);
    assert_eq!(listed(&server, "key=unknown").await, [0; 0]);
    assert_eq!(listed(&server, "older_than_seconds=3").await, [5, 4, 3]);
    assert_eq!(listed(&server, "limit=2").await, [5, 4]);
    assert_eq!(listed(&server, &format!("limit=2&after={}", lease(4))).await, [3, 2]);
    assert_eq!(release(&server, 4).await, r#"200 {"ok":true}"#);
    assert_eq!(listed(&server, &format!("limit=2&after={}", lease(4))).await, [3, 2]);
    assert_eq!(listed(&server, &format!("key=a/b&after={}", lease(4))).await, [3, 1]);
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("older_than_seconds=-1", "older_than_seconds"),
        ("older_than_seconds=2764801", "older_than_seconds"),
        ("key=two%20words", "key"),
        ("after=7", "after"),
        ("after=01J9ZC3V9W8Q4N2M6T5R7Y1K0D", "after"),
        ("prefix=a", "prefix"),
    ] {
        let answer = server.get(&format!("{LEASES}?{query}")).await;
        assert_eq!((answer.status, answer.error()), (400, format!("invalid_request:{field}")));
    }
}

/// OPS-01
#[tokio::test]
async fn ops_01_a_lease_is_released_once() {
    let server = TestServer::start().await;
    server.define_rolling("tokens", 100).await;
    server.define_concurrency("slots", 1).await;
    assert_eq!(release(&server, 1).await, r#"404 {"error":"not_found","ok":false}"#);
    server.reserve(1, &[("tokens", 60), ("slots", 1)]).await;
    assert_eq!(release(&server, 1).await, r#"200 {"ok":true}"#);
    assert_eq!(release(&server, 1).await, r#"404 {"error":"not_found","ok":false}"#);
    let next = server.reserve(2, &[("tokens", 41), ("slots", 1)]).await;
    assert_eq!(next.json()["denied_keys"][0], "tokens", "the hold is gone, the reservation is not");
    let late = server.post("/v1/complete", &complete_body(1, &[("tokens", 1)])).await;
    assert_eq!(late.line(), r#"200 {"ok":true}"#, "the caller need not know");
    assert_eq!(server.get("/v1/admin/limits/tokens").await.json()["limit"]["used"], 60);
    for path in ["7", "01J9ZC3V9W8Q4N2M6T5R7Y1K0U"] {
        let answer = server.request("DELETE", &format!("{LEASES}/{path}"), "", "").await;
        assert_eq!(answer.line(), r#"400 {"error":"invalid_request:lease_id","ok":false}"#);
    }
    let answer = server.get(&format!("{LEASES}/{}", lease(1))).await;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("DELETE")));
}

/// OPS-02
#[tokio::test]
async fn ops_02_a_debt_is_forgiven_once() {
    let server = TestServer::start().await;
    server.define_rolling("tokens", 10).await;
    assert_eq!(forgive(&server, "tokens").await, r#"200 {"forgiven":0,"ok":true}"#);
    server.reserve(1, &[("tokens", 10)]).await;
    server.complete(1, &[("tokens", 17)]).await;
    let both = tokio::join!(forgive(&server, "tokens"), forgive(&server, "tokens"));
    let mut both = [both.0, both.1];
    both.sort();
    assert_eq!(both, [r#"200 {"forgiven":0,"ok":true}"#, r#"200 {"forgiven":7,"ok":true}"#]);
    assert_eq!(server.get("/v1/admin/limits/tokens").await.json()["limit"]["debt"], 0);
    assert_eq!(
        forgive(&server, "unknown").await,
        r#"404 {"error":"unknown_limit_key:unknown","ok":false}"#
    );
    for (body, field) in [
        ("{}", "key"),
        (r#"{"key":7}"#, "key"),
        (r#"{"key":"two words"}"#, "key"),
        (r#"{"key":"k","amount":1}"#, "amount"),
        ("[]", "body"),
    ] {
        let answer = server.post("/v1/admin/forgive", body).await;
        assert_eq!((answer.status, answer.error()), (400, format!("invalid_request:{field}")));
    }
}
