//! Templates over the socket.

use expect_test::expect;
use ratelimiter::MemoryLimiter;
use ratelimiter::clock::FakeClock;
use ratelimiter::memory::MemoryOptions;

use crate::harness::{TestServer, limits_path};

const TEMPLATE: &str = "tenant:*:rpm";

/// The keys that a list has.
async fn listed(server: &TestServer, query: &str) -> String {
    let limits = server.get(&format!("/v1/admin/limits{query}")).await.json()["limits"].clone();
    let key = |limit: &serde_json::Value| limit["key"].as_str().unwrap().to_owned();
    limits.as_array().unwrap().iter().map(key).collect::<Vec<_>>().join(" ")
}

/// TPL-01, DEF-08
#[tokio::test]
async fn tpl_01_a_template_is_put_shown_and_deleted_like_any_limit() {
    let server = TestServer::start().await;
    server.define_rolling("a", 1).await;
    let answer = server.define_rolling(TEMPLATE, 2).await;
    assert_eq!(answer.line(), r#"200 {"ok":true,"status":"active"}"#);
    let state = server.get("/v1/admin/limits/tenant:%2A:rpm").await;
    expect![[r#"{"limit":{"key":"tenant:*:rpm","kind":"rolling","capacity":2,"window_seconds":60,"timeout_seconds":0,"unit":"","description":"","overage":"debt","status":"active","pending_decrease_to":null,"used":0,"available":2,"debt":0,"uncovered":0}}"#]]
        .assert_eq(&state.body);
    let file = std::fs::read_to_string(limits_path(&server.folder)).unwrap();
    assert!(file.contains("\"version\": 2") && file.contains("tenant:*:rpm"), "{file}");
    let server = server.restart().await;
    assert_eq!(listed(&server, "").await, "a tenant:*:rpm");
    assert_eq!(server.reserve(1, &[("tenant:acme:rpm", 2)]).await.json()["allowed"], true);
    assert_eq!(server.define_concurrency(TEMPLATE, 2).await.error(), "kind_conflict:tenant:*:rpm");
    let answer = server.define_rolling(TEMPLATE, 0).await;
    assert_eq!(answer.line(), r#"200 {"ok":true,"status":"paused"}"#);
    let path = "/v1/admin/limits/tenant:*:rpm";
    assert_eq!(server.request("DELETE", path, "", "").await.status, 200);
    assert_eq!(server.request("DELETE", path, "", "").await.status, 404);
    assert_eq!(server.reserve(2, &[("tenant:acme:rpm", 1)]).await.status, 404);
    assert_eq!(server.restart().await.get(path).await.status, 404);
}

/// TPL-01: a `*` that is not a whole segment, or without a literal, is refused by its field; nothing of a list is applied.
#[tokio::test]
async fn tpl_01_a_wildcard_in_the_wrong_place_is_refused_by_its_field() {
    let server = TestServer::start().await;
    let limit = |key: &str| {
        format!(r#"{{"key":"{key}","kind":"rolling","capacity":1,"window_seconds":60}}"#)
    };
    for key in ["a*b", "tenant:x*:rpm", "*", "**:*", "a:**:b:**"] {
        let answer = server.put(&limit(key)).await;
        assert_eq!(answer.line(), r#"400 {"error":"invalid_request:key","ok":false}"#, "{key}");
        let answer = server.put(&format!(r#"{{"limits":[{},{}]}}"#, limit("a"), limit(key))).await;
        let expected = r#"400 {"error":"invalid_request:limits[1].key","ok":false}"#;
        assert_eq!(answer.line(), expected, "{key}");
    }
    assert_eq!(listed(&server, "").await, "");
    let answer = server.reserve(1, &[("a", 1), (TEMPLATE, 1)]).await;
    let expected = (400, "invalid_request:requirements[1].key");
    assert_eq!((answer.status, answer.error().as_str()), expected);
}

/// TPL-01: a limit of the first edition goes on working, and can be changed.
#[tokio::test]
async fn tpl_01_a_key_of_an_old_limits_file_goes_on_working() {
    let server = TestServer::start().await;
    server.define_rolling("a", 1).await;
    let path = limits_path(&server.folder);
    let old = r#"[{"key":"a*b","kind":"rolling","capacity":1,"window_seconds":60}]"#;
    std::fs::write(&path, old).unwrap();
    let server = server.restart().await;
    assert_eq!(server.reserve(1, &[("a*b", 1)]).await.json()["allowed"], true);
    assert_eq!(server.define_rolling("a*b", 5).await.status, 200);
    assert_eq!(server.define_rolling("a*c", 5).await.error(), "invalid_request:key");
    let server = server.restart().await;
    assert_eq!(server.get("/v1/admin/limits/a*b").await.json()["limit"]["capacity"], 5);
}

/// TPL-02, TPL-06: a limit that was made from a template is listed with its own key, and counted for the template.
#[tokio::test]
async fn tpl_06_the_limits_of_a_template_are_listed_and_counted_for_it() {
    let server = TestServer::start().await;
    server.define_rolling(TEMPLATE, 2).await;
    server.define_rolling("tenant:vip:rpm", 9).await;
    for (lease, tenant) in [(1, "b"), (2, "a"), (3, "c"), (4, "vip")] {
        let key = format!("tenant:{tenant}:rpm");
        assert_eq!(server.reserve(lease, &[(&key, 2)]).await.json()["allowed"], true);
    }
    let denied = server.reserve(5, &[("tenant:a:rpm", 1), ("tenant:b:rpm", 1)]).await.json();
    assert_eq!(denied["denied_keys"], serde_json::json!(["tenant:a:rpm", "tenant:b:rpm"]));
    server.complete(3, &[("tenant:c:rpm", 5)]).await;
    assert_eq!(listed(&server, "").await, "tenant:*:rpm tenant:vip:rpm");
    let template = "?template=tenant:*:rpm";
    assert_eq!(listed(&server, template).await, "tenant:a:rpm tenant:b:rpm tenant:c:rpm");
    assert_eq!(listed(&server, &format!("{template}&limit=2")).await, "tenant:a:rpm tenant:b:rpm");
    let rest = listed(&server, &format!("{template}&limit=2&after=tenant:b:rpm")).await;
    assert_eq!(rest, "tenant:c:rpm");
    let answer = server.get("/v1/admin/limits?template=a*b").await;
    assert_eq!((answer.status, answer.error().as_str()), (400, "invalid_request:template"));
    let metrics = server.get("/metrics").await.body;
    let about: Vec<_> = metrics.lines().filter(|line| line.contains("key=\"tenant:")).collect();
    expect![[r#"
        ratelimiter_denied_total{key="tenant:*:rpm"} 2
        ratelimiter_limit_capacity{key="tenant:*:rpm"} 2
        ratelimiter_limit_capacity{key="tenant:vip:rpm"} 9
        ratelimiter_limit_used{key="tenant:vip:rpm"} 2
        ratelimiter_overage_units_total{key="tenant:*:rpm",policy="debt"} 3
        ratelimiter_overage_units_total{key="tenant:vip:rpm",policy="debt"} 0
        ratelimiter_template_instances{key="tenant:*:rpm"} 3"#]]
    .assert_eq(&about.join("\n"));
}

/// TPL-03, OPS-03: a list that conflicts with a limit in use changes nothing; what is reserved stays counted.
#[tokio::test]
async fn tpl_03_a_list_that_conflicts_with_a_limit_in_use_changes_nothing() {
    let server = TestServer::start().await;
    server.define_rolling(TEMPLATE, 5).await;
    server.reserve(1, &[("tenant:a:rpm", 3), ("tenant:b:rpm", 3)]).await;
    let limit = |key: &str, kind: &str| format!(r#"{{"key":"{key}","capacity":4,{kind}}}"#);
    let rolling = r#""kind":"rolling","window_seconds":60"#;
    let concurrency = r#""kind":"concurrency","timeout_seconds":60"#;
    let list = |kind: &str| {
        let [a, b] = [limit("tenant:a:rpm", rolling), limit("tenant:b:rpm", kind)];
        format!(r#"{{"limits":[{a},{b}]}}"#)
    };
    assert_eq!(server.put(&list(concurrency)).await.error(), "kind_conflict:tenant:b:rpm");
    assert_eq!(listed(&server, "").await, "tenant:*:rpm");
    let used = async |tenant: &str| {
        let path = format!("/v1/admin/limits/tenant:{tenant}:rpm");
        server.get(&path).await.json()["limit"]["used"].clone()
    };
    assert_eq!((used("a").await, used("b").await), (3.into(), 3.into()));
    assert_eq!(server.put(&list(rolling)).await.status, 200);
    assert_eq!(listed(&server, "").await, "tenant:*:rpm tenant:a:rpm tenant:b:rpm");
    assert_eq!((used("a").await, used("b").await), (3.into(), 3.into()));
    let path = "/v1/admin/limits/tenant:c:rpm";
    assert_eq!(server.request("DELETE", path, "", "").await.status, 404);
}

/// TPL-03, OPS-03: in a list, what is reserved stays counted wherever a template of another kind stands.
#[tokio::test]
async fn tpl_03_a_list_with_a_template_of_another_kind_keeps_what_is_reserved() {
    let template = r#"{"key":"t:a:*","capacity":9,"kind":"concurrency","timeout_seconds":60}"#;
    let limit = r#"{"key":"t:a:x","capacity":9,"kind":"rolling","window_seconds":60}"#;
    for [first, second] in [[limit, template], [template, limit]] {
        let server = TestServer::start().await;
        server.define_rolling("t:**", 9).await;
        server.reserve(1, &[("t:a:x", 3)]).await;
        let answer = server.put(&format!(r#"{{"limits":[{first},{second}]}}"#)).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let state = server.get("/v1/admin/limits/t:a:x").await.json();
        assert_eq!(state["limit"]["used"], 3, "{first} before {second}");
    }
}

/// TPL-07
#[tokio::test]
async fn tpl_07_too_many_limits_are_a_denial() {
    let bounded = |_| {
        let clock = FakeClock::new();
        let options = MemoryOptions { instances_max: 1, ..MemoryOptions::for_tests(clock) };
        MemoryLimiter::with_options(options)
    };
    let server = TestServer::start_on(bounded, |_| ()).await;
    server.define_rolling(TEMPLATE, 5).await;
    assert_eq!(server.reserve(1, &[("tenant:a:rpm", 1)]).await.json()["allowed"], true);
    let answer = server.reserve(2, &[("tenant:b:rpm", 1)]).await;
    expect![[r#"200 {"allowed":false,"error":"too_many_limits:tenant:*:rpm","reserved_at_unix_ms":0,"retry_after_ms":10000}"#]]
        .assert_eq(&answer.line());
    assert_eq!(answer.header("retry-after"), Some("10"));
    assert_eq!(server.reserve(3, &[("tenant:a:rpm", 1)]).await.json()["allowed"], true);
    let metrics = server.get("/metrics").await.body;
    for line in [
        r#"ratelimiter_reserve_total{outcome="too_many_limits"} 1"#,
        r#"ratelimiter_denied_total{key="tenant:*:rpm"} 1"#,
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}
