//! The admin API over the socket.

use expect_test::expect;

use crate::harness::{KEY, TestServer};

/// DEF-04
#[tokio::test]
async fn def_04_another_kind_is_a_conflict() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 1).await;
    let answer = server.define_concurrency(KEY, 1).await;
    assert_eq!(answer.line(), format!(r#"409 {{"error":"kind_conflict:{KEY}","ok":false}}"#));
}

/// DEF-05
#[tokio::test]
async fn def_05_an_equal_put_answers_like_the_first() {
    let server = TestServer::start().await;
    let first = server.define_rolling(KEY, 1).await;
    let file = std::fs::read(crate::harness::limits_path(&server.folder)).unwrap();
    assert_eq!(server.define_rolling(KEY, 1).await.body, first.body);
    assert_eq!(std::fs::read(crate::harness::limits_path(&server.folder)).unwrap(), file);
}

/// HTTP-10
#[tokio::test]
async fn a_state_has_the_definition_and_current_usage() {
    let server = TestServer::start().await;
    let definition = r#"{"key":"a/b:c@d","kind":"rolling","capacity":9,"window_seconds":60,"unit":"tokens","description":"d","overage":"deny"}"#;
    server.put(definition).await;
    server.reserve(1, &[("a/b:c@d", 2)]).await;
    for path in ["a/b:c@d", "a%2Fb%3Ac%40d"] {
        let answer = server.get(&format!("/v1/admin/limits/{path}")).await;
        expect![[r#"{"limit":{"key":"a/b:c@d","kind":"rolling","capacity":9,"window_seconds":60,"timeout_seconds":0,"unit":"tokens","description":"d","overage":"deny","status":"active","pending_decrease_to":null,"used":2,"available":7,"debt":0,"uncovered":0}}"#]]
            .assert_eq(&answer.body);
    }
    let answer = server.get("/v1/admin/limits/unknown").await;
    assert_eq!((answer.status, answer.error().as_str()), (404, "not_found"));
    let answer = server.get("/v1/admin/limits/two%20words").await;
    assert_eq!((answer.status, answer.error().as_str()), (400, "invalid_request:key"));
}

/// DEF-09, HTTP-11
#[tokio::test]
async fn def_09_a_deleted_limit_is_unknown_and_its_leases_complete() {
    let server = TestServer::start().await;
    server.define_rolling("a/b", 1).await;
    server.reserve(1, &[("a/b", 1)]).await;
    let answer = server.request("DELETE", "/v1/admin/limits/a%2Fb", "", "").await;
    assert_eq!(answer.line(), r#"200 {"ok":true}"#);
    assert_eq!(server.reserve(2, &[("a/b", 1)]).await.error(), "unknown_limit_key:a/b");
    assert_eq!(server.complete(1, &[("a/b", 1)]).await.line(), r#"200 {"ok":true}"#);
    let answer = server.request("DELETE", "/v1/admin/limits/a%2Fb", "", "").await;
    assert_eq!(answer.line(), r#"404 {"error":"not_found","ok":false}"#);
}

/// HTTP-09
#[tokio::test]
async fn a_list_is_sorted_filtered_and_paged() {
    let server = TestServer::start().await;
    for key in ["b:2", "a:1", "b:1", "c", "b:3"] {
        server.define_rolling(key, 1).await;
    }
    let keys = async |query: &str| {
        let json = server.get(&format!("/v1/admin/limits{query}")).await.json();
        let limits = json["limits"].as_array().unwrap().clone();
        let keys: Vec<_> =
            limits.iter().map(|limit| limit["key"].as_str().unwrap().to_owned()).collect();
        keys.join(" ")
    };
    assert_eq!(keys("").await, "a:1 b:1 b:2 b:3 c");
    assert_eq!(keys("?prefix=b%3A").await, "b:1 b:2 b:3");
    assert_eq!(keys("?prefix=b:&limit=1&after=b:1").await, "b:2");
    assert_eq!(keys("?after=c").await, "");
    for (query, field) in
        [("limit=0", "limit"), ("limit=x", "limit"), ("after=a%20b", "after"), ("page=2", "page")]
    {
        let answer = server.get(&format!("/v1/admin/limits?{query}")).await;
        assert_eq!((answer.status, answer.error()), (400, format!("invalid_request:{field}")));
    }
}
