//! Which token is valid for which route, and for which keys.

use expect_test::expect;
use ratelimiterd::config::{AuthConfig, Layers, Token};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Answer, KEY, TestServer, complete_body, lease, reserve_body};
use crate::renew::renew_body;

async fn start_with_tokens() -> TestServer {
    TestServer::start_with(|config| {
        config.auth.client_tokens =
            ["client-1", "client-2"].map(|token| Token::new(token).unwrap()).to_vec();
        config.auth.admin_tokens = vec![Token::new("admin-1").unwrap()];
    })
    .await
}

/// The requests, and whether a client token is valid for them.
fn calls() -> Vec<(&'static str, String, String, bool)> {
    let reserve = reserve_body(1, &[(KEY, 1)]);
    let complete = complete_body(1, &[]);
    let definition =
        format!(r#"{{"key":"{KEY}","kind":"rolling","capacity":5,"window_seconds":60}}"#);
    let call =
        |method, path: &str, body: &str, open| (method, path.to_owned(), body.to_owned(), open);
    vec![
        call("PUT", "/v1/admin/limits", &definition, false),
        call("POST", "/v1/reserve", &reserve, true),
        call("POST", "/v1/reserve/batch", &format!(r#"{{"requests":[{reserve}]}}"#), true),
        call("POST", "/v1/renew", &renew_body(1, 1, &[]), true),
        call("POST", "/v1/complete", &complete, true),
        call("POST", "/v1/complete/batch", &format!(r#"{{"requests":[{complete}]}}"#), true),
        call("GET", "/openapi.json", "", true),
        call("GET", "/v1/admin/limits", "", false),
        call("GET", &format!("/v1/admin/limits/{KEY}"), "", false),
        call("GET", "/v1/admin/leases", "", false),
        call("POST", "/v1/admin/forgive", &format!(r#"{{"key":"{KEY}"}}"#), false),
        call("GET", "/metrics", "", false),
        call("GET", "/", "", false),
        call("DELETE", &format!("/v1/admin/limits/{KEY}"), "", false),
    ]
}

/// HTTP-16
#[tokio::test]
async fn an_admin_token_opens_everything() {
    let server = start_with_tokens().await;
    for (method, path, body, _) in calls() {
        let answer =
            server.request(method, &path, "authorization: Bearer admin-1\r\n", &body).await;
        assert_eq!(answer.status, 200, "{method} {path}: {answer:?}");
    }
}

/// HTTP-16
#[tokio::test]
async fn a_client_token_opens_reserve_renew_and_complete_and_is_forbidden_elsewhere() {
    let server = start_with_tokens().await;
    for token in ["client-1", "client-2"] {
        for (method, path, body, is_open) in calls() {
            let header = format!("Authorization: bearer {token}\r\n");
            let answer = server.request(method, &path, &header, &body).await;
            match is_open {
                true => assert!(!matches!(answer.status, 401 | 403), "{method} {path}: {answer:?}"),
                false => assert_eq!(
                    (answer.status, answer.error().as_str()),
                    (403, "forbidden"),
                    "{method} {path}"
                ),
            }
        }
    }
    let header = "authorization: Bearer client-1\r\n";
    let answer = server.request("GET", "/v1/admin/limits", header, "").await;
    expect![[r#"{"error":"forbidden","message":"a client token is valid for reserve, renew and complete only; this needs a token that may read, or an admin token"}"#]]
        .assert_eq(&answer.body);
}

/// HTTP-16
#[tokio::test]
async fn without_a_valid_token_nothing_is_open_but_health_and_readiness() {
    let server = start_with_tokens().await;
    for header in [
        "",
        "authorization: Bearer admin-2\r\n",
        "authorization: Bearer admin-\r\n",
        "authorization: Bearer admin-11\r\n",
        "authorization: Bearer \r\n",
        "authorization: Basic YWRtaW4tMQ==\r\n",
        "authorization: admin-1\r\n",
    ] {
        for (method, path, body, _) in calls() {
            let answer = server.request(method, &path, header, &body).await;
            assert_eq!(
                (answer.status, answer.error().as_str()),
                (401, "unauthorized"),
                "{method} {path} {header}"
            );
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
        for path in ["/healthz", "/readyz"] {
            assert_eq!(server.request("GET", path, header, "").await.status, 200);
        }
    }
    let answer =
        server.request("GET", "/v1/admin/limits", "authorization: Bearer admin-1\r\n", "").await;
    assert_eq!(answer.body, r#"{"limits":[]}"#, "nothing was defined");
}

/// Callers with every permission, without and with a bound on their keys.
const CALLERS: &str = r#"
  tokens:
    - { name: caller, token: t-call, may: [call] }
    - { name: reader, token: t-read, may: [read] }
    - { name: operator, token: t-admin, may: [admin] }
    - { name: acme, token: t-acme, may: [call, read], keys: ["global:llm:**", "tenant:acme:**"] }
    - { name: acme-operator, token: t-acme-admin, may: [admin], keys: ["tenant:acme:**", "tenant:one"] }
"#;

/// The `auth` section with these lines.
fn auth(lines: &str) -> AuthConfig {
    let mut layers = Layers::new();
    layers.add_yaml("config.yaml", &format!("auth:\n{lines}"));
    layers.config().unwrap().auth
}

async fn start_with_callers() -> TestServer {
    TestServer::start_with(|config| config.auth = auth(CALLERS)).await
}

async fn ask(server: &TestServer, token: &str, method: &str, path: &str, body: &str) -> Answer {
    let header = format!("authorization: Bearer {token}\r\n");
    server.request(method, path, &header, body).await
}

fn definition(key: &str, capacity: u64) -> String {
    format!(r#"{{"key":"{key}","kind":"rolling","capacity":{capacity},"window_seconds":60}}"#)
}

/// Defines limits as an operator without bounds.
async fn define(server: &TestServer, keys: &[&str]) {
    for key in keys {
        let body = definition(key, 5);
        let answer = ask(server, "t-admin", "PUT", "/v1/admin/limits", &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

/// The keys of a list, and of the metrics, that a token shows.
async fn keys_listed(server: &TestServer, token: &str, query: &str) -> String {
    let path = format!("/v1/admin/limits{query}");
    let json = ask(server, token, "GET", &path, "").await.json();
    let keys = json["limits"].as_array().unwrap().iter();
    keys.map(|limit| limit["key"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

async fn metrics_with(server: &TestServer, token: &str, name: &str) -> String {
    let body = ask(server, token, "GET", "/metrics", "").await.body;
    let lines = body.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    lines.map(|line| format!("{line}\n")).collect()
}

/// OPS-04
#[tokio::test]
async fn ops_04_each_permission_opens_its_routes() {
    let server = start_with_callers().await;
    for (method, path, body, is_call) in calls() {
        let is_description = path == "/openapi.json";
        for (token, is_open) in
            [("t-call", is_call), ("t-read", method == "GET"), ("t-admin", true)]
        {
            let answer = ask(&server, token, method, &path, &body).await;
            match is_open || is_description {
                true => assert!(
                    !matches!(answer.status, 401 | 403),
                    "{token} {method} {path}: {answer:?}"
                ),
                false => assert_eq!(
                    (answer.status, answer.error().as_str()),
                    (403, "forbidden"),
                    "{token} {method} {path}"
                ),
            }
        }
        for token in ["t-", "t-calls", "caller", ""] {
            assert_eq!(ask(&server, token, method, &path, &body).await.status, 401, "{token}");
        }
    }
    let answer = ask(&server, "t-read", "POST", "/v1/reserve", "{}").await;
    expect![[r#"{"allowed":false,"retry_after_ms":0,"error":"forbidden","message":"the token of reader permits read; this needs call"}"#]]
        .assert_eq(&answer.body);
    let answer = ask(&server, "t-acme", "PUT", "/v1/admin/limits", "{}").await;
    expect![[r#"{"ok":false,"error":"forbidden","message":"the token of acme permits call and read; this needs admin"}"#]]
        .assert_eq(&answer.body);
}

/// OPS-04: the lists of the first edition go on working beside named callers.
#[tokio::test]
async fn ops_04_tokens_without_a_name_work_beside_named_ones() {
    let lists = format!(
        "{CALLERS}  client_tokens: [old-client, both]\n  admin_tokens: [old-admin, both]\n"
    );
    let server = TestServer::start_with(|config| config.auth = auth(&lists)).await;
    for (token, status) in
        [("old-client", 403), ("old-admin", 200), ("both", 200), ("t-read", 200), ("unknown", 401)]
    {
        let answer = ask(&server, token, "GET", "/v1/admin/limits", "").await;
        assert_eq!(answer.status, status, "{token}: {answer:?}");
        let answer = ask(&server, token, "POST", "/v1/complete", &complete_body(1, &[])).await;
        let expected = match token {
            "t-read" => 403,
            "unknown" => 401,
            _ => 200,
        };
        assert_eq!(answer.status, expected, "{token}: {answer:?}");
    }
}

/// OPS-04, RES-06
#[tokio::test]
async fn ops_04_a_key_outside_of_the_callers_keys_is_forbidden() {
    let server = start_with_callers().await;
    define(&server, &["tenant:acme:tpm", "tenant:other:tpm", KEY]).await;
    let reserve = async |lease, needs: &[(&str, u64)]| {
        let body = reserve_body(lease, needs);
        ask(&server, "t-acme", "POST", "/v1/reserve", &body).await
    };
    assert_eq!(reserve(1, &[("tenant:acme:tpm", 1), (KEY, 1)]).await.status, 200);
    let answer = reserve(2, &[("tenant:acme:tpm", 1), ("tenant:other:tpm", 1)]).await;
    assert_eq!(answer.status, 403);
    expect![[r#"{"allowed":false,"retry_after_ms":0,"error":"forbidden_key:tenant:other:tpm","message":"the token of acme does not permit the key tenant:other:tpm; its keys are in the server's auth.tokens"}"#]]
        .assert_eq(&answer.body);
    // The order of the checks: shape, forbidden key, unknown key, known lease.
    for (lease, needs, status, error) in [
        (
            3,
            &[("tenant:other:tpm", 1), ("tenant:other:tpm", 1)][..],
            400,
            "duplicate_key:tenant:other:tpm",
        ),
        (3, &[("tenant:acme:none", 1), ("tenant:none", 1)], 403, "forbidden_key:tenant:none"),
        (3, &[("tenant:acme:none", 1)], 404, "unknown_limit_key:tenant:acme:none"),
        (1, &[("tenant:other:tpm", 1)], 403, "forbidden_key:tenant:other:tpm"),
        (1, &[("tenant:acme:tpm", 9)], 409, "lease_conflict"),
    ] {
        let answer = reserve(lease, needs).await;
        assert_eq!((answer.status, answer.error().as_str()), (status, error));
    }
    let complete = async |used: &[(&str, u64)]| {
        ask(&server, "t-acme", "POST", "/v1/complete", &complete_body(1, used)).await
    };
    let answer = complete(&[("tenant:acme:tpm", 1), ("tenant:other:tpm", 1)]).await;
    assert_eq!(answer.line(), r#"403 {"error":"forbidden_key:tenant:other:tpm","ok":false}"#);
    assert_eq!(server.memory.open_leases(), 1, "nothing was completed");
    assert_eq!(complete(&[("tenant:acme:tpm", 1)]).await.line(), r#"200 {"ok":true}"#);
    let state = ask(&server, "t-admin", "GET", "/v1/admin/limits/tenant:other:tpm", "").await;
    assert_eq!(state.json()["limit"]["used"], 0, "nothing was reserved");
}

/// OPS-04, HTTP-07
#[tokio::test]
async fn ops_04_each_item_of_a_batch_has_its_own_keys() {
    let server = start_with_callers().await;
    define(&server, &["tenant:acme:tpm", "tenant:other:tpm"]).await;
    let batch = async |path: &str, items: &[String]| {
        let body = format!(r#"{{"requests":[{}]}}"#, items.join(","));
        let answer = ask(&server, "t-acme", "POST", path, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let results = answer.json()["results"].as_array().unwrap().clone();
        let outcome =
            |result: &serde_json::Value| result["error"].as_str().unwrap_or("none").to_owned();
        results.iter().map(outcome).collect::<Vec<_>>().join(", ")
    };
    let reserves = [
        reserve_body(1, &[("tenant:acme:tpm", 1)]),
        reserve_body(2, &[("tenant:other:tpm", 1)]),
        "{}".to_owned(),
        reserve_body(3, &[("tenant:acme:none", 1)]),
        reserve_body(4, &[("tenant:acme:tpm", 1)]),
    ];
    expect!["none, forbidden_key:tenant:other:tpm, invalid_request:lease_id, unknown_limit_key:tenant:acme:none, none"]
        .assert_eq(&batch("/v1/reserve/batch", &reserves).await);
    let completes =
        [complete_body(4, &[("tenant:other:tpm", 1)]), complete_body(1, &[("tenant:acme:tpm", 0)])];
    expect!["forbidden_key:tenant:other:tpm, none"]
        .assert_eq(&batch("/v1/complete/batch", &completes).await);
    assert_eq!(server.memory.open_leases(), 1, "the fourth is still open");
}

/// OPS-04
#[tokio::test]
async fn ops_04_an_operator_with_bounds_changes_and_sees_only_its_limits() {
    let server = start_with_callers().await;
    define(&server, &["tenant:acme:tpm", "tenant:other:tpm", "tenant:one"]).await;
    for (method, key, status) in [
        ("PUT", "tenant:acme:tpm", 200),
        ("PUT", "tenant:acme:new", 200),
        ("PUT", "tenant:one", 200),
        ("PUT", "tenant:one:more", 403),
        ("PUT", "tenant:other:tpm", 403),
        ("PUT", "tenant:acme", 403),
        ("PUT", "tenant:*:tpm", 403),
        ("GET", "tenant:acme:tpm", 200),
        ("GET", "tenant:other:tpm", 403),
        ("GET", "tenant:other:none", 403),
        ("GET", "tenant:acme:none", 404),
        ("DELETE", "tenant:other:tpm", 403),
        ("DELETE", "tenant:acme:tpm", 200),
    ] {
        let one = format!("/v1/admin/limits/{key}");
        let answer = match method {
            "PUT" => {
                let body = definition(key, 7);
                ask(&server, "t-acme-admin", method, "/v1/admin/limits", &body).await
            }
            _ => ask(&server, "t-acme-admin", method, &one, "").await,
        };
        assert_eq!(answer.status, status, "{method} {key}: {answer:?}");
        if status == 403 {
            assert_eq!(answer.error(), format!("forbidden_key:{key}"));
        }
    }
    // What is wrong with the shape comes first.
    let answer = ask(&server, "t-acme-admin", "PUT", "/v1/admin/limits", r#"{"key":"x"}"#).await;
    assert_eq!(answer.error(), "invalid_request:kind");
    let all = keys_listed(&server, "t-admin", "").await;
    assert_eq!(all, "tenant:acme:new tenant:one tenant:other:tpm");
    let other = ask(&server, "t-admin", "GET", "/v1/admin/limits/tenant:other:tpm", "").await;
    assert_eq!(other.json()["limit"]["capacity"], 5, "unchanged");
}

/// OPS-01, OPS-02, OPS-04
#[tokio::test]
async fn ops_04_leases_and_debts_are_bounded_like_limits() {
    let server = start_with_callers().await;
    define(&server, &["tenant:acme:tpm", "tenant:other:tpm", KEY]).await;
    let leases = [
        (1, vec![("tenant:acme:tpm", 1), (KEY, 1)]),
        (2, vec![("tenant:other:tpm", 2)]),
        (3, vec![("tenant:acme:tpm", 3), ("tenant:other:tpm", 1)]),
    ];
    for (lease, needs) in leases {
        let body = reserve_body(lease, &needs);
        assert_eq!(ask(&server, "t-admin", "POST", "/v1/reserve", &body).await.status, 200);
    }
    let listed = async |token, query: &str| {
        let path = format!("/v1/admin/leases{query}");
        let json = ask(&server, token, "GET", &path, "").await.json();
        let amount = |held: &serde_json::Value| format!("{}={}", held["key"], held["amount"]);
        let amounts = |lease: &serde_json::Value| {
            lease["amounts"].as_array().unwrap().iter().map(amount).collect::<Vec<_>>().join(" ")
        };
        let leases = json["leases"].as_array().unwrap().iter();
        leases.map(amounts).collect::<Vec<_>>().join("; ").replace('"', "")
    };
    assert_eq!(
        listed("t-acme-admin", "").await,
        "tenant:acme:tpm=1; tenant:acme:tpm=3",
        "nothing of other keys"
    );
    assert_eq!(listed("t-acme-admin", "?limit=1").await, "tenant:acme:tpm=1");
    assert_eq!(listed("t-read", "?key=tenant:other:tpm").await.matches(';').count(), 1);
    let path = "/v1/admin/leases?key=tenant:other:tpm";
    let answer = ask(&server, "t-acme-admin", "GET", path, "").await;
    assert_eq!(answer.status, 403, "{answer:?}");

    let forgive = |key: &str| format!(r#"{{"key":"{key}"}}"#);
    let path = format!("/v1/admin/leases/{}", lease(1));
    for (token, method, path, body, status) in [
        ("t-acme-admin", "POST", "/v1/admin/forgive", forgive("tenant:acme:tpm"), 200),
        ("t-acme-admin", "POST", "/v1/admin/forgive", forgive("tenant:other:tpm"), 403),
        ("t-read", "POST", "/v1/admin/forgive", forgive("tenant:acme:tpm"), 403),
        ("t-acme-admin", "DELETE", &path, String::new(), 403),
        ("t-read", "DELETE", &path, String::new(), 403),
        ("t-admin", "DELETE", &path, String::new(), 200),
    ] {
        let answer = ask(&server, token, method, path, &body).await;
        assert_eq!(answer.status, status, "{token} {method} {path}: {answer:?}");
    }
}

/// OPS-03, OPS-04
#[tokio::test]
async fn ops_04_one_forbidden_key_refuses_a_list_of_definitions() {
    let server = start_with_callers().await;
    let list = |keys: &[&str]| {
        let definitions: Vec<_> = keys.iter().map(|key| definition(key, 5)).collect();
        format!(r#"{{"limits":[{}]}}"#, definitions.join(","))
    };
    let put =
        async |body: &str| ask(&server, "t-acme-admin", "PUT", "/v1/admin/limits", body).await;
    let answer = put(&list(&["tenant:acme:rpm", "tenant:other:rpm"])).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert!(answer.body.contains(r#""error":"forbidden_key:tenant:other:rpm""#), "{answer:?}");
    assert_eq!(keys_listed(&server, "t-admin", "").await, "");
    assert_eq!(put(&list(&["tenant:acme:rpm", "tenant:one"])).await.status, 200);
    assert_eq!(keys_listed(&server, "t-admin", "").await, "tenant:acme:rpm tenant:one");
}

/// OPS-04
#[tokio::test]
async fn ops_04_a_list_shows_what_its_caller_may_see() {
    let server = start_with_callers().await;
    let seen = ["global:llm:a:rpm", "global:llm:b:rpm", "tenant:acme:a", "tenant:acme:b"];
    define(&server, &seen).await;
    define(&server, &["global:other", "tenant:acme", "tenant:acmee:a", "tenant:other:a", "z"])
        .await;
    for (query, expected) in [
        ("", "global:llm:a:rpm global:llm:b:rpm tenant:acme:a tenant:acme:b"),
        ("?prefix=tenant:", "tenant:acme:a tenant:acme:b"),
        ("?prefix=tenant:acme:b", "tenant:acme:b"),
        ("?prefix=tenant:other:", ""),
        ("?prefix=z", ""),
        ("?limit=1", "global:llm:a:rpm"),
        ("?limit=3", "global:llm:a:rpm global:llm:b:rpm tenant:acme:a"),
        ("?limit=1&after=global:llm:b:rpm", "tenant:acme:a"),
        ("?limit=2&after=global:other", "tenant:acme:a tenant:acme:b"),
        ("?limit=2&after=tenant:acme:b", ""),
    ] {
        assert_eq!(keys_listed(&server, "t-acme", query).await, expected, "{query}");
    }
    let page = ask(&server, "t-acme", "GET", "/", "").await.body;
    assert!(page.contains("tenant:acme:a") && !page.contains("tenant:other"), "{page}");
    let needs = [("tenant:acme:a", 5), ("tenant:other:a", 5)];
    for lease in [1, 2] {
        ask(&server, "t-admin", "POST", "/v1/reserve", &reserve_body(lease, &needs)).await;
    }
    let capacities = metrics_with(&server, "t-acme", "ratelimiter_limit_capacity").await;
    assert_eq!(capacities.lines().count(), seen.len(), "{capacities}");
    expect![[r#"
        ratelimiter_denied_total{key="tenant:acme:a"} 1
    "#]]
    .assert_eq(&metrics_with(&server, "t-acme", "ratelimiter_denied_total").await);
    let all = metrics_with(&server, "t-read", "ratelimiter_denied_total").await;
    assert_eq!(all.lines().count(), 2, "{all}");
}

/// OPS-04, SHD-01
#[tokio::test]
async fn ops_04_shadow_denials_are_shown_for_the_keys_of_the_caller() {
    let server = start_with_callers().await;
    for key in ["tenant:acme:a", "tenant:other:a"] {
        let body = format!(
            r#"{{"key":"{key}","kind":"rolling","capacity":0,"window_seconds":60,"mode":"shadow"}}"#
        );
        ask(&server, "t-admin", "PUT", "/v1/admin/limits", &body).await;
    }
    let needs = [("tenant:acme:a", 1), ("tenant:other:a", 1)];
    ask(&server, "t-admin", "POST", "/v1/reserve", &reserve_body(1, &needs)).await;
    let metric = "ratelimiter_shadow_denied_total";
    expect![[r#"
        ratelimiter_shadow_denied_total{key="tenant:acme:a"} 1
    "#]]
    .assert_eq(&metrics_with(&server, "t-acme", metric).await);
    let all = metrics_with(&server, "t-read", metric).await;
    assert_eq!(all.lines().count(), 2, "{all}");
}

/// OPS-04: more limits than are read at a time lie before and between those that the caller may see.
#[tokio::test]
async fn ops_04_a_page_is_full_however_many_limits_its_caller_may_not_see() {
    let keys = |count: usize| (0..count).map(|at| format!("t:{at:04}:a")).collect::<Vec<_>>();
    let server = TestServer::start_with(|config| {
        config.auth = auth("  tokens: [{ name: a, token: a, may: [admin] }, { name: b, token: b, may: [read], keys: ['t:*:b'] }]");
    })
    .await;
    for (at, key) in keys(350).iter().enumerate() {
        let key = if at % 120 == 119 { key.replace(":a", ":b") } else { key.clone() };
        let answer = ask(&server, "a", "PUT", "/v1/admin/limits", &definition(&key, 1)).await;
        assert_eq!(answer.status, 200);
    }
    assert_eq!(keys_listed(&server, "b", "?limit=1").await, "t:0119:b");
    assert_eq!(keys_listed(&server, "b", "?limit=1&after=t:0119:b").await, "t:0239:b");
    assert_eq!(keys_listed(&server, "b", "?limit=5").await, "t:0119:b t:0239:b");
    assert_eq!(keys_listed(&server, "b", "").await, "t:0119:b t:0239:b");
}

/// OPS-04
#[tokio::test]
async fn ops_04_a_refused_batch_is_counted_as_one_call() {
    let server = start_with_callers().await;
    for path in ["/v1/reserve/batch", "/v1/complete/batch"] {
        let batch = format!(r#"{{"requests":[{},{}]}}"#, complete_body(1, &[]), "{}");
        assert_eq!(ask(&server, "t-read", "POST", path, &batch).await.status, 403);
        assert_eq!(ask(&server, "t-call", "POST", path, "{").await.status, 400);
        assert_eq!(ask(&server, "unknown", "POST", path, &batch).await.status, 401);
    }
    expect![[r#"
        ratelimiter_calls_total{caller="caller",outcome="invalid_request"} 2
        ratelimiter_calls_total{caller="reader",outcome="forbidden"} 2
    "#]]
    .assert_eq(&metrics_with(&server, "t-read", "ratelimiter_calls_total").await);
    for family in ["ratelimiter_reserve_total", "ratelimiter_complete_total"] {
        let metrics = metrics_with(&server, "t-read", family).await;
        for outcome in ["invalid_request", "forbidden", "unauthorized"] {
            let line = format!("{family}{{outcome=\"{outcome}\"}} 1");
            assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
        }
    }
}

/// OPS-04
#[tokio::test]
async fn ops_04_calls_are_counted_by_caller() {
    let lists = format!("{CALLERS}  client_tokens: [old-client]\n");
    let server = TestServer::start_with(|config| config.auth = auth(&lists)).await;
    define(&server, &["tenant:acme:tpm"]).await;
    let reserve = async |token: &str, lease, key: &str| {
        ask(&server, token, "POST", "/v1/reserve", &reserve_body(lease, &[(key, 5)])).await
    };
    reserve("t-acme", 1, "tenant:acme:tpm").await;
    reserve("t-acme", 2, "tenant:acme:tpm").await;
    reserve("t-acme", 3, "tenant:other:tpm").await;
    reserve("t-call", 4, "tenant:acme:tpm").await;
    reserve("t-read", 5, "tenant:acme:tpm").await;
    reserve("unknown", 6, "tenant:acme:tpm").await;
    reserve("old-client", 7, "tenant:none").await;
    ask(&server, "t-acme", "POST", "/v1/complete", &complete_body(1, &[])).await;
    let complete = complete_body(1, &[("x", 1)]);
    let batch = format!(r#"{{"requests":[{complete},{{}}]}}"#);
    ask(&server, "t-acme", "POST", "/v1/complete/batch", &batch).await;
    expect![[r#"
        ratelimiter_calls_total{caller="client_tokens",outcome="unknown_limit_key"} 1
        ratelimiter_calls_total{caller="caller",outcome="denied"} 1
        ratelimiter_calls_total{caller="reader",outcome="forbidden"} 1
        ratelimiter_calls_total{caller="acme",outcome="allowed"} 1
        ratelimiter_calls_total{caller="acme",outcome="denied"} 1
        ratelimiter_calls_total{caller="acme",outcome="invalid_request"} 1
        ratelimiter_calls_total{caller="acme",outcome="forbidden_key"} 2
        ratelimiter_calls_total{caller="acme",outcome="ok"} 1
    "#]]
    .assert_eq(&metrics_with(&server, "t-read", "ratelimiter_calls_total").await);
    let own = metrics_with(&server, "t-acme", "ratelimiter_calls_total").await;
    assert!(own.lines().all(|line| line.contains(r#"caller="acme""#)), "{own}");
    let open = TestServer::start().await;
    open.define_rolling(KEY, 1).await;
    open.reserve(1, &[(KEY, 1)]).await;
    let line = r#"ratelimiter_calls_total{caller="anonymous",outcome="allowed"} 1"#;
    let metrics = open.get("/metrics").await.body;
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
}

/// OPS-04
#[tokio::test]
async fn ops_04_a_reload_replaces_the_tokens_and_keeps_the_counts() {
    let server = TestServer::start().await;
    let status = async |token: &str| {
        ask(&server, token, "POST", "/v1/complete", &complete_body(1, &[])).await.status
    };
    assert_eq!(status("a1").await, 200, "without tokens everyone may call");
    let reload = |lines: &str| server.server.reload_tokens(&auth(lines));
    let first =
        "  tokens: [{ name: a, token: a1, may: [call] }, { name: b, token: b1, may: [admin] }]";
    assert_eq!(reload(first), Ok(2));
    assert_eq!([status("a1").await, status("b1").await, status("a2").await], [200, 200, 401]);
    let mut open = TcpStream::connect(server.addr()).await.unwrap();
    let get = "GET /openapi.json HTTP/1.1\r\nhost: t\r\nauthorization: Bearer a1\r\n";
    open.write_all(format!("{get}\r\n").as_bytes()).await.unwrap();
    let mut first_line = [0; 12];
    open.read_exact(&mut first_line).await.unwrap();
    assert_eq!(&first_line, b"HTTP/1.1 200");
    let second =
        "  tokens: [{ name: b, token: b1, may: [read] }, { name: a, token: a2, may: [call] }]";
    assert_eq!(reload(second), Ok(2));
    assert_eq!([status("a1").await, status("b1").await, status("a2").await], [401, 403, 200]);
    open.write_all(format!("{get}connection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut rest = String::new();
    open.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("HTTP/1.1 401"), "on an open connection too: {rest}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "a3").unwrap();
    let third = auth(&format!("  client_tokens: ['file:{}']\n{second}", path.display()));
    std::fs::remove_file(&path).unwrap();
    let error = server.server.reload_tokens(&third).unwrap_err();
    assert_eq!(error.path, "auth.client_tokens");
    assert_eq!([status("a2").await, status("a3").await], [200, 401], "the old tokens stay valid");
    std::fs::write(&path, "a3").unwrap();
    assert_eq!(server.server.reload_tokens(&third), Ok(3));
    assert_eq!([status("a2").await, status("a3").await], [200, 200]);
    expect![[r#"
        ratelimiter_calls_total{caller="anonymous",outcome="ok"} 1
        ratelimiter_calls_total{caller="client_tokens",outcome="ok"} 1
        ratelimiter_calls_total{caller="b",outcome="forbidden"} 1
        ratelimiter_calls_total{caller="b",outcome="ok"} 1
        ratelimiter_calls_total{caller="a",outcome="ok"} 4
    "#]]
    .assert_eq(&metrics_with(&server, "b1", "ratelimiter_calls_total").await);
    assert_eq!(reload("  tokens: []"), Ok(0));
    assert_eq!(status("a1").await, 200);
}

/// OPS-04, TPL-01: a template stands for all its keys, so its definition needs all of them.
#[tokio::test]
async fn ops_04_a_template_needs_all_keys_that_it_stands_for() {
    let server = start_with_callers().await;
    let put = async |token: &str, key: &str| {
        ask(&server, token, "PUT", "/v1/admin/limits", &definition(key, 5)).await
    };
    for key in ["tenant:acme:*", "tenant:acme:*:**", "tenant:acme:**:rpm"] {
        assert_eq!(put("t-acme-admin", key).await.status, 200, "{key}");
    }
    for key in ["tenant:*:rpm", "tenant:**", "tenant:*", "*:acme:rpm", "**:rpm"] {
        let answer = put("t-acme-admin", key).await;
        assert_eq!((answer.status, answer.error()), (403, format!("forbidden_key:{key}")));
        assert_eq!(put("t-admin", key).await.status, 200, "{key}");
    }
    for (lease, key) in [(1, "tenant:acme:tpm"), (2, "tenant:other:rpm")] {
        let body = reserve_body(lease, &[(key, 5)]);
        let answer = ask(&server, "t-call", "POST", "/v1/reserve", &body).await;
        assert_eq!(answer.json()["allowed"], true);
    }
    // A caller sees the limits of a template that it may use, and their template only if it may use all of them.
    assert_eq!(keys_listed(&server, "t-acme", "?template=tenant:*:rpm").await, "");
    assert_eq!(keys_listed(&server, "t-admin", "?template=tenant:*:rpm").await, "tenant:other:rpm");
    assert_eq!(keys_listed(&server, "t-acme", "?template=tenant:acme:*").await, "tenant:acme:tpm");
    let listed = keys_listed(&server, "t-acme", "").await;
    assert_eq!(listed, "tenant:acme:* tenant:acme:**:rpm tenant:acme:*:**");
    let shown = metrics_with(&server, "t-acme", "ratelimiter_template_instances").await;
    assert!(shown.contains("tenant:acme:*") && !shown.contains("tenant:*"), "{shown}");
}

/// OPS-04, REN-01
#[tokio::test]
async fn ops_04_a_token_renews_only_with_its_keys_and_its_permission() {
    let server = start_with_callers().await;
    define(&server, &["tenant:acme:tpm", "tenant:other:tpm"]).await;
    let needs = reserve_body(1, &[("tenant:acme:tpm", 1), ("tenant:other:tpm", 1)]);
    assert_eq!(ask(&server, "t-call", "POST", "/v1/reserve", &needs).await.status, 200);
    let mut lines = String::new();
    for (token, key) in [
        ("t-acme", "tenant:other:tpm"),
        ("t-read", "tenant:acme:tpm"),
        ("unknown", "tenant:acme:tpm"),
        ("t-acme", "tenant:acme:tpm"),
    ] {
        let answer = ask(&server, token, "POST", "/v1/renew", &renew_body(1, 1, &[(key, 2)])).await;
        lines += &format!("{token} {} {}\n", answer.status, answer.json()["error"]);
    }
    expect![[r#"
        t-acme 403 "forbidden_key:tenant:other:tpm"
        t-read 403 "forbidden"
        unknown 401 "unauthorized"
        t-acme 200 null
    "#]]
    .assert_eq(&lines);
    let calls = metrics_with(&server, "t-admin", "ratelimiter_calls_total").await;
    assert!(
        calls.contains(r#"ratelimiter_calls_total{caller="acme",outcome="renewed"} 1"#),
        "{calls}"
    );
}

/// OPS-04, REN-03: a repeated number gets its first denial, without the keys that this caller may not see.
#[tokio::test]
async fn ops_04_a_repeated_denial_names_only_the_callers_keys() {
    let server = start_with_callers().await;
    let keys = ["tenant:acme:tpm", "tenant:other:tpm"];
    define(&server, &keys).await;
    let needs = keys.map(|key| (key, 1));
    for number in 1..=2 {
        let body = reserve_body(number, &needs);
        assert_eq!(ask(&server, "t-call", "POST", "/v1/reserve", &body).await.status, 200);
    }
    let mut lines = String::new();
    let mut check = async |number: u64, amounts: &[(&str, u64)]| {
        let first = renew_body(1, number, amounts);
        for (token, body) in [("t-call", &first), ("t-acme", &renew_body(1, number, &[]))] {
            let answer = ask(&server, token, "POST", "/v1/renew", body).await;
            let json = answer.json();
            let denied = (&json["renewed"], &json["denied_keys"], &json["error"]);
            lines += &format!("{token} {} {} {} {}\n", answer.status, denied.0, denied.1, denied.2);
        }
    };
    check(1, &keys.map(|key| (key, 5))).await;
    check(2, &[(keys[1], 5)]).await;
    for (number, key) in (3..).zip(keys) {
        let paused = definition(key, 0);
        assert_eq!(ask(&server, "t-admin", "PUT", "/v1/admin/limits", &paused).await.status, 200);
        check(number, &[(key, 2)]).await;
    }
    expect![[r#"
        t-call 200 false ["tenant:acme:tpm","tenant:other:tpm"] null
        t-acme 200 false ["tenant:acme:tpm"] null
        t-call 200 false ["tenant:other:tpm"] null
        t-acme 200 false null null
        t-call 200 false null "limit_paused:tenant:acme:tpm"
        t-acme 200 false null "limit_paused:tenant:acme:tpm"
        t-call 200 false null "limit_paused:tenant:other:tpm"
        t-acme 200 false null null
    "#]]
    .assert_eq(&lines);
}
