//! Which token is valid for which route.

use ratelimiterd::config::Token;

use crate::harness::{KEY, TestServer, complete_body, reserve_body};

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
        call("POST", "/v1/complete", &complete, true),
        call("POST", "/v1/complete/batch", &format!(r#"{{"requests":[{complete}]}}"#), true),
        call("GET", "/openapi.json", "", true),
        call("GET", "/v1/admin/limits", "", false),
        call("GET", &format!("/v1/admin/limits/{KEY}"), "", false),
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
async fn a_client_token_opens_reserve_and_complete_and_is_forbidden_elsewhere() {
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
