//! Who may call, and what travels (`GW-11`).

use hyper::Method;
use ratelimiter_mock_provider::{MockOptions, MockProvider};
use serde_json::json;

use super::{GatewayTest, Operation, whole};
use crate::harness::TestServer;

async fn with_tenants() -> GatewayTest {
    GatewayTest::start_with(|section| {
        section["tenants"] = json!([
            {"name": "acme", "key": "key-of-acme", "models": ["gpt-4o"]},
            {"name": "umbrella", "key": "key-of-umbrella", "models": ["o3"]},
        ]);
        for provider in section["providers"].as_array_mut().unwrap() {
            provider["models"]["o3"] = json!({});
            provider["api_key"] = json!("key-of-the-provider");
        }
    })
    .await
}

/// GW-11
#[tokio::test]
async fn gw_11_the_key_decides_who_calls_and_does_not_travel() {
    let test = with_tenants().await;
    test.server.define_rolling("tenant:acme:llm:rpm", 10).await;
    test.server.define_rolling("tenant:umbrella:llm:rpm", 10).await;
    let headers = [
        ("authorization", "Bearer key-of-acme"),
        ("x-ratelimiter-tenant", "umbrella"),
        ("cookie", "session=1"),
        ("openai-organization", "org"),
        ("traceparent", "00-1-2-01"),
        ("idempotency-key", "i-1"),
    ];
    assert_eq!(test.call(Operation::Chat, false, &headers).await.status, 200);
    let key = [("x-api-key", "key-of-acme")];
    assert_eq!(test.call(Operation::Messages, true, &key).await.status, 200);
    assert_eq!(test.used("tenant:acme:llm:rpm"), 2);
    assert_eq!(test.used("tenant:umbrella:llm:rpm"), 0);
    let calls = test.mock.calls();
    assert_eq!(calls[0].headers["authorization"], "Bearer key-of-the-provider");
    assert_eq!(calls[0].headers["traceparent"], "00-1-2-01");
    assert_eq!(calls[0].headers["idempotency-key"], "i-1");
    assert_eq!(calls[1].headers["x-api-key"], "key-of-the-provider");
    for call in calls {
        for name in ["cookie", "openai-organization", "x-ratelimiter-tenant"] {
            assert!(!call.headers.contains_key(name), "{name}");
        }
        assert!(!format!("{:?}", call.headers).contains("acme"));
    }
}

/// GW-11
#[tokio::test]
async fn gw_11_a_wrong_key_is_401_and_another_model_403() {
    let test = with_tenants().await;
    for headers in [
        &[][..],
        &[("authorization", "Bearer wrong")],
        &[("authorization", "Bearer key-of-acme"), ("x-api-key", "key-of-umbrella")],
    ] {
        for operation in [Operation::Chat, Operation::Messages] {
            let answer = test.call(operation, false, headers).await;
            assert_eq!((answer.status, answer.error().0.as_str()), (401, "authentication_error"));
        }
        let models = test.request(Method::GET, "/openai/v1/models", headers, "").await;
        assert_eq!(models.status, 401, "what is not metered needs a key too");
    }
    let answer = test.call(Operation::Chat, false, &[("x-api-key", "key-of-umbrella")]).await;
    assert_eq!((answer.status, answer.error().0.as_str()), (403, "permission_error"));
    assert!(test.mock.calls().is_empty());
}

/// GW-11
#[tokio::test]
async fn gw_11_without_a_key_of_the_provider_the_callers_own_passes() {
    let test = GatewayTest::start().await;
    test.server.define_rolling("tenant:acme:llm:rpm", 10).await;
    let headers = [("authorization", "Bearer own"), ("x-ratelimiter-tenant", "acme")];
    assert_eq!(test.call(Operation::Chat, false, &headers).await.status, 200);
    assert_eq!(test.mock.calls()[0].headers["authorization"], "Bearer own");
    assert!(!test.mock.calls()[0].headers.contains_key("x-ratelimiter-tenant"));
    assert_eq!(test.used("tenant:acme:llm:rpm"), 1);
    let wrong = [("x-ratelimiter-tenant", "a:b")];
    assert_eq!(test.call(Operation::Chat, false, &wrong).await.status, 400);
}

/// GW-11: what the provider says of the gateway's key is for operators alone.
#[tokio::test]
async fn gw_11_a_provider_that_does_not_take_the_gateways_key_is_502() {
    let options = MockOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        api_key: Some("right-key".to_owned()),
        ..MockOptions::default()
    };
    let mock = MockProvider::start(options).await.unwrap();
    let mut section = super::section(&mock);
    section["providers"][0]["api_key"] = json!("wrong-key");
    let server = TestServer::start_with(|config| super::set_gateway(config, section)).await;
    let client = super::client();
    let ask = async |method, path: &str, body: String| {
        let uri = format!("http://{}/{path}", server.addr());
        whole(super::send(&client, method, &uri, &[], body.into()).await).await
    };
    let body = Operation::Chat.body(false).to_string();
    let call = ask(Method::POST, "openai/v1/chat/completions", body).await;
    let passed = ask(Method::GET, "openai/v1/models", String::new()).await;
    for answer in [call, passed] {
        assert_eq!(answer.status, 502, "{answer:?}");
        assert!(answer.error().1.contains("does not take the gateway's key"), "{answer:?}");
    }
    let own = Operation::Messages.body(false).to_string();
    let answer = ask(Method::POST, "anthropic/v1/messages", own).await;
    assert_eq!(answer.status, 401, "the caller's own key, or none: {answer:?}");
}

/// GW-11
#[tokio::test]
async fn gw_11_keys_are_replaced_without_a_restart() {
    let test = with_tenants().await;
    let mut config = ratelimiterd::config::Config::default();
    let mut section = super::section(&test.mock);
    section["tenants"] = json!([{"name": "acme", "key": "new-key"}]);
    for provider in section["providers"].as_array_mut().unwrap() {
        provider["api_key"] = json!("new-key-of-the-provider");
    }
    super::set_gateway(&mut config, section);
    assert_eq!(test.server.server.reload_gateway(&config), Ok(true));
    let old = [("x-api-key", "key-of-acme")];
    assert_eq!(test.call(Operation::Chat, false, &old).await.status, 401);
    let new = [("x-api-key", "new-key")];
    assert_eq!(test.call(Operation::Chat, false, &new).await.status, 200);
    assert_eq!(test.mock.calls()[0].headers["authorization"], "Bearer new-key-of-the-provider");
    config.gateway = ratelimiterd::config::GatewayConfig::default();
    assert!(test.server.server.reload_gateway(&config).is_err(), "the gateway stays");
    assert_eq!(test.call(Operation::Chat, false, &new).await.status, 200);
}
