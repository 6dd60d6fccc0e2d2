//! What the gateway refuses itself (`GW-10`), and a backend that is away (`GW-15`).

use hyper::Method;
use ratelimiter::Limiter;
use ratelimiterd::config::Config;
use serde_json::json;

use super::{GatewayTest, Operation, client, mock, section, send, set_gateway, whole};
use crate::harness::TestServer;
use crate::no_answer::UnreachableBackend;

/// GW-10
#[tokio::test]
async fn gw_10_bad_input_gets_the_providers_error_and_reserves_nothing() {
    let test = GatewayTest::start_with(|section| section["body_bytes_max"] = json!(1_000)).await;
    test.define_limits().await;
    let large = format!(r#"{{"model":"gpt-4o","input":"{}"}}"#, "x".repeat(1_000));
    for (path, body, status, kind, hint) in [
        ("v1/chat/completions", "", 400, "invalid_request_error", "JSON object"),
        ("v1/chat/completions", "not json", 400, "invalid_request_error", "JSON object"),
        ("v1/chat/completions", "{}", 400, "invalid_request_error", "model"),
        (
            "v1/chat/completions",
            r#"{"model":"gpt-5"}"#,
            404,
            "invalid_request_error",
            "gateway.providers",
        ),
        ("v1/embeddings", &large, 413, "invalid_request_error", "1000 bytes"),
        ("v1/images", "{}", 404, "invalid_request_error", "pass_through_paths"),
        ("v2/chat/completions", "{}", 404, "invalid_request_error", "pass_through_paths"),
        ("v1/%2e%2e/admin", "{}", 400, "invalid_request_error", "`..`"),
        ("v1/models/..%2f..%2fx", "{}", 400, "invalid_request_error", "`..`"),
    ] {
        let answer =
            test.request(Method::POST, &format!("/openai/{path}"), &[], body.to_owned()).await;
        let (given, message) = answer.error();
        assert_eq!((answer.status, given.as_str()), (status, kind), "{path}: {answer:?}");
        assert!(message.contains(hint), "{path}: {message}");
        assert_eq!(answer.header("content-type"), "application/json");
    }
    let messages = test.request(Method::POST, "/anthropic/v1/messages", &[], "{}").await;
    assert_eq!(messages.json()["type"], "error", "in Anthropic's shape");
    let nested = format!("{{\"model\":\"gpt-4o\",\"messages\":{}", "[".repeat(900));
    let deep = test.request(Method::POST, "/openai/v1/chat/completions", &[], nested).await;
    assert_eq!(deep.status, 400);
    for header in [("x-ratelimiter-wait-ms", "soon"), ("x-ratelimiter-retries", "-1")] {
        let answer = test.call(Operation::Chat, false, &[header]).await;
        assert_eq!(answer.status, 400);
        assert!(answer.error().1.contains(header.0), "{answer:?}");
    }
    assert_eq!(test.settled(Operation::Chat).await, (0, 0, 0));
    assert!(test.mock.calls().is_empty());
}

/// GW-01
#[tokio::test]
async fn gw_01_upgrades_are_not_passed_on() {
    let test = GatewayTest::start().await;
    let headers = [("connection", "upgrade"), ("upgrade", "websocket")];
    let answer = test.request(Method::GET, "/openai/v1/models", &headers, "").await;
    assert_eq!(answer.status, 501, "{answer:?}");
    assert!(test.mock.calls().is_empty());
    // Some clients offer HTTP/2 with every request.
    let headers = [("connection", "upgrade, http2-settings"), ("upgrade", "h2c")];
    assert_eq!(test.request(Method::GET, "/openai/v1/models", &headers, "").await.status, 200);
    assert!(!test.mock.calls()[0].headers.contains_key("upgrade"));
    assert_eq!(test.server.get("/healthz").await.status, 200, "the server's own paths stay");
    let answer = test.request(Method::POST, "/v1/messages", &[], "{}").await;
    assert_eq!(answer.status, 404);
    assert!(answer.body.contains("below the name of a provider"), "{answer:?}");
}

/// GW-15
#[tokio::test]
async fn gw_15_without_the_backend_a_call_is_refused_or_sent_as_configured() {
    let mock = mock().await;
    for (choice, status) in [("deny", 503), ("allow", 200)] {
        let mut section = section(&mock);
        section["on_backend_error"] = json!(choice);
        let change = |config: &mut Config| {
            set_gateway(config, section);
            config.server.request_timeout_ms = 50;
        };
        let server = TestServer::start_on(|_| UnreachableBackend, change).await;
        let uri = format!("http://{}/openai/v1/chat/completions", server.addr());
        let body = Operation::Chat.body(false).to_string();
        let answer = whole(send(&client(), Method::POST, &uri, &[], body.into()).await).await;
        assert_eq!(answer.status, status, "{choice}: {answer:?}");
        let metrics = server.get("/metrics").await.body;
        if status == 503 {
            assert_eq!(answer.error().0, "api_error");
            assert!(!answer.header("retry-after").is_empty());
            assert!(metrics.contains("outcome=\"backend_error\"} 1"), "{metrics}");
        } else {
            assert!(metrics.contains("outcome=\"unlimited\"} 1"), "{metrics}");
        }
    }
    assert_eq!(mock.calls().len(), 1);
    assert!(!UnreachableBackend.can_wait());
}
