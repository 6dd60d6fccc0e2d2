//! OPS-03: lists of definitions over the socket.

use expect_test::expect;
use ratelimiter_wire::{DEFINITIONS_BYTES_MAX, DEFINITIONS_MAX, read_limits_file};
use ratelimiterd::BODY_BYTES_MAX;

use crate::harness::{Answer, KEY, TestServer, limits_path};

fn rolling(key: &str, capacity: u64) -> String {
    format!(r#"{{"key":"{key}","kind":"rolling","capacity":{capacity},"window_seconds":60}}"#)
}

fn list(limits: &[String]) -> String {
    format!(r#"{{"limits":[{}]}}"#, limits.join(","))
}

/// The keys and capacities that the server has.
async fn defined(server: &TestServer) -> String {
    let limits = server.get("/v1/admin/limits").await.json()["limits"].clone();
    let limit = |limit: &serde_json::Value| {
        format!("{}={}", limit["key"].as_str().unwrap(), limit["capacity"])
    };
    limits.as_array().unwrap().iter().map(limit).collect::<Vec<_>>().join(" ")
}

async fn put(server: &TestServer, limits: &[String]) -> Answer {
    server.put(&list(limits)).await
}

/// OPS-03
#[tokio::test]
async fn ops_03_a_list_is_defined_and_answered_in_its_order() {
    let server = TestServer::start().await;
    server.define_rolling("b", 10).await;
    server.reserve(1, &[("b", 8)]).await;
    let limits = [rolling("c", 1), rolling("b", 5), rolling("a", 0)];
    let answer = put(&server, &limits).await;
    expect![[r#"{"ok":true,"statuses":[{"key":"c","status":"active"},{"key":"b","status":"decreasing"},{"key":"a","status":"paused"}]}"#]]
        .assert_eq(&answer.body);
    assert_eq!(put(&server, &limits).await.body, answer.body, "DEF-05");
    assert_eq!(server.put(&rolling("d", 1)).await.body, r#"{"ok":true,"status":"active"}"#);
    let server = server.restart().await;
    assert_eq!(defined(&server).await, "a=0 b=5 c=1 d=1");
}

/// OPS-03
#[tokio::test]
async fn ops_03_one_wrong_entry_changes_nothing() {
    let server = TestServer::start_with(|config| config.registry.limits_max = 3).await;
    server.define_concurrency(KEY, 7).await;
    server.define_rolling("a", 1).await;
    let file = std::fs::read(limits_path(&server.folder)).unwrap();
    let wrong = [
        rolling("b", 1).replace(",\"window_seconds\":60", ""),
        rolling("b", 1).replace(":1", ":1.5"),
        rolling("a", 9),
        rolling(KEY, 7),
        rolling("c", 1),
    ];
    let mut lines = String::new();
    for wrong in wrong {
        let answer = put(&server, &[rolling("a", 2), rolling("new", 1), wrong]).await;
        lines += &format!("{}\n", answer.line());
        assert_eq!(defined(&server).await, format!("a=1 {KEY}=7"));
        assert_eq!(std::fs::read(limits_path(&server.folder)).unwrap(), file);
    }
    expect![[r#"
        400 {"error":"invalid_request:limits[2].window_seconds","ok":false}
        400 {"error":"invalid_request:limits[2].capacity","ok":false}
        400 {"error":"duplicate_key:a","ok":false}
        409 {"error":"kind_conflict:global:llm:openai:gpt-4o:rpm","ok":false}
        409 {"error":"too_many_limits","ok":false}
    "#]]
    .assert_eq(&lines);
}

/// OPS-03: a list of 10 000 limits has more than a mebibyte.
#[tokio::test]
async fn ops_03_ten_thousand_limits_are_defined_and_one_more_is_refused() {
    let server = TestServer::start().await;
    let limits: Vec<_> = (0..=DEFINITIONS_MAX)
        .map(|number| rolling(&format!("tenant:{number:05}:organisation:{KEY}"), 7))
        .collect();
    let answer = put(&server, &limits).await;
    assert_eq!((answer.status, answer.error().as_str()), (400, "invalid_request:limits"));
    assert_eq!(defined(&server).await, "");
    let limits = &limits[..DEFINITIONS_MAX];
    assert!(list(limits).len() > BODY_BYTES_MAX);
    let answer = put(&server, limits).await;
    let statuses = answer.json()["statuses"].as_array().map(Vec::len);
    assert_eq!((answer.status, statuses), (200, Some(DEFINITIONS_MAX)));
    let file = std::fs::read(limits_path(&server.folder)).unwrap();
    assert_eq!(read_limits_file(&file).unwrap().len(), DEFINITIONS_MAX);
}

/// OPS-03, HTTP-02
#[tokio::test]
async fn ops_03_a_list_of_32_mebibytes_is_read_and_one_byte_more_is_refused() {
    let server = TestServer::start().await;
    let limits = list(&[rolling("a", 1)]);
    let padded = |bytes: usize| limits.clone() + &" ".repeat(bytes - limits.len());
    let answer = server.put(&padded(DEFINITIONS_BYTES_MAX + 1)).await;
    assert_eq!((answer.status, answer.error().as_str()), (413, "body_too_large"));
    assert_eq!(defined(&server).await, "");
    assert_eq!(server.put(&padded(DEFINITIONS_BYTES_MAX)).await.status, 200);
    assert_eq!(defined(&server).await, "a=1");
    // Other paths keep their bound.
    for path in ["/v1/reserve", "/v1/reserve/batch", "/v1/complete", "/v1/complete/batch"] {
        let answer = server.post(path, &" ".repeat(BODY_BYTES_MAX + 1)).await;
        assert_eq!((answer.status, answer.error().as_str()), (413, "body_too_large"), "{path}");
    }
}

/// OPS-03: the form of the body is in the description.
#[tokio::test]
async fn ops_03_both_forms_are_described() {
    let server = TestServer::start().await;
    let schemas = server.get("/openapi.json").await.json()["components"]["schemas"].clone();
    assert_eq!(schemas["DefineBody"]["oneOf"].as_array().map(Vec::len), Some(2));
    let limits = &schemas["DefinitionsBody"]["properties"]["limits"];
    assert_eq!((&limits["minItems"], &limits["maxItems"]), (&1.into(), &DEFINITIONS_MAX.into()));
}
