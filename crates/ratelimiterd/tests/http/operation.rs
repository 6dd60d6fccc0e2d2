//! Health, readiness, metrics, the `OpenAPI` description, the page, and unknown paths.

use serde_json::Value;

use crate::harness::{KEY, TestServer};

/// HTTP-13
#[tokio::test]
async fn health_and_readiness_answer_ok() {
    let server = TestServer::start().await;
    for path in ["/healthz", "/readyz"] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, answer.body.trim()), (200, "ok"));
    }
}

/// HTTP-14
#[tokio::test]
async fn metrics_count_what_was_answered() {
    let server = TestServer::start().await;
    server.define_rolling(KEY, 1).await;
    server.reserve(1, &[(KEY, 1)]).await;
    server.reserve(2, &[(KEY, 1)]).await;
    server.complete(1, &[(KEY, 3)]).await;
    server.post("/v1/reserve", "{").await;
    let answer = server.get("/metrics").await;
    assert!(answer.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    for line in [
        r#"ratelimiter_reserve_total{outcome="allowed"} 1"#,
        r#"ratelimiter_reserve_total{outcome="denied"} 1"#,
        r#"ratelimiter_reserve_total{outcome="invalid_request"} 1"#,
        r#"ratelimiter_complete_total{outcome="ok"} 1"#,
        r#"ratelimiter_denied_total{key="global:llm:openai:gpt-4o:rpm"} 1"#,
        r#"ratelimiter_overage_units_total{key="global:llm:openai:gpt-4o:rpm",policy="debt"} 2"#,
        r#"ratelimiter_limit_capacity{key="global:llm:openai:gpt-4o:rpm"} 1"#,
        r#"ratelimiter_limit_used{key="global:llm:openai:gpt-4o:rpm"} 1"#,
        r#"ratelimiter_request_seconds_count{route="/v1/reserve"} 3"#,
        "ratelimiter_open_leases 0",
    ] {
        assert!(answer.body.lines().any(|found| found == line), "{line}\n{}", answer.body);
    }
}

/// HTTP-14
#[tokio::test]
async fn metrics_have_a_bounded_number_of_keys() {
    let server = TestServer::start_with(|config| config.metrics.keys_max = 2).await;
    for key in ["a", "b", "c"] {
        server.define_rolling(key, 0).await;
    }
    server.reserve(1, &[("a", 1)]).await;
    let body = server.get("/metrics").await.body;
    assert_eq!(body.matches("ratelimiter_limit_capacity{").count(), 2);
}

/// HTTP-15
#[tokio::test]
async fn the_description_names_every_path_and_its_references_resolve() {
    let server = TestServer::start().await;
    let description = server.get("/openapi.json").await.json();
    assert_eq!(description["openapi"], "3.1.0");
    for (path, item) in description["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let path = path.replace("{key}", "unknown");
            let answer = server.request(&method.to_uppercase(), &path, "", "").await;
            assert_ne!(answer.status, 405, "{method} {path}");
            let is_limit = path.ends_with("unknown");
            assert!(answer.status != 404 || is_limit, "{method} {path}");
        }
    }
    let mut references = Vec::new();
    collect_references(&description, &mut references);
    assert!(references.len() > 20, "{references:?}");
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(description.pointer(pointer).is_some(), "{reference}");
    }
    let amount = "/components/schemas/RequirementBody/properties/amount/minimum";
    assert_eq!(description.pointer(amount), Some(&Value::from(1)));
}

/// HTTP-15, CAL-01, CAL-03, SHD-01
#[tokio::test]
async fn the_description_has_calendar_limits_and_shadow_mode() {
    let server = TestServer::start().await;
    let description = server.get("/openapi.json").await.json();
    let schemas = &description["components"]["schemas"];
    for (schema, values) in [
        ("KindBody", "rolling concurrency calendar"),
        ("PeriodBody", "hour day week month"),
        ("ModeBody", "enforce shadow"),
    ] {
        let names: Vec<_> = schemas[schema]["enum"].as_array().unwrap().iter().collect();
        let names: Vec<_> = names.into_iter().map(|name| name.as_str().unwrap()).collect();
        assert_eq!(names.join(" "), values, "{schema}");
    }
    let definition = &schemas["DefinitionBody"];
    for field in ["period", "time_zone", "resets_at", "weekday", "day", "mode"] {
        for schema in ["DefinitionBody", "StateBody"] {
            assert!(schemas[schema]["properties"][field].is_object(), "{schema} {field}");
            let required = schemas[schema]["required"].as_array().unwrap();
            assert!(!required.contains(&field.into()), "{schema} {field}");
        }
    }
    assert_eq!(definition["properties"]["day"]["maximum"], 28);
    assert!(schemas["StateBody"]["properties"]["resets_at_unix_ms"].is_object());
    assert!(schemas["ReserveAnswer"]["properties"]["shadow_denied_keys"].is_object());
}

/// HTTP-15, OPS-01, OPS-02
#[tokio::test]
async fn the_description_has_leases_and_debts() {
    let server = TestServer::start().await;
    let description = server.get("/openapi.json").await.json();
    for (method, path) in [("get", "/v1/admin/leases"), ("post", "/v1/admin/forgive")] {
        let forbidden = &description["paths"][path][method]["responses"]["403"]["description"];
        assert!(forbidden.as_str().unwrap().contains("`forbidden_key:<key>`"), "{path}");
    }
    let schemas = &description["components"]["schemas"];
    for (schema, field) in
        [("StateBody", "debt"), ("StateBody", "uncovered"), ("ForgiveAnswer", "forgiven")]
    {
        let number = &schemas[schema]["properties"][field];
        assert!(number["type"].to_string().contains("\"integer\""), "{field}: {number}");
        assert_eq!((&number["format"], &number["minimum"]), (&Value::Null, &Value::from(0)));
    }
    let required = schemas["OpenLeaseBody"]["required"].as_array().unwrap();
    assert!(required.contains(&"job_id".into()), "{required:?}");
    let types = &schemas["OpenLeaseBody"]["properties"]["job_id"]["type"];
    assert_eq!(*types, serde_json::json!(["string", "null"]));
}

fn collect_references(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("$ref", Value::String(reference)) => references.push(reference.clone()),
                    (_, value) => collect_references(value, references),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, references)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test]
async fn the_page_lists_the_limits_and_escapes_their_texts() {
    let server = TestServer::start().await;
    assert!(server.get("/").await.body.contains("No limits are defined yet"));
    server
        .put(r#"{"key":"<script>","kind":"rolling","capacity":7,"window_seconds":60,"description":"a \"b\" & 'c'"}"#)
        .await;
    let answer = server.get("/").await;
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(
        answer.body.contains("&lt;script&gt;") && !answer.body.contains("<script>"),
        "{}",
        answer.body
    );
    assert!(answer.body.contains("a &quot;b&quot; &amp; &#39;c&#39;"), "{}", answer.body);
}

/// HTTP-04
#[tokio::test]
async fn an_unknown_path_or_method_is_refused_with_an_error_code() {
    let server = TestServer::start().await;
    for path in ["/v2/reserve", "/v1/reserve/", "/v1/admin/limits/", "/favicon.ico"] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, answer.error().as_str()), (404, "not_found"), "{path}");
    }
    for (method, path) in
        [("GET", "/v1/reserve"), ("POST", "/v1/admin/limits"), ("PUT", "/healthz")]
    {
        let answer = server.request(method, path, "", "").await;
        assert_eq!((answer.status, answer.error().as_str()), (405, "method_not_allowed"), "{path}");
        assert!(answer.header("allow").is_some(), "{answer:?}");
    }
}
